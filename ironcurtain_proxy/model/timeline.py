"""Points in time of the workspace, and the changes between them."""

from dataclasses import dataclass
from typing import Literal, NewType, TypeAlias

PointId = NewType("PointId", str)
"""The name of a point, such as `12`: its index in the timeline of its workspace."""

ChangeKind: TypeAlias = Literal["created", "changed", "deleted", "mode"]
"""The kind of change at a path. `changed`: its content or file type; `mode`: only its mode."""


@dataclass(frozen=True, slots=True)
class NotHeld:
    """The workspace cannot be recorded as it is, so a call could not be undone."""

    reason: str
    """One line for the operator and the record, without paths."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """The change at one path."""

    path: str
    """The path below the workspace, such as `src/a.py`; bytes that are not UTF-8 as `os.fsdecode`
    gives them."""
    kind: ChangeKind
