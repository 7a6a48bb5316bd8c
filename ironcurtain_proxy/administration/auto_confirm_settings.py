"""The auto-confirm engine: section `auto_confirm`, with the keys of its document.

Imported only where the section is there: most sessions start without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from ironcurtain_proxy.administration.document import Members, Spot
from ironcurtain_proxy.administration.layers import Layers
from ironcurtain_proxy.administration.work_context_settings import RequiredContext, read_context
from ironcurtain_proxy.approval.engine.final_table import check_on_timeout
from ironcurtain_proxy.approval.engine.matrix import RowKey
from ironcurtain_proxy.approval.engine.operations import Operation
from ironcurtain_proxy.approval.engine.sessions import SessionType
from ironcurtain_proxy.approval.engine.settings import (
    FURTHER_RULES,
    HUMAN,
    REVIEWER_TYPES,
    AutoConfirmSettings,
    EscalationTargets,
    Reviewer,
    RuleAction,
    SafetyRule,
    TimeoutAction,
    UnknownAction,
)
from ironcurtain_proxy.approval.engine.windows import NightAction, NightMode
from ironcurtain_proxy.errors import ConfigurationError

ReviewerKind: TypeAlias = Literal["human", "session", "process", "model"]
ReviewerProtocol: TypeAlias = Literal["lines", "mcp"]
NotificationKind: TypeAlias = Literal["none", "command", "webhook", "file", "tmux"]

_SESSION_TYPES: Final[tuple[SessionType, ...]] = get_args(SessionType)
_OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)
_KINDS: Final[tuple[ReviewerKind, ...]] = get_args(ReviewerKind)
_PROTOCOLS: Final[tuple[ReviewerProtocol, ...]] = get_args(ReviewerProtocol)
_NOTIFICATIONS: Final[tuple[NotificationKind, ...]] = get_args(NotificationKind)
_HUMAN: Final[ReviewerKind] = "human"
_LINES: Final[ReviewerProtocol] = "lines"
_NOBODY: Final[NotificationKind] = "none"
_RULES: Final[tuple[RuleAction, ...]] = ("escalate", "auto_approve", "conditional")
_UNKNOWN: Final[tuple[UnknownAction, ...]] = ("escalate", "conditional")
_TIMEOUT: Final[tuple[TimeoutAction, ...]] = ("deny", "approve")
_NIGHT: Final[tuple[NightAction, ...]] = ("escalate", "hold")
_PATTERNS: Final = (*get_args(RowKey), *sorted(FURTHER_RULES))
_FOR: Final[Mapping[str, frozenset[ReviewerKind]]] = {
    "token_file": frozenset({"session"}),
    "command": frozenset({"process"}),
    "env": frozenset({"process", "model"}),
    "modelId": frozenset({"model"}),
    "mailbox": frozenset({"human", "session"}),
    "session": frozenset({"process", "session"}),
    "session_type": frozenset({"process", "session", "model"}),
}
"""Who takes a key that not everybody takes."""
_NAME_LENGTH: Final = 64
KEEP_DAYS: Final = 90.0
_MOST_DAYS: Final = 36500

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewerSpec:
    """How a reviewer is reached."""

    name: str
    kind: ReviewerKind
    command: tuple[str, ...] = ()
    """Of a process: the program and its arguments."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    protocol: ReviewerProtocol = "lines"
    """What a process speaks."""
    tool: str = "review"
    """By which a process that speaks MCP is asked."""
    model_id: str = ""
    """Of a model: `PROVIDER:MODEL`."""
    mailbox: Path | None = None
    """Of a session, and of a person who looks elsewhere: another escalation directory."""
    token_file: Path | None = None
    """Of a session: holds what its answers are known by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """Who is told that something waits."""

    kind: NotificationKind = "none"
    command: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    """Of a webhook; it may hold a secret."""
    file: Path | None = None
    target: str = ""
    """The tmux pane or session."""
    summary_minutes: float = 15
    """Between two summaries of what the engine approved; 0: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoConfirmConfig:
    """The whole section."""

    engine: AutoConfirmSettings
    session_type: SessionType = "worker"
    """What kind of session this is, as the operator says."""
    context: RequiredContext = field(default_factory=RequiredContext)
    store_url: str | None = field(default=None, repr=False)
    """None: SQLite in the state directory."""
    keep_days: float = KEEP_DAYS
    """How long the store keeps what has ended; 0: for ever."""
    reviewers: tuple[ReviewerSpec, ...] = ()
    notifications: NotificationSettings = field(default_factory=NotificationSettings)

    @property
    def mailboxes(self) -> tuple[Path, ...]:
        """The escalation directories of reviewers who have one of their own."""
        return tuple([spec.mailbox for spec in self.reviewers if spec.mailbox is not None])

    @property
    def token_files(self) -> tuple[Path, ...]:
        """What their answers are known by."""
        return tuple([spec.token_file for spec in self.reviewers if spec.token_file is not None])


