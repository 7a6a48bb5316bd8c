"""What is recorded of a call."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from ironcurtain_proxy.model.call import RequestId
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.json import Arguments, Json

ResultStatus: TypeAlias = Literal["success", "denied", "error"]
"""How the call ended: the server answered, we refused, or something failed."""

EscalationResult: TypeAlias = Literal["approved", "denied"]


class OwnField(NamedTuple):
    """A further field of a record, all of whose words are ours: nobody hides a secret in it.

    What came from an agent, a server or a reviewer is a plain pair.
    """

    name: str
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSummary:
    """A result, of which content is never recorded: only how large it was and its digest."""

    status: ResultStatus
    error: str | None = None
    size: int | None = None
    """Bytes of the result's compact JSON; None if there was none."""
    sha256: str | None = None
    asked: str | None = None
    """What the answer asks for instead of answering; it is not passed on."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """Something that steers what runs outside the sandboxes, and was put back after a call."""

    said: str
    """What it was and what became of it, in a sentence without its full stop."""
    kept: str = ""
    """Where what was there is now; empty if it is nowhere. Not for the agent."""

    @property
    def full(self) -> str:
        """All of it, for the operator."""
        return f"{self.said}; what was there is kept as {self.kept}" if self.kept else self.said


class AuditRecord(NamedTuple):
    """One entry: an intent before a call is forwarded, or the outcome of a call.

    A tuple: a frozen dataclass of 20 fields takes three times as long to make, twice for each call.
    """

    timestamp: datetime
    """Aware, UTC."""
    request_id: RequestId
    session: str
    server: str
    tool: str
    arguments: Arguments
    effect: Effect
    rule: str
    reason: str
    decided_by: str
    """`kernel`, `grant:ID`, `engine:…`, `auto-approver`, `reviewer:ID`, `human` or `timeout`."""
    client: str = ""
    """The program that the agent is, in its own words; empty: not known."""
    origins: tuple[str, ...] = ()
    """What asked for a review: `policy`, `capability`, `tool-policy`."""
    policy_version: str = ""
    escalation_result: EscalationResult | None = None
    result: ResultSummary | None = None
    """None: an intent."""
    duration_ms: int = 0
    sandboxed: bool | None = None
    """Whether that very process is confined; None where no server was involved."""
    context: tuple[tuple[str, Json], ...] = ()
    """Further fields of later stages, such as `("autoApproved", true)`; see `OwnField`."""
