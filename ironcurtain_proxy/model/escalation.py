"""An open question to a reviewer, and its answer."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NewType, TypeAlias

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.grant import Candidate, Pattern
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.place import NOWHERE, Place
from ironcurtain_proxy.model.request import AccessRequest

EscalationId = NewType("EscalationId", str)
"""A random UUID: it names files, so nothing else may stand in it."""

Origin: TypeAlias = Literal["policy", "capability", "tool-policy"]
"""What asked for a review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginReason:
    """One of the things that asked for a review, and why."""

    origin: Origin
    ground: Ground
    capabilities: tuple[Capability, ...] = ()
    """Those that asked, where the origin is `capability`."""
    profile: str = ""
    """The one that asks, where the origin is `capability`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """One call that needs a reviewer, with all that a reviewer should see."""

    id: EscalationId
    session: str
    server: str
    """The operator's name of the server."""
    tool: str
    exposed_name: str
    """The tool's name as the agent used it."""
    arguments: Arguments
    """What would be sent."""
    request: AccessRequest
    """The facts: what the arguments name, by role."""
    ground: Ground
    roles: tuple[ArgumentRole, ...] = ()
    """The argument roles that escalated."""
    reasons: tuple[OriginReason, ...] = ()
    """Everything that asks, the policy first; one answer settles all. Empty: the policy."""
    context: tuple[tuple[str, str], ...] = ()
    """Such as `("Working directory", "/srv/repo")`."""
    command: ParsedCommand | None = None
    """The shell command in the arguments, where there is one."""
    place: Place = NOWHERE
    """Where that command runs."""
    branch: str | None = None
    """The branch of the repository that the call works in, if that is known."""
    sandboxed: bool = False
    """Whether the server's process is confined."""
    definition: str = ""
    """SHA-256 of the tool's definition, or of all that a plan's calls name."""
    for_people: bool = False
    """Neither a model nor the engine may approve it: it is about more than one call."""
    candidates: tuple[Pattern, ...] = ()
    """What may be remembered; an answer names one by its place."""
    fingerprint: str
    """SHA-256 over server, tool and arguments."""
    policy_version: str
    created: datetime
    """Aware, UTC."""
    deadline: datetime
    """Aware, UTC; after it the call is refused."""

    def chosen(self, remember: Candidate | int | None) -> Pattern | None:
        """The candidate that an approval names; None: none, or none of these. True is no place."""
        if isinstance(remember, Candidate):
            return next((one for one in self.candidates if one == remember), None)
        if isinstance(remember, bool) or not isinstance(remember, int):
            return None
        return self.candidates[remember] if 0 <= remember < len(self.candidates) else None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """What asked, each once."""
        return tuple([reason.origin for reason in self.reasons]) or ("policy",)


Decider: TypeAlias = str
"""`human`, `auto-approver`, `reviewer:ID`, `containment`, `timeout`, `kernel`: who settled it, for
the record."""

HUMAN: Final[Decider] = "human"
CONTAINMENT: Final[Decider] = "containment"

BY_MODEL: Final[tuple[str, Json]] = ("reviewerKind", "model")
"""A field of the record: the reviewer that decided is a language model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """An explicit, well-formed, in-time approval of exactly this escalation."""

    by: Decider = "human"
    reasoning: str = ""
    remember: Candidate | int | None = None
    """One of the escalation's candidates, or its place; None: this once."""
    question: EscalationId | None = None
    """Which question it answered, where a call joined one that was asked before."""
    note: str = ""
    """A word of the reviewer to the agent."""
    details: tuple[tuple[str, Json], ...] = field(default=(), compare=False)
    """Further fields of the record, such as what an engine found out."""
    revocable: bool = False
    """It holds only if the call can be taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Anything else that came back, or nothing in time."""

    by: Decider = "human"
    kind: Literal["denied", "expired", "invalid", "withdrawn", "limit"] = "denied"
    """`invalid`: an answer that could not be accepted. `withdrawn`: the agent gave up. `limit`:
    nobody was asked, because too much of this session is open."""
    reason: str = ""
    """For the record and the operator: why an answer was invalid."""
    note: str = ""
    question: EscalationId | None = None
    """As above."""
    details: tuple[tuple[str, Json], ...] = field(default=(), compare=False)
    """As above."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Nobody could be asked: single-shot."""

    details: tuple[tuple[str, Json], ...] = field(default=(), compare=False, kw_only=True)
    """Further fields of the record: what somebody thought who passed the question on."""


@dataclass(frozen=True, slots=True)
class Held:
    """Still open; the agent may come back with the same call."""

    id: EscalationId


@dataclass(frozen=True, slots=True)
class Taken:
    """It was approved, and another call like it, which waited as well, uses the approval."""


Ruling: TypeAlias = Approved | Declined | Unreachable
"""How an escalation ended."""
