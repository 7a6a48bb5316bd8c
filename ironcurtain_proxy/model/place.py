"""Where a shell command runs: what its paths and its repository are held against. Pure: no I/O."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command runs. All paths are absolute and free of links."""

    workspace: str | None = None
    directory: str | None = None
    """Where the shell starts; None: not known."""
    home: str | None = None
    writable: tuple[str, ...] = ()
    """What the sandbox lets a command write besides the workspace."""
    branch: str | None = None
    """The branch that is checked out."""
    push_to: tuple[str, str] | None = None
    """Remote and branch to which `git push` without operands would go."""
    has_repository: bool = False
    """The directory has a `.git` of its own. git takes its configuration from there; in any other
    directory it could take it from files that only look like a repository."""


NOWHERE: Final = Place()
"""A place of which nothing is known: no path in a command is known to be harmless there."""
