"""The operator's settings of the engine: section `auto_confirm`.

`docs/auto-confirm.md` describes the keys. `config` checks each value; this module checks how the
values fit together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from ironcurtain_proxy.auto_confirm.engine.matrix import ROWS, RowKey
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.patterns import SessionType
from ironcurtain_proxy.errors import ConfigurationError, KernelError

_Hour: TypeAlias = Annotated[int, Meta(ge=0, le=23)]
_Reviewer: TypeAlias = Annotated[str, Meta(min_length=1)]

NightAction: TypeAlias = Literal["escalate", "hold"]
"""The action at night for calls that nothing approved."""


class NightMode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hours in which a reviewer decides instead of the engine's default."""

    enabled: bool = True
    start_hour: _Hour = 21
    """The first hour of the night."""
    end_hour: _Hour = 6
    """The hour after the night. Before `start_hour`: the night goes over midnight. Equal:
    all day."""
    action: NightAction = "escalate"

    def is_on(self, moment: datetime) -> bool:
        """Return whether this time is at night.

        Args:
            moment: aware, in the operator's own time zone.

        Raises:
            KernelError: the moment has no time zone.
        """
        if moment.utcoffset() is None:
            raise KernelError("the engine was handed a time without a zone")
        if not self.enabled:
            return False
        if self.start_hour < self.end_hour:
            return self.start_hour <= moment.hour < self.end_hour
        return moment.hour >= self.start_hour or moment.hour < self.end_hour


RuleAction: TypeAlias = Literal["auto_approve", "escalate", "conditional"]
UnknownAction: TypeAlias = Literal["escalate", "conditional"]
"""The action for an operation that the engine does not know."""

TimeoutAction: TypeAlias = Literal["approve", "deny"]
"""The action for an unanswered question. It is no decision of the engine."""

RulePattern: TypeAlias = RowKey | Literal["git_delete_force", "database", "network", "unknown"]
FURTHER_RULES: Final = frozenset({"git_delete_force", "database", "network", "unknown"})
"""Further names of safety rules than those of the matrix's rows. They can only escalate."""

NO_REVIEWER: Final = "auto_approve"
"""Stands where low risk would have a reviewer."""

HUMAN: Final = "human"

REVIEWER_TYPES: Final[Mapping[str, SessionType]] = MappingProxyType(
    {
        "architect_manager": "architect",
        "wrapper_claude": "manager",
        "claude_code_high_level": "high-level",
    }
)
"""The default session types of the reviewers that the original document names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyRule:
    """The operator's rule for a row of the matrix."""

    pattern: RulePattern
    action: RuleAction
    target: str | None = None
    """The reviewer, for `escalate`. `None` means the reviewer of high risk."""

    def __post_init__(self) -> None:
        row = next((row for row in ROWS.values() if row.key == self.pattern), None)
        if row is None and self.pattern not in FURTHER_RULES:
            raise ConfigurationError(
                f"auto_confirm.safety_rules: no operation is called {self.pattern!r}"
            )
        if self.action != "escalate" and (row is None or row.always_escalates):
            # No rule can make the matrix more lenient.
            raise ConfigurationError(
                f"auto_confirm.safety_rules: {self.pattern} can only be escalated"
            )


class EscalationTargets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reviewers of each kind of call, by name."""

    high_risk: _Reviewer = "architect_manager"
    medium_risk: _Reviewer = "wrapper_claude"
    low_risk: Literal["auto_approve"] = NO_REVIEWER
    """The word for no reviewer: a call of low risk and high confidence needs none. No other word is
    accepted."""


class ReviewerSetting(Struct, frozen=True, kw_only=True):
    """A configured reviewer."""

    name: str
    kind: Literal["human", "process"] = "process"
    session: str | None = None
    """The session that a process reviews from. `None` means its name."""
    session_type: SessionType = "unknown"
    may_deny: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoConfirmSettings:
    """The engine's configuration."""

    enabled: bool = False
    intelligent_escalation: bool = True
    """Off: a person decides on every escalated call."""
    escalation_targets: EscalationTargets = field(default_factory=EscalationTargets)
    safety_rules: tuple[SafetyRule, ...] = ()
    night_mode: NightMode = field(default_factory=NightMode)
    escalation_timeout_minutes: float = 5
    """Minutes for each of the two reviewers that are asked, one after the other."""
    fallback_escalation: str = "claude_code_high_level"
    load_relief: bool = False
    """Approve more when more than ten reviews of other sessions are pending."""
    unknown: UnknownAction = "escalate"
    on_timeout: Mapping[OperationKind, TimeoutAction] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The action by operation, by default `deny`. `decision.check_on_timeout` checks it."""
    feature_branches: tuple[str, ...] = ("feature/",)
    """Prefixes of branches that are nobody else's."""
    reviewers: tuple[ReviewerSetting, ...] = ()
    """The reviewers. Empty means a person reviews everything."""

    def __post_init__(self) -> None:
        if not all(prefix.strip("/") for prefix in self.feature_branches):
            raise ConfigurationError(
                "auto_confirm.feature_branches: an empty prefix is every branch"
            )
        names = [reviewer.name for reviewer in self.reviewers]
        if len(set(names)) != len(names):
            raise ConfigurationError("auto_confirm.reviewers: two have one name")

    def reviewer(self, name: str) -> ReviewerSetting | None:
        """Return the reviewer with this name, or None if a person stands in."""
        return next((found for found in self.reviewers if found.name == name), None)
