"""The section `auto_confirm`: settings of the engine.

Imported only where the section exists: most sessions start without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, get_args

from ironcurtain_proxy.auto_confirm.engine.decision import check_on_timeout
from ironcurtain_proxy.auto_confirm.engine.matrix import RowKey
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.patterns import SessionType
from ironcurtain_proxy.auto_confirm.engine.settings import (
    FURTHER_RULES,
    HUMAN,
    NO_REVIEWER,
    AutoConfirmSettings,
    EscalationTargets,
    NightAction,
    NightMode,
    RuleAction,
    SafetyRule,
    TimeoutAction,
    UnknownAction,
)
from ironcurtain_proxy.config.auto_confirm.notification_settings import (
    NotificationSettings,
    read_notifications,
)
from ironcurtain_proxy.config.auto_confirm.reviewer_settings import ReviewerSpec, read_reviewer
from ironcurtain_proxy.config.reading.declared import (
    members_by_key,
    number,
    object_of,
    one_of,
    whole,
)
from ironcurtain_proxy.config.reading.document import Members, Spot
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.reading.problems import nearest, shown
from ironcurtain_proxy.errors import ConfigurationError

PROVIDER_VARIABLE: Final = "IRONCURTAIN_PROVIDER"
"""The variable with the provider of the session's model, set by the program that starts the proxy.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredContext:
    """The environment that the operator expects. An absent setting requires nothing."""

    directory: Path | None = None
    """The expected workspace."""
    branch: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The expected variables of the proxy's environment."""
    provider: str | None = None
    """The expected value of `IRONCURTAIN_PROVIDER`."""


def read_context(layers: Layers, spot: Spot) -> RequiredContext:
    """Read the section; paths are relative to the file that holds them."""
    readers = {
        "directory": layers.as_path,
        "branch": Spot.name,
        "environment": Spot.texts_by_name,
        "provider": Spot.name,
    }
    return object_of(RequiredContext, readers)(spot)


_SESSION_TYPES: Final[tuple[SessionType, ...]] = get_args(SessionType)
_OPERATIONS: Final[tuple[OperationKind, ...]] = get_args(OperationKind)
_RULES: Final[tuple[RuleAction, ...]] = ("escalate", "auto_approve", "conditional")
_UNKNOWN: Final[tuple[UnknownAction, ...]] = ("escalate", "conditional")
_TIMEOUT: Final[tuple[TimeoutAction, ...]] = ("deny", "approve")
_NIGHT: Final[tuple[NightAction, ...]] = ("escalate", "hold")
_PATTERNS: Final = (*get_args(RowKey), *sorted(FURTHER_RULES))
KEEP_DAYS: Final = 90.0
_MOST_DAYS: Final = 36500

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoConfirmConfig:
    """The settings in the section."""

    engine: AutoConfirmSettings
    session_type: SessionType = "worker"
    """The kind of session, as the operator names it."""
    context: RequiredContext = field(default_factory=RequiredContext)
    store_url: str | None = field(default=None, repr=False)
    """The address of the store; None: SQLite in the state directory."""
    keep_days: float = KEEP_DAYS
    """Days for which the store keeps ended interactions; 0: for ever."""
    reviewers: tuple[ReviewerSpec, ...] = ()
    notifications: NotificationSettings = field(default_factory=NotificationSettings)

    @property
    def mailboxes(self) -> tuple[Path, ...]:
        """The escalation directories of reviewers with a directory of their own."""
        return tuple([spec.mailbox for spec in self.reviewers if spec.mailbox is not None])

    @property
    def token_files(self) -> tuple[Path, ...]:
        """The token files that authenticate their answers."""
        return tuple([spec.token_file for spec in self.reviewers if spec.token_file is not None])


def read_auto_confirm(layers: Layers) -> AutoConfirmConfig | None:
    """Read the section; None: it does not exist. Paths are relative to the file that holds them."""
    return layers.read("auto_confirm", lambda spot: _config(layers, spot), None)


