"""The values of the store, and its errors.

Importing them loads no database library, so a proxy without the engine may name them.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.auto_confirm.engine.interaction import HIGH_BANDS, RiskBand
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model import decision
from ironcurtain_proxy.model.decision import Engine, Person, Program, in_record, of_record
from ironcurtain_proxy.model.values import Json

Status: TypeAlias = Literal["pending", "approved", "rejected", "auto_approved", "held", "escalated"]
"""The state of an interaction. `held`: a first reviewer is asked; `escalated`: a further one."""

FinalStatus: TypeAlias = Literal["approved", "rejected", "auto_approved"]

DecisionWord: TypeAlias = Literal["approved", "rejected", "escalated", "timed_out"]
"""A decision, in the words of `permission_decisions`."""

TaskStatus: TypeAlias = Literal["open", "answered", "timed_out", "withdrawn", "unasked"]
"""The state of a question to one reviewer. `unasked`: it ended, and no reviewer ever saw it."""

HUMAN: Final = in_record(decision.HUMAN)
TIMEOUT: Final = in_record(decision.TIMEOUT)
WITHDRAWN_BY: Final = Engine("withdrawn")
"""The agent cancelled the call, which is no decision."""
ABANDONED_BY: Final = in_record(Engine("abandoned"))
"""The proxy that asked has ended, which is no decision."""
PASSED_ON: Final = in_record(Engine("passed-on"))
"""A reviewer could not be asked, or gave an answer that does not count."""

MODEL: Final = in_record(decision.AUTO_APPROVER)
"""The auto-approver, which is asked about held calls before a reviewer."""

LONGEST_REGEX: Final = 512
"""Characters of the longest pattern that the engine reads."""


def is_reviewer(decided_by: str) -> bool:
    """Return whether a person or a reviewer decided."""
    return isinstance(of_record(decided_by), Person | Program)


class InteractionRow(Struct, frozen=True, kw_only=True):
    """A permission prompt to record. Its texts may be an agent's words: untrusted."""

    request_id: str
    """The call's id, the same as in the audit log; recorded once."""
    session_name: str
    operation: str
    scope: str | None = None
    """The canonical real path, or another object of the operation."""
    session_type: str | None = None
    status: Status = "pending"
    prompt_type: str = "permission"
    prompt_text: str | None = None
    action_requested: str | None = None
    matched_pattern_id: int | None = None
    risk_score: float = 0.5
    risk_band: RiskBand | None = None
    confidence_score: float = 0.5
    factors: Mapping[str, Json] = field(default_factory=dict)
    """The factors of risk and confidence."""
    decision_ms: float | None = None
    """Milliseconds of the decision, without models and reviewers."""
    owner: str | None = None
    """The asking process, as `upkeep.this_owner` names it. `None` means unknown."""


class PermissionDecision(Struct, frozen=True, kw_only=True):
    """One line of an interaction's trail."""

    decision: DecisionWord
    decided_by: str
    """`engine:…`, `auto-approver`, `reviewer:ID`, `human` or `timeout`."""
    reason: str
    escalation_target: str | None = None

    @property
    def is_automatic(self) -> bool:
        """Whether a machine decided."""
        return not is_reviewer(self.decided_by)


class Ending(Struct, frozen=True, kw_only=True):
    """The end of an interaction."""

    status: FinalStatus
    decided_by: str
    reason: str
    response: str | None = None
    """The reviewer's own words."""
    asked: bool = True
    """Whether any reviewer saw the question."""

    @property
    def decision(self) -> PermissionDecision:
        """The trail's last line. A refusal by the clock is written as `timed_out`."""
        word: DecisionWord
        if self.status != "rejected":
            word = "approved"
        else:
            word = "timed_out" if self.decided_by == TIMEOUT else "rejected"
        return PermissionDecision(decision=word, decided_by=self.decided_by, reason=self.reason)


class EscalationTask(Struct, frozen=True, kw_only=True):
    """A question to one reviewer."""

    assign_to: str
    content: str
    reason: str
    decided_by: str
    """The check that routed it: `engine:…`."""
    priority: int = 9
    timeout_minutes: float = 5.0
    type: str = "claude_permission_review"


class PatternRow(Struct, frozen=True, kw_only=True):
    """A pattern of calls that the operator lets the engine approve."""

    id: int
    name: str
    operation: str
    scope_regex: str | None
    """Must match the whole canonical real path. `None` means any scope."""
    session_type: str | None
    """The type of session. `None` means any."""
    risk_level: str | None
    auto_approve: bool
    """Whether the pattern approves, or False if it is disabled, or was never promoted."""
    created_by: str | None
    usage_count: int
    success_rate: float
    """The share of its approved calls that succeeded; 1.0 before the first."""


class NewPattern(Struct, frozen=True, kw_only=True):
    """A pattern to add.

    Raises:
        ValueError: the pattern is invalid.
    """

    name: str
    operation: str
    scope_regex: str | None
    session_type: str | None = None
    risk_level: RiskBand | None = None
    auto_approve: bool = False
    created_by: str

    def __post_init__(self) -> None:
        """Refuse a pattern that would approve too much, or never match."""
        if not self.name.strip() or not self.operation.strip():
            raise ValueError("a pattern needs a name and an operation")
        if self.auto_approve and self.risk_level in HIGH_BANDS:
            raise ValueError(f"a pattern never approves {self.risk_level} risk")
        if self.scope_regex is None:
            return
        if len(self.scope_regex) > LONGEST_REGEX:
            raise ValueError(f"scope_regex is longer than {LONGEST_REGEX} characters")
        try:
            re.compile(self.scope_regex)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"scope_regex is not a regular expression: {error}") from None


class PatternProposal(Struct, frozen=True, kw_only=True):
    """A pattern that reviewers' own decisions suggest. It approves nothing until promoted."""

    name: str
    operation: str
    directory: str
    scope_regex: str
    session_type: str | None
    risk_level: RiskBand
    """The highest seen among the evidence: LOW or MEDIUM."""
    approved: int
    """The approvals by people and reviewers."""
    rejected: int
    """The refusals: always 0 for a proposal."""
    sessions: int
    """The number of sessions with these approvals."""


# --- faults


class StoreError(IronCurtainError):
    """The store cannot be read or written: the engine approves nothing."""


class AlreadyDecidedError(StoreError):
    """The interaction already has its final decision."""


class StoreLostError(StoreError):
    """The open file is no longer the store, or is damaged: it must be opened anew."""
