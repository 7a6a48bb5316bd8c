"""What a command changed in its view, and the steps that bring it into the workspace. Pure."""

from typing import Literal, TypeAlias

from msgspec import Struct

StepAct: TypeAlias = Literal["make", "swap", "remove", "mode"]
"""`make`: nothing is there, and the new entry is renamed into place, a directory with all that it
holds. `swap`: the new entry and the one that is there change places in one step. `remove`: what is
there is taken away. `mode`: a directory gets another mode."""
ReportedKind: TypeAlias = Literal["created", "changed", "deleted", "mode"]


class EntryIdentity(Struct, frozen=True, array_like=True):
    """What an entry was when it was looked at: enough to see that it is another one by now.

    The time of the last change of the inode is left out, because every rename sets it.
    """

    inode: int
    mode: int
    size: int
    mtime_ns: int


class Step(Struct, frozen=True, array_like=True):
    """One step, which the kernel does whole or not at all."""

    act: StepAct
    path: bytes
    """Below the workspace, such as `src/a.py`: any bytes but NUL."""
    before: EntryIdentity | None
    """What is in the workspace, or None if there is nothing."""
    after: EntryIdentity | None
    """What comes from the view, or None if there is nothing."""


class Reported(Struct, frozen=True, array_like=True):
    """A changed path, for people and records."""

    path: bytes
    kind: ReportedKind


class KeptBack(Struct, frozen=True, array_like=True):
    """A change that did not come into the workspace, and why."""

    path: bytes
    why: str

    def __str__(self) -> str:
        return f"{self.path.decode('utf-8', 'backslashreplace')} ({self.why})"


class Changes(Struct, frozen=True, kw_only=True):
    """All that a command changed, sorted into what comes into the workspace and what does not."""

    steps: tuple[Step, ...] = ()
    changed: tuple[Reported, ...] = ()
    """What comes into the workspace: each file, link and directory."""
    kept_back: tuple[KeptBack, ...] = ()
    """Control places."""
    conflicts: tuple[KeptBack, ...] = ()
    """What somebody else changed in the workspace while the command ran."""
    left_out: tuple[KeptBack, ...] = ()
    """What no file system may hold for others: devices, sockets, pipes, set-uid programs."""
    copied: tuple[bytes, ...] = ()
    """Second names of one file, of which each became a file of its own."""
    judged_as: dict[bytes, frozenset[str]] = {}
    """The directories of the workspace that were looked into, and which of the names that decide
    about repositories they held."""

    moved: dict[bytes, tuple[bytes, ...]] = {}
    """By the paths to which files of the workspace were moved, the steps that take them away."""

    @property
    def is_nothing(self) -> bool:
        """Whether the command changed nothing at all."""
        return not (self.steps or self.kept_back or self.conflicts or self.left_out)


class RefusedChangesError(Exception):
    """Raised where the changes as a whole cannot come into the workspace. The message says why."""
