"""The score of a session's place: its directory, branch and variables against the required ones.

The score is the share that the session earns of the points that the requirements are worth. Without
requirements it earns none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.model.path import RealPath

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


@dataclass(frozen=True, slots=True)
class ContextScore:
    """Points earned, of points possible."""

    earned: int = 0
    possible: int = 0

    def exceeds(self, hundredths: int) -> bool:
        """Whether it is above so many hundredths, exactly; without requirements it never is."""
        return self.possible > 0 and self.earned * 100 > hundredths * self.possible

    @property
    def hundredths(self) -> int:
        """The score from 0 to 100, rounded down."""
        return self.earned * 100 // self.possible if self.possible > 0 else 0


NO_CONTEXT: Final = ContextScore()
"""The score where nothing is required."""


def context_score(*, required: WorkContext, actual: WorkContext) -> ContextScore:
    """An exact directory 100, above it 50, below it 25; each variable 20; the branch 30."""
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
