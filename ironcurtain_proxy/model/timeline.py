"""Changes of the workspace: points in time, and what a command left in its view.

Points in time of the workspace, and the changes between them.

What a command of our own shell changed in its view, before it comes into the workspace.
"""

from typing import Literal, NewType, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.values import RealPath

# --- timeline


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


# --- view


class NotTaken(Struct, frozen=True):
    """A change that does not come into the workspace."""

    path: str
    """Below the workspace, as `os.fsdecode` gives it."""
    why: str

    def __str__(self) -> str:
        name = self.path.encode("utf-8", "backslashreplace").decode()
        return f"{name} ({self.why})"


class ViewChanges(Struct, frozen=True, kw_only=True):
    """The changes that are prepared in a view."""

    paths: tuple[str, ...]
    """Each changed path below the workspace; a directory stands for all that is in it."""
    kept_back: tuple[NotTaken, ...]
    """Control places, which need an approval of their own."""
    others: tuple[NotTaken, ...]
    """What does not come into the workspace for another reason."""
