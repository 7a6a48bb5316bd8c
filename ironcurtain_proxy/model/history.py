"""What a commit or a push would publish besides what the call itself says."""

from msgspec import Struct


class MadeCommit(Struct, frozen=True, kw_only=True):
    """A commit on the current branch."""

    id: str
    parent: str
    text: str
    """Its message."""
    paths: tuple[str, ...]
    """The files that differ from its parent's. Absolute."""
    new: tuple[str, ...]
    """Those among them that the parent does not have."""


class Unpublished(Struct, frozen=True, kw_only=True):
    """The state of the workspace's own repository, as git's objects have it."""

    head: str
    staged: tuple[str, ...] = ()
    """The files of the index that differ from the last commit. Absolute."""
    new: tuple[str, ...] = ()
    """Those among them that the last commit does not have."""
    commits: tuple[MadeCommit, ...] | None = ()
    """The commits of the current branch that nobody is known to have asked for, oldest first. None:
    they are too many, or there is a merge."""


UNCHANGED = Unpublished(head="")
"""Nothing is staged, and each commit was there or is asked for."""
