"""Copies of contents, each under its digest.

A copy is written beside and renamed, so that a copy with its final name is complete. No copy is a
hard link into the workspace, because a write in place would change it.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from ironcurtain_proxy.private_files import closed_after

_CHUNK: Final = 1 << 20
_BLOCK: Final = 1 << 16
_SPARSE: Final = "s"
"""The beginning of the digest of a file with holes."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = 0o600
_OURS: Final = 0o700


class Hash(Protocol):
    """The interface of a hash."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """The digest."""


class DamagedError(Exception):
    """A copy does not match its name, or is missing."""


class Blobs:
    """A directory of copies."""

    def __init__(self, directory: Path) -> None:
        """Use a directory, made where it is not there.

        Raises:
            OSError: it cannot be used.
        """
        self._directory = directory
        self._made: set[str] = set()
        self.stored = 0
        """The counted bytes of the copies."""
        directory.mkdir(_OURS, parents=True, exist_ok=True)
        self._temporary = str(directory / f"{os.getpid()}.tmp")
        self._discard()

    def has(self, digest: str) -> bool:
        """Whether there is a copy."""
        return os.path.exists(self._path(digest))  # noqa: PTH110  ten times as fast, asked often

    def add(self, descriptor: int, size: int, *, sparse: bool) -> tuple[str, int]:
        """Copy an open file, unless its content is held.

        Returns:
            Its digest, and how many bytes the copy takes.

        Raises:
            OSError: it cannot be read, or there is no space left. Nothing is left behind.
        """
        if not sparse and size <= _CHUNK:
            return self._add_small(descriptor)
        digest = hashlib.sha256()
        try:
            with closed_after(os.open(self._temporary, _CREATE, _PRIVATE)) as out:
                taken = (_copy_sparse if sparse else _copy)(descriptor, out, digest)
            name = f"{_SPARSE if sparse else ''}{digest.hexdigest()}"
            if not self.has(name):
                self.stored += taken
            self._name(name)
        except BaseException:
            self._discard()
            raise
        return name, taken

    def _add_small(self, descriptor: int) -> tuple[str, int]:
        parts = []
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
            if len(parts) > 4:  # noqa: PLR2004  it grows as fast as it is read
                raise OSError(errno.EBUSY, "grows while it is read")
        data = b"".join(parts)
        digest = hashlib.sha256(data).hexdigest()
        if not self.has(digest):
            try:
                with closed_after(os.open(self._temporary, _CREATE, _PRIVATE)) as out:
                    write_all(out, data)
                self._name(digest)
                self.stored += len(data)
            except BaseException:
                self._discard()
                raise
        return digest, len(data)

    def _name(self, digest: str) -> None:
        if digest[:2] not in self._made:
            (self._directory / digest[:2]).mkdir(_OURS, exist_ok=True)
            self._made.add(digest[:2])
        os.rename(self._temporary, self._path(digest))  # noqa: PTH104  once for each file

    def _discard(self) -> None:
        Path(self._temporary).unlink(missing_ok=True)

    def restore(self, digest: str, target: int) -> None:
        """Write a copy into an empty open file.

        Raises:
            DamagedError: it is not what was copied. Something has been written.
            OSError: it cannot be written.
        """
        try:
            source = os.open(self._path(digest), _READ)
        except FileNotFoundError:
            raise DamagedError from None
        try:
            made = hashlib.sha256()
            is_sparse_copy = digest.startswith(_SPARSE)
            (_copy_sparse if is_sparse_copy else _copy)(source, target, made)
            if made.hexdigest() != digest.removeprefix(_SPARSE):
                raise DamagedError
        finally:
            os.close(source)

    def read(self, digest: str) -> bytes:
        """Return the content of a copy.

        Raises:
            DamagedError: it is not what was copied.
            OSError: it cannot be read.
        """
        with open(os.memfd_create("copy"), "w+b") as file:  # noqa: PTH123  a descriptor
            self.restore(digest, file.fileno())
            file.seek(0)
            return file.read()

    def keep(self, needed: set[str]) -> None:
        """Remove unneeded copies, and remains of killed processes; count the others."""
        self.stored = 0
        for directory in self._directory.iterdir():
            if not directory.is_dir():
                if str(directory) != self._temporary:
                    directory.unlink(missing_ok=True)
                continue
            with os.scandir(directory) as found:
                for one in found:
                    if directory.name + one.name in needed:
                        found_size = one.stat()
                        self.stored += min(found_size.st_size, found_size.st_blocks * 512)
                    else:
                        Path(one.path).unlink()

    def _path(self, digest: str) -> str:
        return f"{self._directory}/{digest[:2]}/{digest[2:]}"


def is_sparse(found: os.stat_result) -> bool:
    """Whether a file has holes that are worth keeping."""
    return found.st_size > _BLOCK and found.st_blocks * 512 < found.st_size


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copy(source: int, target: int, digest: Hash) -> int:
    left = size = os.fstat(source).st_size
    while left > 0 and (part := os.read(source, min(_CHUNK, left))):
        digest.update(part)
        write_all(target, part)
        left -= len(part)
    return size - left


def _copy_sparse(source: int, target: int, digest: Hash) -> int:
    """Copy what is not zero, by blocks: where holes lie is a matter of the file system."""
    size = os.fstat(source).st_size
    digest.update(f"{size}\n".encode())
    taken = 0
    for start in _blocks(source, size):
        part = os.pread(source, _BLOCK, start)
        if part.count(0) != len(part):
            digest.update(f"{start}\n".encode())
            digest.update(part)
            os.lseek(target, start, os.SEEK_SET)
            write_all(target, part)
            taken += len(part)
    os.ftruncate(target, size)
    return taken


def _blocks(descriptor: int, size: int) -> Iterator[int]:
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        at = max(at, start - start % _BLOCK)
        while at < end:
            yield at
            at += _BLOCK