def _config(layers: Layers, spot: Spot) -> AutoConfirmConfig:
    members = spot.object((*_ENGINE, *_OTHER_KEYS))
    specs = members.read(
        "reviewers", lambda inner: inner.each(lambda one: read_reviewer(layers, one)), ()
    )
    _warn_of_strangers(members, [HUMAN, *[reviewer.name for reviewer, _ in specs]])
    engine = _made(
        spot,
        lambda: AutoConfirmSettings(
            **members_by_key(members, _ENGINE),
            reviewers=tuple([reviewer for reviewer, _ in specs]),
        ),
        AutoConfirmSettings(),
    )
    store = members.get("store")
    kept = None if store is None else store.object(("url", "keep_days"))
    return AutoConfirmConfig(
        engine=engine,
        session_type=members.read("session_type", one_of(_SESSION_TYPES), "worker"),
        context=members.read(
            "context", lambda inner: read_context(layers, inner), RequiredContext()
        ),
        store_url=None if kept is None else kept.read("url", _store_url, None),
        keep_days=KEEP_DAYS if kept is None else kept.read("keep_days", _days, KEEP_DAYS),
        reviewers=tuple([found for _, found in specs]),
        notifications=members.read(
            "notifications",
            lambda inner: read_notifications(layers, inner),
            NotificationSettings(),
        ),
    )


def _warn_of_strangers(members: Members, known: list[str]) -> None:
    """Warn of names that no reviewer has: a person is asked instead."""
    targets = members.read("escalation_targets", Spot.members, {})
    for spot in (
        *map(targets.get, ("high_risk", "medium_risk")),
        members.get("fallback_escalation"),
    ):
        name = None if spot is None else spot.value
        if spot is not None and isinstance(name, str) and name not in known:
            words = f"{shown(name)} is not among the reviewers: a person is asked"
            spot.warning(words, nearest(name, known))


def _made(spot: Spot, make: Callable[[], T], standard: T) -> T:
    try:
        return make()
    except ConfigurationError as error:
        spot.error(str(error))
        return standard


def _nobody(spot: Spot) -> str:
    """The only accepted word for low risk: no reviewer."""
    if spot.value != NO_REVIEWER:
        # The name of a reviewer would promise a review that never happens.
        spot.error(
            f"must be {shown(NO_REVIEWER)}: what is of low risk and certain is approved without a "
            "reviewer, and all else goes to high_risk or medium_risk"
        )
    return NO_REVIEWER


def _rule(spot: Spot) -> SafetyRule:
    members = spot.object(("pattern", "action", "target"))
    return _made(
        spot,
        lambda: SafetyRule(
            pattern=members.required("pattern").word(_PATTERNS),
            action=members.required("action").word(_RULES),
            target=members.read("target", Spot.name, None),
        ),
        SafetyRule(pattern="unknown", action="escalate"),
    )


def _on_timeout(spot: Spot) -> Mapping[OperationKind, TimeoutAction]:
    table: dict[OperationKind, TimeoutAction] = {}
    for name, inner in spot.members().items():
        if name.startswith("_"):
            continue
        operation = inner.inner(name, name).word(_OPERATIONS)
        table[operation] = inner.word(_TIMEOUT)
    for problem in check_on_timeout(table):
        spot.error(problem.partition(": ")[2])
    return table


def _store_url(spot: Spot) -> str:
    text = spot.name()
    if not text.startswith(("postgresql://", "postgresql+psycopg://", "sqlite:///")):
        spot.error("must begin with postgresql:// or sqlite:///")
    return text


def _days(spot: Spot) -> float:
    """A number of days; 0: for ever."""
    days = spot.number(-1, _MOST_DAYS)
    if -1 < days < 1 and days != 0:
        spot.error("must be at least 1 day, or 0 to keep everything")
    return days


_ENGINE: Final[Mapping[str, Callable[[Spot], object]]] = {
    "enabled": Spot.switch,
    "intelligent_escalation": Spot.switch,
    "escalation_targets": object_of(
        EscalationTargets, {"high_risk": Spot.name, "medium_risk": Spot.name, "low_risk": _nobody}
    ),
    "safety_rules": lambda spot: spot.each(_rule),
    "night_mode": object_of(
        NightMode,
        {
            "enabled": Spot.switch,
            "start_hour": whole(0, 23),
            "end_hour": whole(0, 23),
            "action": one_of(_NIGHT),
        },
    ),
    "escalation_timeout_minutes": number(0, 1440),
    "fallback_escalation": Spot.name,
    "load_relief": Spot.switch,
    "unknown": one_of(_UNKNOWN),
    "on_timeout": _on_timeout,
    "feature_branches": Spot.texts,
}
"""The settings of the engine itself, whose fields have the same names."""
_OTHER_KEYS: Final = ("reviewers", "session_type", "store", "notifications", "context")
