"""Points in time of the workspace, and what changed between them."""

from dataclasses import dataclass
from typing import Literal, NewType, TypeAlias

from ironcurtain_proxy.model.path import RealPath

PointId = NewType("PointId", str)
"""The name of a point, such as `12`: its place in the timeline of its workspace."""

ChangeKind: TypeAlias = Literal["created", "changed", "deleted", "mode"]
"""What became of a path. `changed`: its content, or what it is; `mode`: nothing but its mode."""


@dataclass(frozen=True, slots=True)
class NotHeld:
    """The workspace as it is cannot be held, so that a call could not be taken back."""

    reason: str
    """For the operator and the record, in one line; names no path."""


@dataclass(frozen=True, slots=True, order=True)
class Unheld:
    """A path that could not be brought back if a call deleted it."""

    path: RealPath
    why: str
    """In a few words, such as `it is too large`."""

    def __str__(self) -> str:
        name = str(self.path).encode("utf-8", "backslashreplace").decode()
        return f"{name} ({self.why})"


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """What became of one path."""

    path: str
    """Below the workspace, such as `src/a.py`; bytes that are no text the way `os.fsdecode` gives
    them."""
    kind: ChangeKind
