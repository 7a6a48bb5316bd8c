"""What a file tree looks like. Pure: no I/O, no clock, no log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ironcurtain_proxy.snapshots.places import Parts

SnapshotEntryKind: TypeAlias = Literal["file", "directory", "link", "other"]
"""`other`: a socket, a pipe, a device. A snapshot never holds one; a call may leave one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEntry:
    """One path that exists."""

    kind: SnapshotEntryKind
    mode: int
    """The permissions, 0 to 0o7777; of a link always 0."""
    group: int
    modified_ns: int
    size: int
    """Bytes of a file; else 0."""
    content: str
    """Of a file the digest of its content, of a link its target, of a directory nothing.

    Of what was not read: what changes when it does. That is never equal to a digest.
    """

    def is_same(self, other: "SnapshotEntry | None") -> bool:
        """Whether both are the same but for their time of change."""
        return other is not None and self.essence == other.essence

    @property
    def essence(self) -> tuple[SnapshotEntryKind, int, int, str]:
        """All but the time."""
        return self.kind, self.mode, self.group, self.content


SnapshotTree: TypeAlias = Mapping[Parts, SnapshotEntry]
"""All that exists at and below some places. What is not in it does not exist."""


def is_same(one: SnapshotEntry | None, other: SnapshotEntry | None) -> bool:
    """Whether both are absent, or the same but for the time."""
    return other is None if one is None else one.is_same(other)
