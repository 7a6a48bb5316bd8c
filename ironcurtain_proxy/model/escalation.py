"""An escalation: an open question to a reviewer, and its ruling."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, NewType, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.caller import Caller
from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.decider import HUMAN, Decider
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.grant import Candidate, Pattern
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.opening import SandboxOpening
from ironcurtain_proxy.model.place import NOWHERE, Place
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.signing import SignatureNeed

EscalationId = NewType("EscalationId", str)
"""A random UUID. Files are named by it, so it has no other form."""

FOREVER: Final = timedelta(days=36_500)
"""The time for an answer where a question waits until it is answered."""

Origin: TypeAlias = Literal["policy", "capability", "tool-policy", "secrets", "target"]
"""The kind of check that asked for a review."""


NAMED_BY_LINE: Final = "Named by"
"""The context that says who named the targets of a call, and how long ago. It is shown and no
more: an answer holds although another result names a target meanwhile."""

FOR_PEOPLE: Final[frozenset[Origin]] = frozenset({"secrets", "target"})
"""The origins that no grant, no model and no containment settles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginReason:
    """One reason for a review: its origin and an explanation."""

    origin: Origin
    ground: Ground
    capabilities: tuple[Capability, ...] = ()
    """The capabilities that need approval, where the origin is `capability`."""
    profile: str = ""
    """The capability profile that asks, where the origin is `capability`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """One call that needs a reviewer, with everything that a reviewer should see."""

    id: EscalationId
    session: str
    server: str
    """The operator's name of the server."""
    tool: str
    exposed_name: str
    """The tool's name as the agent used it."""
    arguments: Arguments
    """The arguments as they would be sent."""
    request: AccessRequest
    """The resources that the arguments name, by role."""
    ground: Ground
    roles: tuple[ArgumentRole, ...] = ()
    """The argument roles that escalated."""
    reasons: tuple[OriginReason, ...] = ()
    """All reasons for the review, the policy first. One answer settles all of them. Empty: the
    policy alone."""
    told: tuple[str, ...] = ()
    """What the call does, in sentences, the gravest first. Empty: the ground says more."""
    context: tuple[tuple[str, str], ...] = ()
    """Additional facts for the reviewer, such as `("Working directory", "/srv/repo")`."""
    command: ParsedCommand | None = None
    """The shell command in the arguments, where there is one."""
    place: Place = NOWHERE
    """The place where that command runs."""
    branch: str | None = None
    """The branch of the repository that the call works in; None: not known."""
    sandboxed: bool = False
    """Whether the server's process is confined."""
    held: bool = False
    """Whether the parts of a shell command that stay inside the sandbox run unasked, because the
    timeline can take them back."""
    definition: str = ""
    """SHA-256 of the tool's definition; of a plan, of everything that its calls name."""
    opening: SandboxOpening | None = None
    """The access beyond the sandbox that an approval opens. `context` shows all of it."""
    alone: tuple[str, ...] = ("it is not known to be harmless",)
    """Why "approve all" leaves the call out; empty if it is known to be harmless."""
    for_people: bool = False
    """Whether only a person may answer, neither a model nor the engine: the question covers several
    calls, a secret would leave, or the operator asks who named a target."""
    signing: SignatureNeed | None = None
    """The signatures that an approval needs; `None` means that any reviewer may answer."""
    caller: Caller | None = None
    """Who makes the call; see `Operation.caller`."""
    candidates: tuple[Pattern, ...] = ()
    """The grants that an approval may remember. An answer names one by its index."""
    fingerprint: str
    """SHA-256 over server, tool and arguments."""
    policy_version: str
    created: datetime
    """Aware, UTC."""
    deadline: datetime
    """Aware, UTC; after it the call is refused."""

    def chosen(self, remember: Candidate | int | None) -> Pattern | None:
        """The candidate that an approval names; None: none, or an unknown one.

        `True` is no index.
        """
        if isinstance(remember, Candidate):
            return next((one for one in self.candidates if one == remember), None)
        if isinstance(remember, bool) or not isinstance(remember, int):
            return None
        return self.candidates[remember] if 0 <= remember < len(self.candidates) else None

    @property
    def why(self) -> str:
        """The first sentence of the question: what leaves or is lost, else the ground."""
        return self.told[0] if self.told else self.ground.reason

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origins of the review, without duplicates."""
        return tuple([reason.origin for reason in self.reasons]) or ("policy",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """An explicit, valid and timely approval of exactly this escalation."""

    by: Decider = HUMAN
    reasoning: str = ""
    remember: Candidate | int | None = None
    """One of the escalation's candidates, or its index; None: approved once, nothing remembered."""
    question: EscalationId | None = None
    """The escalation that was answered, where a call joined an earlier question."""
    note: str = ""
    """The reviewer's message to the agent."""
    details: tuple[tuple[str, Json], ...] = field(default=(), compare=False)
    """Additional record fields, such as the engine's findings."""
    revocable: bool = False
    """The approval holds only if the call can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """A refusal, an invalid answer, or no answer in time."""

    by: Decider = HUMAN
    kind: Literal["denied", "expired", "invalid", "withdrawn", "limit"] = "denied"
    """`invalid`: the answer could not be accepted. `withdrawn`: the agent cancelled the call.
    `limit`: nobody was asked, because too many questions of this session are open."""
    reason: str = ""
    """The reason why an answer was invalid, for the record and the operator."""
    note: str = ""
    question: EscalationId | None = None
    """See `Approved.question`."""
    details: tuple[tuple[str, Json], ...] = field(default=(), compare=False)
    """See `Approved.details`."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No reviewer could be asked: the call is refused at once."""

    details: tuple[tuple[str, Json], ...] = field(default=(), compare=False, kw_only=True)
    """Additional record fields: the opinion of a reviewer that passed the question on."""


class Held(Struct, frozen=True):
    """A call returned to the agent while its escalation stays open. The agent may repeat it."""

    id: EscalationId


class AlreadyUsed(Struct, frozen=True):
    """The approval was used by an identical call that had joined the same question."""


class Superseded(Struct, frozen=True):
    """Another policy came into force while the call waited: it has to be judged again."""


Ruling: TypeAlias = Approved | Declined | Unreachable
"""The end of asking about an escalation."""