def read_auto_confirm(layers: Layers) -> AutoConfirmConfig | None:
    """The section; None: it is not there."""
    return layers.read("auto_confirm", lambda spot: _Reader(layers).config(spot), None)


class _Reader:
    """Reads the section; paths are against the file that holds them."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def config(self, spot: Spot) -> AutoConfirmConfig:
        members = spot.object(
            (
                *("enabled", "intelligent_escalation", "escalation_targets", "safety_rules"),
                *("night_mode", "escalation_timeout_minutes", "fallback_escalation"),
                *("load_relief", "unknown", "on_timeout", "feature_branches", "reviewers"),
                *("session_type", "store", "notifications", "context"),
            )
        )
        specs = members.read("reviewers", lambda inner: inner.each(self._reviewer), ())
        standard = AutoConfirmSettings()
        engine = _made(
            spot,
            lambda: AutoConfirmSettings(
                enabled=members.read("enabled", Spot.switch, default=False),
                intelligent_escalation=members.read(
                    "intelligent_escalation", Spot.switch, default=True
                ),
                escalation_targets=members.read(
                    "escalation_targets", _targets, standard.escalation_targets
                ),
                safety_rules=members.read("safety_rules", lambda inner: inner.each(_rule), ()),
                night_mode=members.read("night_mode", _night, standard.night_mode),
                escalation_timeout_minutes=members.read(
                    "escalation_timeout_minutes",
                    lambda inner: inner.number(0, 1440),
                    standard.escalation_timeout_minutes,
                ),
                fallback_escalation=members.read(
                    "fallback_escalation", Spot.name, standard.fallback_escalation
                ),
                load_relief=members.read("load_relief", Spot.switch, default=False),
                unknown=members.read("unknown", lambda inner: inner.word(_UNKNOWN), "escalate"),
                on_timeout=members.read("on_timeout", _on_timeout, {}),
                feature_branches=members.read(
                    "feature_branches", Spot.texts, standard.feature_branches
                ),
                reviewers=tuple([reviewer for reviewer, _ in specs]),
            ),
            standard,
        )
        store = members.get("store")
        kept = None if store is None else store.object(("url", "keep_days"))
        return AutoConfirmConfig(
            engine=engine,
            session_type=members.read(
                "session_type", lambda inner: inner.word(_SESSION_TYPES), "worker"
            ),
            context=members.read(
                "context", lambda inner: read_context(self._layers, inner), RequiredContext()
            ),
            store_url=None if kept is None else kept.read("url", _store_url, None),
            keep_days=KEEP_DAYS if kept is None else kept.read("keep_days", _days, KEEP_DAYS),
            reviewers=tuple([found for _, found in specs]),
            notifications=members.read(
                "notifications", self._notifications, NotificationSettings()
            ),
        )

    def _reviewer(self, spot: Spot) -> tuple[Reviewer, ReviewerSpec]:
        members = spot.object(
            (
                *("name", "kind", "command", "env", "modelId", "mailbox", "token_file"),
                *("session", "session_type", "may_deny", "protocol", "tool"),
            )
        )
        name = members.required("name").name()
        if len(name) > _NAME_LENGTH or not name.isprintable():
            spot.error(f"a name has at most {_NAME_LENGTH} visible characters")
        kind = members.read("kind", _kind, _HUMAN)
        if name == HUMAN and kind != _HUMAN:
            spot.error(
                f'"{HUMAN}" is the person who is asked where nobody else is: take another name'
            )
        command = members.read("command", lambda inner: inner.each(Spot.name), ())
        if kind == "process" and not command:
            spot.error("a process needs a command: a list of the program and its arguments")
        model = members.read("modelId", Spot.name, "")
        if kind == "model" and not model:
            spot.error("a model needs a modelId: PROVIDER:MODEL")
        session_type = members.read(
            "session_type",
            lambda inner: inner.word(_SESSION_TYPES),
            REVIEWER_TYPES.get(name, "unknown"),
        )
        reviewer = Reviewer(
            name=name,
            kind="human" if kind == "human" else "process",
            session=members.read("session", Spot.name, None),
            session_type=session_type,
            may_deny=members.read("may_deny", Spot.switch, default=True),
        )
        _check_kind(members, kind)
        spec = ReviewerSpec(
            name=name,
            kind=kind,
            command=command,
            env=members.read("env", Spot.texts_by_name, {}),
            protocol=_spoken(members, kind),
            tool=members.read("tool", Spot.name, "review"),
            model_id=model,
            mailbox=members.read("mailbox", self._layers.as_path, None),
            token_file=members.read("token_file", self._layers.as_path, None),
        )
        return reviewer, spec

    def _notifications(self, spot: Spot) -> NotificationSettings:
        members = spot.object(("kind", "command", "url", "file", "target", "summary_minutes"))
        kind = members.read("kind", _notification, _NOBODY)
        needed = {"command": "command", "webhook": "url", "file": "file", "tmux": "target"}
        if kind in needed and needed[kind] not in members:
            spot.error(f"{kind} needs {needed[kind]!r}")
        # Nobody is told for a while: then the rest may stay where it is.
        for key in () if kind == "none" else set(needed.values()) - {needed[kind]}:
            said = members.get(key)
            if said is not None:
                said.error(f'is not for "{kind}"')
        return NotificationSettings(
            kind=kind,
            command=members.read("command", lambda inner: inner.each(Spot.name), ()),
            url=members.read("url", _web_address, ""),
            file=members.read("file", self._layers.as_path, None),
            target=members.read("target", Spot.name, ""),
            summary_minutes=members.read(
                "summary_minutes", _minutes_or_never, NotificationSettings().summary_minutes
            ),
        )


def _made(spot: Spot, make: Callable[[], T], standard: T) -> T:
    try:
        return make()
    except ConfigurationError as error:
        spot.error(str(error))
        return standard


def _targets(spot: Spot) -> EscalationTargets:
    members = spot.object(("high_risk", "medium_risk", "low_risk"))
    standard = EscalationTargets()
    return EscalationTargets(
        high_risk=members.read("high_risk", Spot.name, standard.high_risk),
        medium_risk=members.read("medium_risk", Spot.name, standard.medium_risk),
        low_risk=members.read("low_risk", Spot.name, standard.low_risk),
    )


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


def _night(spot: Spot) -> NightMode:
    members = spot.object(("enabled", "start_hour", "end_hour", "action"))
    standard = NightMode()
    return NightMode(
        enabled=members.read("enabled", Spot.switch, standard.enabled),
        start_hour=members.read("start_hour", _hour, standard.start_hour),
        end_hour=members.read("end_hour", _hour, standard.end_hour),
        action=members.read("action", lambda inner: inner.word(_NIGHT), standard.action),
    )


def _kind(spot: Spot) -> ReviewerKind:
    return spot.word(_KINDS)


def _check_kind(members: Members, kind: ReviewerKind) -> None:
    """What a kind needs and does not take."""
    for key in ("mailbox", "token_file") if kind == "session" else ():
        members.required(key)
    for key, kinds in _FOR.items():
        said = members.get(key)
        if said is not None and kind not in kinds:
            said.error(f"is not for a {kind}")
    may_deny = members.get("may_deny")
    if may_deny is not None and kind == "human" and "mailbox" not in members:
        may_deny.error("is for a human with a mailbox of their own")


def _spoken(members: Members, kind: ReviewerKind) -> ReviewerProtocol:
    """What a reviewer speaks, and whether it is one that does."""
    protocol = members.read("protocol", lambda inner: inner.word(_PROTOCOLS), _LINES)
    said, tool = members.get("protocol"), members.get("tool")
    if said is not None and kind != "process":
        said.error(f"is for a process, not for a {kind}")
    if tool is not None and (kind, protocol) != ("process", "mcp"):
        tool.error('is for a process with "protocol": "mcp"')
    return protocol


def _notification(spot: Spot) -> NotificationKind:
    return spot.word(_NOTIFICATIONS)


def _minutes_or_never(spot: Spot) -> float:
    if spot.value == 0 and not isinstance(spot.value, bool):
        return 0.0
    return spot.number(0, 1440)


def _hour(spot: Spot) -> int:
    hour = spot.whole(0, 23)
    return hour if 0 <= hour <= 23 else 0  # noqa: PLR2004  of a day


def _on_timeout(spot: Spot) -> Mapping[Operation, TimeoutAction]:
    table: dict[Operation, TimeoutAction] = {}
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
    """A number of days; 0: no end."""
    days = spot.number(-1, _MOST_DAYS)
    if -1 < days < 1 and days != 0:
        spot.error("must be at least 1 day, or 0 to keep everything")
    return days


def _web_address(spot: Spot) -> str:
    text = spot.name()
    if not text.startswith(("http://", "https://")):
        spot.error("must begin with http:// or https://")
    return text
