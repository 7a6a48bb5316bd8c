"""Points in time of the workspace, and the changes between them."""

from typing import Literal, NewType, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.path import RealPath

PointId = NewType("PointId", str)
"""The name of a point, such as `12`: its index in the timeline of its workspace."""

ChangeKind: TypeAlias = Literal["created", "changed", "deleted", "mode"]
"""The kind of change at a path. `changed`: its content or file type; `mode`: only its mode."""


class NotHeld(Struct, frozen=True):
    """The workspace cannot be recorded as it is, so a call could not be undone."""

    reason: str
    """One line for the operator and the record, without paths."""


class PathNotHeld(Struct, frozen=True, order=True):
    """A path that could not be brought back if a call deleted it."""

    path: RealPath
    why: str
    """The reason in a few words, such as `it is too large`."""

    def __str__(self) -> str:
        name = str(self.path).encode("utf-8", "backslashreplace").decode()
        return f"{name} ({self.why})"


class Change(Struct, frozen=True, order=True):
    """The change at one path."""

    path: str
    """The path below the workspace, such as `src/a.py`; bytes that are not UTF-8 as `os.fsdecode`
    gives them."""
    kind: ChangeKind
