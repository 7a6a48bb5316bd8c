"""The current state of a path, with a copy of its content.

Everything is opened by its name in an open directory, without following links or blocking on pipes.
A file that changes while it is read, or is unreadable, is `lost`: it exists and is not held.
"""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import Final

from ironcurtain_proxy.snapshots.timeline.blobs import Blobs, is_sparse
from ironcurtain_proxy.snapshots.timeline.entry import Entry, EntryKind

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TICK_NS: Final = 20_000_000
"""Two changes this close together may have the same time in the file system."""
_TRIES: Final = 3
_SMALL: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
CHANGING: Final = "it changed while it was read"


class FullError(Exception):
    """A store of copies without free space."""


class Reader:
    """Reads paths, and copies their contents."""

    def __init__(self, blobs: Blobs, largest: int) -> None:
        """Copy files up to a size, in bytes."""
        self._blobs = blobs
        self._largest = largest
        self.copied = 0
        """Bytes of copied files, including contents that were held already."""

    def read(self, parent: int, name: str, found: os.stat_result) -> tuple[Entry, bool]:
        """The state, and whether it must be read again although it seems unchanged.

        Args:
            parent: a descriptor of the directory.
            name: the name in it.
            found: what the system says of it.

        Raises:
            FileNotFoundError: it is gone.
            FullError: no space is left for a copy.
        """
        mode = found.st_mode
        if stat.S_ISREG(mode):
            return self._file(parent, name, found)
        recent = _is_recent(found, time.time_ns())
        if stat.S_ISDIR(mode):
            return _entry("directory", found, "", _attributes_of_directory(parent, name)), False
        if stat.S_ISLNK(mode):
            try:
                return _entry("link", found, os.readlink(name, dir_fd=parent)), recent
            except FileNotFoundError:
                raise
            except OSError:
                return _entry("lost", found, CHANGING), True
        if stat.S_ISFIFO(mode):
            return _entry("pipe", found, ""), recent
        return _entry("special", found, "it is a socket or a device"), recent

    def is_unchanged(self, parent: int, name: str, entry: Entry) -> bool:
        """Return True if a file of at most a MiB still has the content of its copy."""
        if entry.size > _SMALL:
            return False
        try:
            descriptor = os.open(name, _READ, dir_fd=parent)
        except OSError:
            return False
        try:
            data = os.read(descriptor, _SMALL + 1)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return hashlib.sha256(data).hexdigest() == entry.content

    def unheld(self, found: os.stat_result, why: str) -> Entry:
        """The state of a path that exists and is not held."""
        return _entry("lost", found, why)

    def _file(self, parent: int, name: str, found: os.stat_result) -> tuple[Entry, bool]:
        for _ in range(_TRIES):
            if min(found.st_size, found.st_blocks * 512) > self._largest:
                return _entry("lost", found, "it is too large"), False
            started = time.time_ns()
            try:
                descriptor = os.open(name, _READ, dir_fd=parent)
            except FileNotFoundError:
                raise
            except OSError as error:
                return _entry("lost", found, f"it cannot be read: {error.strerror}"), False
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    return _entry("lost", found, CHANGING), True
                entry = self._copied(descriptor, before)
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            if _moment(before) == _moment(after):
                return entry, _is_recent(after, started)
            found = after
        return _entry("lost", found, CHANGING), True

    def _copied(self, descriptor: int, found: os.stat_result) -> Entry:
        try:
            content, taken = self._blobs.add(descriptor, found.st_size, sparse=is_sparse(found))
            attributes = _attributes(descriptor)
        except OSError as error:
            if error.errno in _FULL:
                raise FullError from None
            return _entry("lost", found, f"it cannot be read: {error.strerror}")
        self.copied += taken
        return _entry("file", found, content, attributes)._replace(size=taken)


def _attributes(descriptor: int) -> tuple[tuple[str, str], ...]:
    if not hasattr(os, "listxattr"):
        return ()
    try:
        names = os.listxattr(descriptor)
        return tuple([(name, os.getxattr(descriptor, name).hex()) for name in sorted(names)])
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return ()
        raise


def _attributes_of_directory(parent: int, name: str) -> tuple[tuple[str, str], ...]:
    """The attributes, such as access lists; none where they cannot be read."""
    try:
        descriptor = os.open(name, _READ | os.O_DIRECTORY, dir_fd=parent)
    except OSError:
        return ()
    try:
        return _attributes(descriptor)
    except OSError:
        return ()
    finally:
        os.close(descriptor)


def _moment(found: os.stat_result) -> tuple[int, int]:
    return found.st_ctime_ns, found.st_size


def _is_recent(found: os.stat_result, started: int) -> bool:
    """Whether a later change could leave the time unchanged; also for a time in the future."""
    return found.st_ctime_ns > started - _TICK_NS


def _entry(
    kind: EntryKind,
    found: os.stat_result,
    content: str,
    attributes: tuple[tuple[str, str], ...] = (),
) -> Entry:
    return Entry(
        kind,
        stat.S_IMODE(found.st_mode),
        0 if kind in ("directory", "special", "lost") else found.st_size,
        found.st_ino,
        1 if kind == "directory" else found.st_nlink,
        found.st_ctime_ns,
        found.st_mtime_ns,
        content,
        attributes,
    )


def is_as_seen(entry: Entry, found: os.stat_result) -> bool:
    """Whether the system reports the same state as at the scan."""
    return (
        entry.ctime_ns == found.st_ctime_ns
        and entry.inode == found.st_ino
        and entry.mode == stat.S_IMODE(found.st_mode)
        and is_kind(entry.kind, found.st_mode)
    )


def is_kind(kind: EntryKind, mode: int) -> bool:
    """Whether a mode is one of this kind; anything may be `lost`."""
    test = _TESTS.get(kind)
    return test is None or test(mode)


_TESTS: Mapping[EntryKind, Callable[[int], bool]] = {
    "file": stat.S_ISREG,
    "directory": stat.S_ISDIR,
    "link": stat.S_ISLNK,
    "pipe": stat.S_ISFIFO,
}
