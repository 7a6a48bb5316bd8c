"""The engine's input: a call, the score of its place, and the knowledge about its session.

INVARIANT: only the call comes from the agent. The session's type and health, the queue and the time
come from the proxy and the operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ironcurtain_proxy.auto_confirm.engine.patterns import (
    NOTHING_FOUND,
    ApprovalPattern,
    FilesFound,
    Party,
    SafePath,
    SessionPlaces,
    SessionType,
)
from ironcurtain_proxy.model.escalation import Origin
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.values import Arguments, RealPath

# --- the score of a session's place ---------------------------------------------------------------
# The score of a session's place: its directory, branch and variables against the required ones.
#
# The score is the share that the session earns of the points that the requirements are worth.
# Without requirements it earns none.


_DIRECTORY: Final = 100
_PARENT: Final = 50
_CHILD: Final = 25
_VARIABLE: Final = 20
_BRANCH: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """A place of work: as the operator requires it, or as the proxy found it."""

    directory: RealPath | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    branch: str | None = None


class ContextScore(Struct, frozen=True):
    """Points earned, of points possible."""

    earned: int = 0
    possible: int = 0

    def exceeds(self, hundredths: int) -> bool:
        """Return whether the score is above so many hundredths, False without requirements."""
        return self.possible > 0 and self.earned * 100 > hundredths * self.possible

    @property
    def hundredths(self) -> int:
        """The score from 0 to 100, rounded down."""
        return self.earned * 100 // self.possible if self.possible > 0 else 0


NO_CONTEXT: Final = ContextScore()
"""The score where nothing is required."""


def context_score(*, required: WorkContext, actual: WorkContext) -> ContextScore:
    """Score the place: directory 100 if exact, 50 above, 25 below, each variable 20, branch 30."""
    earned = possible = 0
    if required.directory is not None:
        possible += _DIRECTORY
        earned += _directory_points(required.directory, actual.directory)
    for name, value in required.environment.items():
        possible += _VARIABLE
        earned += _VARIABLE if actual.environment.get(name) == value else 0
    if required.branch is not None:
        possible += _BRANCH
        earned += _BRANCH if actual.branch == required.branch else 0
    return ContextScore(earned, possible)


def _directory_points(required: RealPath, actual: RealPath | None) -> int:
    if actual is None:
        return 0
    if actual == required:
        return _DIRECTORY
    if required.is_within(actual):
        return _PARENT
    return _CHILD if actual.is_within(required) else 0


SessionHealth: TypeAlias = Literal["well", "normal", "stuck", "failing", "unknown"]
"""The health of a session. `unknown`: the proxy has no record of it."""

Hundredths: TypeAlias = int
"""A score from 0 to 100. Scores are integers, so that sums meet borders such as 0.7 exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One call that the policy or the overlay escalated."""

    id: str
    request: AccessRequest
    arguments: Arguments
    """The arguments to send. Untrusted: their words can only raise the risk."""
    command_operation: str | None = None
    """The operation of a shell command, as parsed, or None if the tool takes no command."""
    command_branches: tuple[str, ...] | None = None
    """The refspecs that this command commits and pushes to, `HEAD` for the current branch; None:
    not known."""
    session: str
    session_type: SessionType
    origins: tuple[Origin, ...]
    """The origins of the escalation. Never empty: the engine decides on escalated calls only."""
    sandboxed: bool = False
    """Whether the server's process is confined."""
    snapshot: bool = False
    """Whether a point was made, so that the call can be undone."""
    workspace: RealPath | None = None
    home: RealPath | None = None
    found: FilesFound = NOTHING_FOUND
    """What the paths are on the disk. Nothing known: no path outside the workspace is approved."""
    branch: str | None = None
    """The current branch of the repository that the call works in. `None` means not known."""
    context: ContextScore = NO_CONTEXT
    """The score of the session's place against the requirements of its task."""
    provider_mismatch: bool = False
    """The session's model or provider is not the one the operator registered."""
    unusual: bool = False
    """No earlier call did this."""

    @property
    def places(self) -> SessionPlaces:
        """The session's places, for the comparison of paths."""
        return SessionPlaces(workspace=self.workspace, home=self.home, found=self.found)

    @property
    def requester(self) -> Party:
        """The asking session."""
        return Party(session=self.session, session_type=self.session_type)


class ApproveRate(Struct, frozen=True):
    """Decisions of people and reviewers on one operation and scope.

    Decisions of the engine and the auto-approver do not count: the engine would feed itself.
    """

    approved: int
    decided: int

    def exceeds(self, hundredths: Hundredths) -> bool:
        """Return whether there are enough decisions, and the rate is above this."""
        return self.decided > _ENOUGH and self.approved * 100 > hundredths * self.decided


_ENOUGH = 3


class InteractionHistory(Struct, frozen=True, kw_only=True):
    """Recent work in all sessions of this user."""

    operations: Mapping[str, int] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The number of approvals of each operation."""
    directories: frozenset[RealPath] = frozenset()
    """The directories of approved calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The engine's knowledge at the time of a question."""

    moment: datetime
    """Aware, in the operator's own time zone: night is a matter of place."""
    patterns: tuple[ApprovalPattern, ...] = ()
    safe_paths: tuple[SafePath, ...] = ()
    approve_rates: Mapping[tuple[str, str], ApproveRate] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The approve rates by operation and scope, spelled as in `CallSubject`."""
    queue_depth: int = 0
    """Pending reviews of other sessions, which an agent cannot increase for itself."""
    health: SessionHealth = "unknown"
    earlier_failures: int = 0
    """Calls of this session that failed lately."""
    history: InteractionHistory = field(default_factory=InteractionHistory)
    context_similarity: Hundredths = 100
    """The similarity of the call to earlier work."""
    testing: bool = False
    deployment: bool = False
    """The operator said that a testing window, or a deployment, is under way."""
