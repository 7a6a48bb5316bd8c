"""Notes of the steering files at the start of a watch, for the start after a killed proxy.

At its end a proxy checks once more what its servers left. A killed proxy cannot. Files that a
process of a call made in the last moments would then count as the user's at the next start. So each
proxy notes the state at its start in its own directory, and removes the note at its end. The next
start with the same directories finds the note, and checks as the killed proxy would have done.

A note is locked while its proxy lives; the kernel releases the lock however the proxy dies. The
servers of the killed proxy can have made only what changed while it lived. The time of change tells
this, and only the kernel sets it.
"""

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.private_files import make_private_directory
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import ClosedIdentity, ControlFile, inode_of

NAME: Final = "watches"
"""The directory of notes in the state directory."""
BEAT: Final = 30.0
"""Seconds between two signs of life of a proxy."""
_LONGEST_SILENCE: Final = 120.0
"""Seconds after the last sign of life in which a killed proxy may have lived."""
_COARSE: Final = 2.0
"""Seconds to which a file system may round times."""
_LARGEST: Final = 16 << 20
_MOST: Final = 64
"""The most notes that are kept of directories that nobody starts in again."""
_SUFFIX: Final = ".watch"
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _NotedFile(Struct, frozen=True):
    anchor: bytes
    """The directory that it belongs to; empty: the path is absolute."""
    inner: bytes
    file: ControlFile


class _Content(Struct, frozen=True):
    began: float
    """Seconds since the epoch. What changed before is the user's."""
    roots: tuple[bytes, ...]
    files: tuple[_NotedFile, ...]
    settled: tuple[bytes, ...]
    closed: tuple[tuple[bytes, ClosedIdentity], ...]
    """What sandboxes closed, by its path."""


class WatchNote(Struct, eq=False):
    """The note of a living proxy."""

    path: str
    _file: int

    @classmethod
    def write(cls, directory: Path, lookout: ControlLookout) -> "WatchNote":
        """Write the note, before any server starts.

        Args:
            directory: the directory of all notes.
            lookout: has begun, and closed what it closes.

        Raises:
            OSError: it cannot be written.
            ValueError: there is too much to be noted.
        """
        make_private_directory(directory)
        new = directory / f"{os.getpid()}-{os.urandom(6).hex()}"
        file = os.open(new, _NEW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The kernel's clock gives all times that this one is compared with.
            text = _text(os.fstat(file).st_mtime - _COARSE, lookout)
            with os.fdopen(os.dup(file), "wb") as writer:
                writer.write(text)
            # A note is whole and locked from the moment it has its name.
            path = new.with_suffix(_SUFFIX)
            new.rename(path)
        except (OSError, ValueError):
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        return cls(str(path), file)

    def beat(self) -> None:
        """Show that the proxy lives."""
        with suppress(OSError):
            os.utime(self._file)

    def drop(self) -> None:
        """Remove the note after the proxy's last check."""
        with suppress(OSError):
            Path(self.path).unlink()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class AbandonedNote(Struct, frozen=True):
    """The note of a killed proxy."""

    path: str
    roots: tuple[str, ...]
    """The directories that still exist."""
    began: float
    until: float
    """The last second since the epoch in which the proxy can have lived."""
    content: _Content | None
    """None: it cannot be read."""

    def resume(self, lookout: ControlLookout) -> None:
        """Begin a watch with the noted state of what still exists."""
        if self.content is not None:
            for one in self.content.files:
                anchor = os.fsdecode(one.anchor)
                inode = inode_of(anchor) if anchor else (0, 0)
                if inode is not None:
                    lookout.known[inode, os.fsdecode(one.inner)] = one.file
                    if anchor:
                        lookout.places[inode] = anchor
            lookout.settled.update(map(os.fsdecode, self.content.settled))
            for path, identity in self.content.closed:
                lookout.closed_files[os.fsdecode(path)] = identity
        lookout.resume()

    def is_of_the_user(self, path: str, _file: ControlFile) -> bool:
        """Whether a file has changed last when no server of the killed proxy ran."""
        try:
            changed = os.lstat(path).st_ctime
        except OSError:
            return False
        return not self.began <= changed <= self.until


def _text(began: float, lookout: ControlLookout) -> bytes:
    files = [
        _NotedFile(os.fsencode(lookout.places.get(inode, "")), os.fsencode(inner), file)
        for (inode, inner), file in lookout.known.items()
    ]
    closed = [(os.fsencode(path), one) for path, one in lookout.closed_files.items()]
    content = _Content(
        began,
        tuple(map(os.fsencode, lookout.roots)),
        tuple(files),
        tuple(map(os.fsencode, sorted(lookout.settled))),
        tuple(closed),
    )
    text = msgspec.msgpack.encode(content)
    if len(text) > _LARGEST:
        raise ValueError("there is too much that steers git or an agent")
    return text


@contextmanager
def abandoned(directory: Path, roots: Sequence[str]) -> Iterator[tuple[AbandonedNote, ...]]:
    """The notes of killed proxies whose servers could write in or around some directories.

    They are locked meanwhile, and removed afterwards unless an error comes.

    Args:
        directory: of all notes.
        roots: absolute and real.
    """
    with ExitStack() as locks:
        found: list[AbandonedNote] = []
        left: list[str] = []
        for path in _paths(directory):
            file = _locked(path)
            if file is None:
                continue
            locks.callback(os.close, file)
            note = _read(path, file)
            if any(map(_overlap, _pairs(note.roots, roots))) or note.content is None:
                found.append(note)
            else:
                left.append(path)
        yield tuple(found)
        for path in [one.path for one in found] + left[:-_MOST]:
            with suppress(OSError):
                Path(path).unlink()


def _paths(directory: Path) -> list[str]:
    """The notes, the oldest first."""
    try:
        with os.scandir(directory) as entries:
            notes = [one for one in entries if one.name.endswith(_SUFFIX)]
            return [one.path for one in sorted(notes, key=lambda one: one.stat().st_mtime)]
    except OSError:
        return []


def _locked(path: str) -> int | None:
    """An abandoned note, opened; None: its proxy lives, or somebody else handles it."""
    with ExitStack() as undo, suppress(OSError):
        file = os.open(path, _OPEN)
        undo.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.lstat(path)):
            undo.pop_all()
            return file
    return None


def _read(path: str, file: int) -> AbandonedNote:
    until = os.fstat(file).st_mtime + _LONGEST_SILENCE
    try:
        with os.fdopen(os.dup(file), "rb") as reader:
            content = msgspec.msgpack.decode(reader.read(_LARGEST + 1), type=_Content)
    except (OSError, ValueError, RecursionError):
        return AbandonedNote(path, (), 0.0, until, None)
    roots = tuple([root for one in content.roots if _is_there(root := os.fsdecode(one))])
    return AbandonedNote(path, roots, content.began, until, content)


def _is_there(root: str) -> bool:
    return os.path.isdir(root) and os.path.realpath(root) == root  # noqa: PTH112  text


def _pairs(some: Sequence[str], others: Sequence[str]) -> Iterator[tuple[RealPath, RealPath]]:
    for one in some:
        for other in others:
            yield RealPath.from_text(one), RealPath.from_text(other)


def _overlap(pair: tuple[RealPath, RealPath]) -> bool:
    one, other = pair
    return one.is_within(other) or other.is_within(one)
