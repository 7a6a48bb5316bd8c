"""Which changes of one transaction are control places, by path and, where it decides, by content.

`control_places.rules` judges paths. Three of its answers depend on what a file holds: a
configuration of git that only has harmless settings stays, and an index stays that leads git into
no other repository than before. An approved place stays whatever it holds.
"""

from collections.abc import Callable, Collection
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.control_places.git_index import UnreadableIndexError, gitlinks
from ironcurtain_proxy.control_places.git_settings import is_harmless
from ironcurtain_proxy.control_places.rules import (
    ControlKind,
    RelativeParts,
    control_of,
    looks_like_repository,
)

MOST_READ: Final = 256 << 20
"""The bytes of a file whose content decides. A larger one is kept back."""
_SHA256: Final = 32
_REPOSITORY_PARTS: Final = ("HEAD", "objects", "refs", "commondir")
"""The entries by which git knows a repository."""
_CONTROL_PARTS: Final = frozenset(
    {"config", "config.worktree", "hooks", "info", "modules", "worktrees", "commondir", "gitdir"}
    | {"branches", "remotes", "objects"}
)
"""What was data while its directory was no repository, and is control, or may hold it, after."""
_SAID: Final[dict[ControlKind, str]] = {
    "configuration": "a setting of git",
    "hook": "a program that git runs",
    "state": "a waiting rebase, merge or bisect, which git continues",
    "pointer": "a pointer that leads git elsewhere",
    "repository": "a repository of git's own",
    "acted-on": "a program of this machine acts on it",
    "hidden": "a new hidden name, of which nobody knows what acts on it",
}
_LINKED: Final = "an index that leads git into another repository"
_BECOMES: Final = "it would make a repository of what is there"


class Judged(Struct, frozen=True):
    """An entry of the view, as the rules need it."""

    parts: RelativeParts
    is_directory: bool
    is_link: bool
    settled: int
    """How many of the components from the left are in the workspace, too."""
    new: Callable[[], bytes | None]
    """Reads the entry in the view. None: it is no file, or too large."""
    before: Callable[[], bytes | None]
    """Reads what is in the workspace. None: it is no file, or there is none."""


class Control:
    """The control places of one transaction."""

    def __init__(self, approved: Collection[str] = ()) -> None:
        """Begin with the paths that a person approved, relative to the workspace."""
        self._approved = frozenset([tuple(path.split("/")) for path in approved])
        self._repositories: set[RelativeParts] = set()

    def enter(self, parts: RelativeParts, view: Collection[str], host: Collection[str]) -> bool:
        """Learn what a directory holds now, and held before.

        Args:
            parts: the directory.
            view: the repository's parts of `names_that_count` that are in the view.
            host: all names in the workspace; of these, what the view removed is not left out.

        Returns:
            Whether what is there becomes a repository that nobody has judged.
        """
        if not looks_like_repository(view):
            return False
        self._repositories.add(parts)
        was_one = looks_like_repository(host) or ".git" in [one.lower() for one in parts]
        return not was_one and not _CONTROL_PARTS.isdisjoint([one.lower() for one in host])

    def why_kept_back(self, entry: Judged) -> str | None:
        """Return why a change does not come into the workspace, or None if it does."""
        found = control_of(
            entry.parts,
            is_directory=entry.is_directory,
            is_link=entry.is_link,
            is_repository=self._repositories.__contains__,
            is_settled=lambda path: len(path) <= entry.settled or path in self._approved,
        )
        if found is None:
            return _why_index(entry) if entry.parts[-1].lower() == "index" else None
        if self._is_approved(entry.parts) or found.root in self._approved:
            return None
        if found.kind == "configuration" and _is_harmless_configuration(entry):
            return None
        return _SAID[found.kind]

    def _is_approved(self, parts: RelativeParts) -> bool:
        return any(parts[:end] in self._approved for end in range(1, len(parts) + 1))

    @property
    def becomes(self) -> str:
        """The reason to keep back what completes a repository."""
        return _BECOMES

    def is_in_repository(self, parts: RelativeParts) -> bool:
        """Return whether a path lies in a directory of git."""
        return any(
            parts[end].lower() == ".git" or parts[: end + 1] in self._repositories
            for end in range(len(parts))
        )


def names_that_count() -> tuple[str, ...]:
    """Return the names by which git takes a directory for a repository."""
    return _REPOSITORY_PARTS


def _is_harmless_configuration(entry: Judged) -> bool:
    if entry.parts[-1] != "config" or entry.is_link or entry.is_directory:
        return False
    new = entry.new()
    return new is not None and is_harmless(entry.before(), new)


def _why_index(entry: Judged) -> str | None:
    """Return why an index is kept back; None also for a file that only has the name of one."""
    if entry.is_directory or entry.is_link:
        return None
    new = entry.new()
    if new is None or not new.startswith(b"DIRC"):
        return None
    before = entry.before() or b""
    for length in (20, _SHA256):
        try:
            linked = gitlinks(new, hash_length=length)
        except UnreadableIndexError:
            continue
        try:
            known = gitlinks(before, hash_length=length)
        except UnreadableIndexError:
            known = frozenset()
        return None if linked <= known else _LINKED
    return "an index that cannot be read"
