"""The audit record of a call."""

from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.decider import Decider
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.operation import RequestId

ResultStatus: TypeAlias = Literal["success", "denied", "error"]
"""The end of the call: the server answered, the proxy refused, or something failed."""

EscalationResult: TypeAlias = Literal["approved", "denied"]


class OwnField(NamedTuple):
    """An additional record field in the proxy's own words, which is not scanned for secrets.

    A plain pair holds what came from an agent, a server or a reviewer.
    """

    name: str
    value: Json


class ResultSummary(Struct, frozen=True, kw_only=True):
    """The size and digest of a result. Its content is never recorded."""

    status: ResultStatus
    error: str | None = None
    size: int | None = None
    """Bytes of the result's compact JSON; None if there was none."""
    sha256: str | None = None
    asked: str | None = None
    """The kind of question that the answer carried, for which it was withheld."""


class PutBack(Struct, frozen=True):
    """A file that can steer programs outside the sandboxes, and was restored after a call."""

    said: str
    """The file and what was done with it, as a sentence without its full stop."""
    kept: str = ""
    """The copy of the removed content; empty: there is none. Not shown to the agent."""
    acts: bool = True
    """Whether a program of the host is known to act on it. False: nobody knows."""

    @property
    def full(self) -> str:
        """The sentence with the place where the content is kept, for the operator."""
        return f"{self.said}; what was there is kept as {self.kept}" if self.kept else self.said


class AuditRecord(Struct, frozen=True, kw_only=True):
    """One entry: an intent before a call is forwarded, or the outcome of a call."""

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
    decided_by: Decider
    client: str = ""
    """The agent's program, as it names itself; untrusted. Empty: not known."""
    origins: tuple[str, ...] = ()
    """The origins of a review: `policy`, `capability`, `tool-policy`, `secrets`."""
    policy_version: str = ""
    escalation_result: EscalationResult | None = None
    result: ResultSummary | None = None
    """The outcome; None: the record is an intent."""
    duration_ms: int = 0
    sandboxed: bool | None = None
    """Whether the process that served the call is confined; None if no server was involved."""
    context: tuple[tuple[str, Json], ...] = ()
    """Additional fields, such as `("autoApproved", true)`; see `OwnField`."""
