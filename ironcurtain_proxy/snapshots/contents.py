"""The content of files: read once, through a descriptor, and named by its digest.

The digest is that of a git blob in a repository with SHA-256, so that a copy in a directory and an
object in a repository have the same name.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Protocol

from ironcurtain_proxy.snapshots.faults import RollbackError, SnapshotError

DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CHUNK: Final = 1 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = 0o600
_SYNCED_TOGETHER: Final = 16
"""Files; the disk takes hardly longer for them than for one."""


class ContentReader(Protocol):
    """What is done with the content of a file that is walked over."""

    def read(self, descriptor: int, found: os.stat_result) -> str:
        """Read it.

        Returns:
            Its digest, or what stands for it.

        Raises:
            SnapshotError: it cannot be held.
            OSError: it cannot be read or written.
        """
        ...


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a content lies in an open file."""

    descriptor: int
    offset: int
    size: int

    def copy(self, digest: str, write: Callable[[bytes], object]) -> None:
        """Hand it on in parts.

        Raises:
            RollbackError: it is not what the digest says; some of it was handed on.
            OSError: it cannot be read or written.
        """
        os.lseek(self.descriptor, self.offset, os.SEEK_SET)
        seen = hashlib.sha256(_header(self.size))
        left = self.size
        while left and (part := os.read(self.descriptor, min(_CHUNK, left))):
            left -= len(part)
            seen.update(part)
            write(part)
        if left or seen.hexdigest() != digest:
            raise RollbackError("what was held is damaged")


class Contents:
    """What is held, by its digest: files of a directory, or parts of one that is open."""

    def __init__(self, directory: Path, extents: Mapping[str, Extent]) -> None:
        self._directory = directory
        self._extents = extents

    def copy(self, digest: str, write: Callable[[bytes], object]) -> None:
        """Hand one on in parts.

        Raises:
            RollbackError: it is not what the digest says; some of it was handed on.
            OSError: it cannot be read or written.
        """
        extent = self._extents.get(digest)
        if extent is not None:
            extent.copy(digest, write)
            return
        descriptor = os.open(self._directory / digest, _READ)
        try:
            Extent(descriptor, 0, os.fstat(descriptor).st_size).copy(digest, write)
        finally:
            os.close(descriptor)


class CopyBudget:
    """How many bytes may still be held."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> None:
        """Count these.

        Raises:
            SnapshotError: that is more than is left.
        """
        if size > self._left:
            raise SnapshotError("what the call may change is too large to be kept")
        self._left -= size


class Digesting:
    """Reads to compare: what is beyond the budget is known by its inode and times instead."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def read(self, descriptor: int, found: os.stat_result) -> str:
        """The digest, or what changes when the file does."""
        if found.st_size > self._left:
            return unread(found)
        self._left -= found.st_size
        try:
            return copied(descriptor, found.st_size, _nowhere)
        except (SnapshotError, OSError):
            return unread(found)


class Keeping:
    """Copies each content into a directory, once."""

    def __init__(self, directory: Path, budget: CopyBudget) -> None:
        self._directory = directory
        self._budget = budget
        self._kept: set[str] = set()

    def read(self, descriptor: int, found: os.stat_result) -> str:
        """Copy it."""
        self._budget.take(found.st_size)
        incoming = self._directory / "incoming"
        target = os.open(incoming, _CREATE, _PRIVATE)
        try:
            digest = copied(descriptor, found.st_size, lambda part: write_all(target, part))
        finally:
            os.close(target)
        incoming.replace(self._directory / digest)
        self._kept.add(digest)
        return digest

    def sync(self) -> None:
        """Have all of it on the disk before anybody relies on it."""
        with ThreadPoolExecutor(_SYNCED_TOGETHER) as pool:
            for _ in pool.map(self._sync, sorted(self._kept)):
                pass
        sync_directory(self._directory)

    def _sync(self, digest: str) -> None:
        descriptor = os.open(self._directory / digest, _READ)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Streaming:
    """Writes each content into a stream for `git fast-import`."""

    def __init__(self, stream: IO[bytes], budget: CopyBudget) -> None:
        self._stream = stream
        self._budget = budget
        self._count = 0
        self.marks: dict[str, int] = {}
        """Under which number a digest was written."""

    def read(self, descriptor: int, found: os.stat_result) -> str:
        """Write it."""
        self._budget.take(found.st_size)
        self._begin(found.st_size)
        digest = copied(descriptor, found.st_size, self._write)
        return self._end(digest)

    def add(self, content: bytes) -> int:
        """Write what was read already, such as where a link leads. Gives its number."""
        self._begin(len(content))
        self._write(content)
        digest = self._end(hashlib.sha256(_header(len(content)) + content).hexdigest())
        return self.marks[digest]

    def _begin(self, size: int) -> None:
        self._count += 1
        self._write(b"blob\nmark :%d\ndata %d\n" % (self._count, size))

    def _end(self, digest: str) -> str:
        self._write(b"\n")
        self.marks[digest] = self._count
        return digest

    def _write(self, part: bytes) -> None:
        self._stream.write(part)


def copied(descriptor: int, size: int, write: Callable[[bytes], object]) -> str:
    """Hand on the whole content in parts, and give its digest.

    Raises:
        SnapshotError: there is more or less of it than `size` bytes.
    """
    digest = hashlib.sha256(_header(size))
    left = size
    # One byte more is asked for, to see that there is none.
    while part := os.read(descriptor, min(_CHUNK, left + 1)):
        left -= len(part)
        if left < 0:
            break
        digest.update(part)
        write(part)
    if left:
        raise changing()
    return digest.hexdigest()


def write_all(descriptor: int, part: bytes) -> None:
    """Write every byte."""
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(directory: Path) -> None:
    """Have the names in it on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unread(found: os.stat_result) -> str:
    """Stands for a content that was not read."""
    return f"unread {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def changing() -> SnapshotError:
    """Somebody is writing there."""
    return SnapshotError("what the call may change is being changed by somebody else")


def _header(size: int) -> bytes:
    return b"blob %d\0" % size


def _nowhere(_part: bytes) -> None:
    return None
