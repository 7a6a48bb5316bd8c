"""Places of the safety rules, and the paths in them.

Every path here is real, and paths are compared by components.
"""

import re
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.model.path import RealPath

TEMPORARY: Final = (RealPath(("tmp",)), RealPath(("private", "tmp")))
_HOMES: Final = RealPath(("home",))

_PROJECT_ROOT: Final = "project_root"
_SECRET: Final = re.compile(
    r"\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|\.htpasswd|\.pgpass|\.git-credentials|id_[a-z0-9]+"
    r"|.*\.(pem|key|p12|pfx|kdbx|jks|keystore)|.*(credential|secret|passw|token).*|shadow",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlaces:
    """The workspace and home of a session. Real paths."""

    workspace: RealPath | None = None
    """The workspace; None: every path lies outside."""
    home: RealPath | None = None

    def in_workspace(self, path: RealPath) -> bool:
        """Whether it is the workspace or lies in it."""
        return self.workspace is not None and path.is_within(self.workspace)

    def is_public(self, path: RealPath) -> bool:
        """Whether anyone in the project may read it: in the workspace, a home or /tmp.

        A name that looks like a secret is never public. Outside the workspace, a hidden file is not
        public either, such as a program's settings in a home.
        """
        if any(_SECRET.fullmatch(part) for part in path.parts):
            return False
        if self.in_workspace(path):
            return True
        bases = (*TEMPORARY, _HOMES) if self.home is None else (*TEMPORARY, _HOMES, self.home)
        return any(
            path.is_within(base)
            and not any(part.startswith(".") for part in path.parts[len(base.parts) :])
            for base in bases
        )


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
