"""Files at control places: what is read of one, and how directories are opened on the way to it.

This module reads files and changes none.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.control_places.rules import ControlKind

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PASSED: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
"""Needs no right to read the directory: others' directories on the way may only be passed."""
_LARGEST: Final = 1 << 20
_EXECUTABLE: Final = 0o111
_STATX: Final = getattr(ctypes.CDLL(None), "statx", None)
"""The system call that tells when a file was made; None: the C library is older than 2018."""
_STATX_BYTES, _BORN_AT, _WANT_BORN, _NO_FOLLOW, _FROM_ROOT = 256, 80, 0x800, 0x100, -100

Inode: TypeAlias = tuple[int, int]
"""The device and the number of a file."""
FileKind: TypeAlias = ControlKind | Literal["led-to"]
"""`led-to`: no control place by its name, but settings of git or a link lead to it."""


class ControlFile(Struct, frozen=True):
    """The state of one file."""

    content: bytes | None
    """The content, or the target of a link; None: too large to be kept, or not readable."""
    mode: int = 0
    signature: tuple[int, ...] = ()
    """The stamp of a file whose content is not kept: inode, size and times."""
    links: int = 1
    is_link: bool = False

    def is_same(self, other: "ControlFile | None") -> bool:
        """Return whether the content is certainly the same, and no more programs may run it."""
        if other is None or (self.is_link, self.content) != (other.is_link, other.content):
            return False
        if self.content is None and (not self.signature or self.signature != other.signature):
            return False
        return not self.mode & ~other.mode & _EXECUTABLE


class Found(Struct, frozen=True):
    """A control place that exists, as a file, a link, or a hidden directory as a whole."""

    path: str
    kind: FileKind
    anchor: str
    """The outermost directory that belongs to it alone, such as a repository's `.git` or
    `.claude`; for a file that stands alone, the directory that holds it."""
    inode: Inode
    """The anchor's. What is known of a place moves with it."""
    is_whole: bool
    """Whether nothing but control places and their data lies in the anchor."""

    @property
    def inner(self) -> str:
        """The path in the anchor."""
        return self.path[len(self.anchor) + 1 :]

    @property
    def key(self) -> tuple[Inode, str]:
        """The name under which its state is known: a pointer means something else elsewhere."""
        if self.kind == "pointer":
            return (0, 0), self.path
        return self.inode, self.inner


def read_control_file(path: str) -> ControlFile | None:
    """Return the current state of a file; None: it is not there."""
    try:
        with opened(path.rpartition("/")[0]) as parent:
            return _read(parent, path.rpartition("/")[2])
    except FileNotFoundError:
        return None
    except OSError:
        # A server may have closed the directory, and may open it again.
        return ControlFile(None)


def _read(directory: int, name: str) -> ControlFile:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(os.readlink(name, dir_fd=directory))
        return ControlFile(target, links=status.st_nlink, is_link=True)
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        links = 1 if stat.S_ISDIR(status.st_mode) else status.st_nlink
        return ControlFile(None, stat.S_IMODE(status.st_mode), stamp, links)
    file = os.open(name, _OPEN, dir_fd=directory)
    try:
        content = os.read(file, _LARGEST + 1)
        kept = content if len(content) <= _LARGEST else None
        return ControlFile(kept, stat.S_IMODE(status.st_mode), stamp, status.st_nlink)
    finally:
        os.close(file)


class ClosedIdentity(Struct, frozen=True, array_like=True):
    """A file, which no other one is taken for."""

    inode: int
    born: tuple[int, int]
    """The time at which it was made, which only the kernel sets; zeros: it is not known. A file
    system gives a free inode to the next file: two saves later it is back at the same path."""


def identity_of(path: str) -> ClosedIdentity | None:
    """Return what identifies a file; None: it is not there."""
    inode = inode_of(path)
    return None if inode is None else ClosedIdentity(inode[1], _born(path))


def _born(path: str) -> tuple[int, int]:
    """Return the time at which a file was made, in seconds and nanoseconds."""
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if _STATX is None or _STATX(_FROM_ROOT, os.fsencode(path), _NO_FOLLOW, _WANT_BORN, found) != 0:
        return 0, 0
    (given,) = struct.unpack_from("=I", found)
    return struct.unpack_from("=qI", found, _BORN_AT) if given & _WANT_BORN else (0, 0)


def inode_of(path: str) -> Inode | None:
    """Return the identity of a file; None: it is not there."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if not stat.S_ISFIFO(status.st_mode) else (0, 0)


def has_one_name(path: str) -> bool:
    """Return whether a closed file cannot be written under another name."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) or status.st_nlink == 1


def shown(path: str) -> str:
    """Return a path on one line: a server may have chosen its name."""
    return "".join([c if c.isprintable() else f"\\x{ord(c):02x}" for c in path])


@contextmanager
def opened(directory: str) -> Iterator[int]:
    """Open a directory without following any link, because a server may exchange links.

    Raises:
        OSError: there is none, or a link is on the way.
    """
    descriptor = os.open("/", _PASSED)
    try:
        for name in directory.split("/"):
            if name:
                inner = os.open(name, _PASSED, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
