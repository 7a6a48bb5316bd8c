"""What the engine is asked, and what it is told besides.

INVARIANT: but for the call itself nothing here comes from the agent. Who the session is, how
it is doing, how long the queue is and what time it is comes from the proxy and the operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal, TypeAlias

from ironcurtain_proxy.auto_confirm.engine.context_score import NO_CONTEXT, ContextMatch
from ironcurtain_proxy.auto_confirm.engine.patterns import ApprovalPattern
from ironcurtain_proxy.auto_confirm.engine.places import SafePath, SessionPlaces
from ironcurtain_proxy.auto_confirm.engine.sessions import Party, SessionType
from ironcurtain_proxy.model.escalation import Origin
from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest

SessionHealth: TypeAlias = Literal["well", "normal", "stuck", "failing", "unknown"]
"""How a session is doing. `unknown`: the proxy has no record of it."""

Hundredths: TypeAlias = int
"""0 to 100. Scores are never floats: 0.7 is a border that a sum must not miss by a rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One call that the policy or the overlay escalated."""

    id: str
    request: AccessRequest
    arguments: Arguments
    """What would be sent. Untrusted: its words can only raise the risk."""
    command_operation: str | None = None
    """For a tool that takes a shell command: what the parser says the command does."""
    command_branches: tuple[str, ...] | None = None
    """The refspecs that this command commits and pushes to, `HEAD` for the current branch; None:
    not known."""
    session: str
    session_type: SessionType
    origins: tuple[Origin, ...]
    """What asked for a review. Never empty: the engine is asked about nothing else."""
    sandboxed: bool = False
    """Whether the server's process is really confined."""
    snapshot: bool = False
    """Whether what the call changes was saved, so that it can be undone."""
    workspace: RealPath | None = None
    home: RealPath | None = None
    branch: str | None = None
    """The current branch of the repository that the call works in; None: not known."""
    context: ContextMatch = NO_CONTEXT
    provider_mismatch: bool = False
    """The session's model or provider is not the one the operator registered."""
    unusual: bool = False
    """It does what was never done before."""

    @property
    def places(self) -> SessionPlaces:
        """What its paths are compared with."""
        return SessionPlaces(workspace=self.workspace, home=self.home)

    @property
    def requester(self) -> Party:
        """Who asks."""
        return Party(session=self.session, session_type=self.session_type)


@dataclass(frozen=True, slots=True)
class ApproveRate:
    """How people and reviewers decided about one operation on one scope.

    Decisions of the engine and of the auto-approver are never counted: it would feed itself.
    """

    approved: int
    decided: int

    def exceeds(self, hundredths: Hundredths) -> bool:
        """Whether there is enough to go by, and the rate is above."""
        return self.decided > _ENOUGH and self.approved * 100 > hundredths * self.decided


_ENOUGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionHistory:
    """What was done lately, in all sessions of this user."""

    operations: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How often each was approved."""
    directories: frozenset[RealPath] = frozenset()
    """Those of what was approved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The state of things when the engine is asked."""

    moment: datetime
    """Aware, in the operator's own time zone: night is a matter of place."""
    patterns: tuple[ApprovalPattern, ...] = ()
    safe_paths: tuple[SafePath, ...] = ()
    approve_rates: Mapping[tuple[str, str], ApproveRate] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By operation and scope, as `Subject.operation` and `Subject.scope` spell them."""
    queue_depth: int = 0
    """Pending reviews of other sessions: an agent cannot lengthen it for itself."""
    health: SessionHealth = "unknown"
    earlier_failures: int = 0
    """Calls of this session that failed lately."""
    history: InteractionHistory = field(default_factory=InteractionHistory)
    context_similarity: Hundredths = 100
    """How much the call looks like earlier work."""
    testing: bool = False
    deployment: bool = False
    """The operator said that a testing window, or a deployment, is under way."""
    held_risks: tuple[Hundredths, ...] = ()
    """The risk of each call of this session that is held."""
