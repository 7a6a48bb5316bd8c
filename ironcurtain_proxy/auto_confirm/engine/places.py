"""Places of the safety rules, and the paths in them.

Every path here is real, and paths are compared by components.
"""

import re
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.credentials.table import is_credential
from ironcurtain_proxy.model.path import RealPath

TEMPORARY: Final = (RealPath(("tmp",)), RealPath(("private", "tmp")))

_HOMES: Final = RealPath(("home",))

_PROJECT_ROOT: Final = "project_root"
_TELLING: Final = re.compile(r".*(?:credential|secret|passw|token).*|id_[a-z0-9]+", re.IGNORECASE)
"""Names that may be those of secrets besides the table's. An approval needs to be sure."""


class FilesFound(Struct, frozen=True):
    """What the paths of a call are on the disk."""

    files: frozenset[RealPath] = frozenset()
    """Plain files with one name, neither directories nor sockets nor links."""
    own: frozenset[RealPath] = frozenset()
    """Entries of `/tmp` that this session made, or that do not exist yet."""


NOTHING_FOUND: Final = FilesFound()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlaces:
    """The workspace and home of a session, and what a call's paths are. Real paths."""

    workspace: RealPath | None = None
    """The workspace; None: every path lies outside."""
    home: RealPath | None = None
    found: FilesFound = NOTHING_FOUND

    def in_workspace(self, path: RealPath) -> bool:
        """Whether it is the workspace or lies in it."""
        return self.workspace is not None and path.is_within(self.workspace)

    def is_secret(self, path: RealPath) -> bool:
        """Return True if the file holds credentials by the table of all readers."""
        home = None if self.home is None else str(self.home)
        workspace = None if self.workspace is None else str(self.workspace)
        return is_credential(str(path), home, workspace)

    def is_public(self, path: RealPath) -> bool:
        """Whether anyone in the project may read it: in the workspace, the user's home or /tmp.

        A name that looks like a secret is never public. Outside the workspace, only a plain file is
        public that is not hidden, in the home, or in /tmp if this session made it: a directory
        shows what is hidden in it, and other files in /tmp are of other programs.
        """
        if self.is_secret(path) or any(map(_TELLING.fullmatch, path.parts)):
            return False
        if self.in_workspace(path):
            return True
        if path not in self.found.files:
            return False
        at_home = self.home is not None and path.is_within(self.home)
        return self.in_own_temporary(path) or (at_home and not _is_hidden(path, self.home))

    def is_of_others(self, path: RealPath) -> bool:
        """Return True for what other programs keep below /tmp, and for homes of other users."""
        if self.in_workspace(path) or (self.home is not None and path.is_within(self.home)):
            return False
        if path.is_within(_HOMES) or path in TEMPORARY:
            return True
        return in_temporary(path) and not self.in_own_temporary(path)

    def in_own_temporary(self, path: RealPath) -> bool:
        """Return True if it lies in what this session made below /tmp, and is not hidden there."""
        return (
            in_temporary(path)
            and any(path.is_within(one) for one in self.found.own)
            and not any(_is_hidden(path, base) for base in TEMPORARY if path.is_within(base))
        )


def _is_hidden(path: RealPath, base: RealPath | None) -> bool:
    below = path.parts[0 if base is None else len(base.parts) :]
    return any(part.startswith(".") for part in below)


def in_temporary(path: RealPath) -> bool:
    """Whether it lies below /tmp. The directory itself does not."""
    return any(path != base and path.is_within(base) for base in TEMPORARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SafePath:
    """A row of `safe_paths`: a directory in which an operation is nothing special."""

    path: str
    """`project_root/` is the workspace; a relative path lies in the workspace."""
    operation: str | None = None
    """The kind of operation; None: every operation."""

    def contains(self, path: RealPath, operation: str, places: SessionPlaces) -> bool:
        """Whether the safe path covers a real path for an operation, by whole components."""
        directory = self._directory(places)
        if directory is None or self.operation not in (None, operation):
            return False
        return path.is_within(directory)

    def _directory(self, places: SessionPlaces) -> RealPath | None:
        parts = tuple([part for part in self.path.split("/") if part])
        # A row with `..`, or an empty one, would make every path safe.
        if not parts or not {".", ".."}.isdisjoint(parts):
            return None
        if self.path.startswith("/"):
            return RealPath(parts)
        if places.workspace is None:
            return None
        below = parts[1:] if parts[0] == _PROJECT_ROOT else parts
        return RealPath(places.workspace.parts + below)
