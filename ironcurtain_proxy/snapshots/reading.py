"""Paths as they are, read with a copy of their content, and files as they are made.

Everything is opened by its name in an open directory, without following links or blocking on pipes.
A file that changes while it is read, or is unreadable, is `lost`: it exists and is not held.

A call may leave a process behind that writes in the workspace while a rollback runs. So nothing is
made there under a name that it could foresee. The place is a private directory beside the timeline,
which no sandbox can write to; where that lies on another file system, the place is the target's own
directory and the name is random. A name is given and taken by an exchange: what stood there is
looked at afterwards, and goes back if it is not what was expected.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from sys import byteorder
from typing import Final, NamedTuple, TypeAlias

from ironcurtain_proxy.private_files import closed_after, opened_to_owner
from ironcurtain_proxy.snapshots.history import Entry, EntryKind
from ironcurtain_proxy.snapshots.log import Blobs, is_sparse
from ironcurtain_proxy.snapshots.opening import DIRECTORY, OpenedRoot

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
        self.opens = False
        """Whether files that are closed to us are opened for a moment, where they are ours."""
        self.copied = 0
        """Bytes of copied files, including contents that were held already."""

    def read(self, parent: int, name: str, found: os.stat_result) -> tuple[Entry, bool]:
        """Return the state, and whether it must be read again although it seems unchanged.

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
        """Return the state of a path that exists and is not held."""
        return _entry("lost", found, why)

    def _file(self, parent: int, name: str, found: os.stat_result) -> tuple[Entry, bool]:
        for _ in range(_TRIES):
            if min(found.st_size, found.st_blocks * 512) > self._largest:
                return _entry("lost", found, "it is too large"), False
            started = time.time_ns()
            try:
                with opened_to_owner(parent, name) if self.opens else nullcontext():
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
    """Return the attributes, such as access lists; none where they cannot be read."""
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
    """Return whether a later change could leave the time unchanged.

    Also for a time in the future.
    """
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
    """Return whether the system reports the same state as at the scan."""
    return (
        entry.ctime_ns == found.st_ctime_ns
        and entry.inode == found.st_ino
        and entry.mode == stat.S_IMODE(found.st_mode)
        and is_kind(entry.kind, found.st_mode)
    )


def is_kind(kind: EntryKind, mode: int) -> bool:
    """Return whether a mode is one of this kind; anything may be `lost`."""
    test = _TESTS.get(kind)
    return test is None or test(mode)


_TESTS: Mapping[EntryKind, Callable[[int], bool]] = {
    "file": stat.S_ISREG,
    "directory": stat.S_ISDIR,
    "link": stat.S_ISLNK,
    "pipe": stat.S_ISFIFO,
}


# --- staging


IsExpected: TypeAlias = Callable[[os.stat_result | None], bool]
"""Whether what stands under a name may be taken away, or None if nothing stands there."""

_OURS: Final = 0o700
_NO_REPLACE, _EXCHANGE = 1, 2
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""The requests `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS` of Linux."""
_LOCKED: Final = 0x10 | 0x20
"""The flags `immutable` and `append only`."""


class InTheWayError(Exception):
    """Something else stands under a name than the last look saw there."""


class StagedName(NamedTuple):
    """A name that nobody knows, in an open directory."""

    directory: int
    name: str


class Staging:
    """The place for files that have no name in the workspace yet."""

    def __init__(self, directory: Path, root: OpenedRoot) -> None:
        """Use a directory of the timeline, where it shares the workspace's file system.

        Raises:
            OSError: it cannot be used.
        """
        self._path = directory / "staging"
        self._path.mkdir(_OURS, exist_ok=True)
        # A rollback that was killed left them.
        for left in self._path.iterdir():
            if not left.name.startswith("aside-"):
                left.unlink()
        self._descriptor = os.open(self._path, DIRECTORY)
        self._is_private = os.fstat(self._descriptor).st_dev == root.device
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._can_exchange = hasattr(self._libc, "renameat2")

    def place(self, parent: int) -> StagedName:
        """Return a free name for what will stand in this directory."""
        where = self._descriptor if self._is_private else parent
        return StagedName(where, f".ironcurtain-{secrets.token_hex(12)}")

    def share_nothing(self) -> None:
        """Stage in the workspace from now on, because the private directory is mounted apart."""
        self._is_private = False

    @property
    def is_private(self) -> bool:
        """Whether nobody else can reach what is staged."""
        return self._is_private

    def put(
        self, staged: StagedName, made: os.stat_result, parent: int, name: str, expected: IsExpected
    ) -> None:
        """Give a staged file its name, in the place of what is expected there.

        Raises:
            InTheWayError: something else stood there, and stands there again; or the staged file
                was exchanged.
            OSError: the file system refused.
        """
        present = _status(parent, name)
        if not expected(present):
            raise InTheWayError
        if present is None:
            self._rename(staged, StagedName(parent, name), _NO_REPLACE)
        elif self._can_exchange:
            self._swap(staged, parent, name, present)
        else:
            os.rename(staged.name, name, src_dir_fd=staged.directory, dst_dir_fd=parent)
        self.discard(staged)
        found = _status(parent, name)
        if found is None or not os.path.samestat(found, made):
            raise InTheWayError

    def _swap(self, staged: StagedName, parent: int, name: str, present: os.stat_result) -> None:
        target = StagedName(parent, name)
        try:
            self._rename(staged, target, _EXCHANGE)
        except FileNotFoundError:
            raise InTheWayError from None
        if not _is_still(present, _status(*staged)):
            self._rename(staged, target, _EXCHANGE)
            raise InTheWayError

    def take(self, parent: int, name: str, expected: IsExpected) -> None:
        """Remove a file that is what is expected.

        Raises:
            InTheWayError: it is something else, and stays.
            OSError: the file system refused.
        """
        present = _status(parent, name)
        if present is None:
            return
        if not expected(present):
            raise InTheWayError
        if not self._is_private:
            os.unlink(name, dir_fd=parent)
            return
        staged = self.place(parent)
        try:
            self._rename(StagedName(parent, name), staged, _NO_REPLACE)
        except FileNotFoundError:
            return
        if not _is_still(present, _status(*staged)):
            self._rename(staged, StagedName(parent, name), _NO_REPLACE)
            raise InTheWayError
        os.unlink(staged.name, dir_fd=staged.directory)

    def move_aside(self, parent: int, name: str) -> str:
        """Move a directory away that holds what the timeline does not. Returns where it is now.

        Raises:
            OSError: the file system refused.
        """
        aside = self.place(parent)._replace(name=f"aside-{secrets.token_hex(6)}")
        if not self._is_private:
            aside = aside._replace(name=f".ironcurtain-{aside.name}")
        self._rename(StagedName(parent, name), aside, _NO_REPLACE)
        return str(self._path / aside.name) if self._is_private else aside.name

    def discard(self, staged: StagedName) -> None:
        """Remove what stands under a staged name."""
        with suppress(FileNotFoundError):
            os.unlink(staged.name, dir_fd=staged.directory)

    def _rename(self, source: StagedName, target: StagedName, flag: int) -> None:
        if self._can_exchange:
            done = self._libc.renameat2(
                ctypes.c_int(source.directory),
                ctypes.c_char_p(os.fsencode(source.name)),
                ctypes.c_int(target.directory),
                ctypes.c_char_p(os.fsencode(target.name)),
                ctypes.c_uint(flag),
            )
            if done == 0:
                return
            number = ctypes.get_errno()
            if number == errno.EEXIST:
                raise InTheWayError
            if number not in (errno.ENOSYS, errno.EINVAL):
                raise OSError(number, os.strerror(number))
            self._can_exchange = False
        if flag == _NO_REPLACE and _status(*target) is not None:
            raise InTheWayError
        os.rename(
            source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory
        )

    def close(self) -> None:
        """Give the descriptor back, and the directory unless something was moved aside there."""
        os.close(self._descriptor)
        with suppress(OSError):
            self._path.rmdir()


def unlock(parent: int, name: str) -> bool:
    """Clear the flags that keep a file, or names in its directory, from changing.

    Root alone may do that, and root alone may have set them. Returns False if there were none.
    """
    cleared = False
    for path in (name, "."):
        with (
            suppress(OSError),
            closed_after(os.open(path, _READ, dir_fd=parent)) as descriptor,
        ):
            flags = int.from_bytes(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(8)), byteorder)
            if flags & _LOCKED:
                left = (flags & ~_LOCKED).to_bytes(8, byteorder)
                fcntl.ioctl(descriptor, _SET_FLAGS, left)
                cleared = True
    return cleared


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_still(present: os.stat_result, found: os.stat_result | None) -> bool:
    """Return whether a renamed file is the one that was looked at: a rename sets its ctime."""
    if found is None or not os.path.samestat(present, found):
        return False
    was, now = [(one.st_mode, one.st_size, one.st_mtime_ns) for one in (present, found)]
    return was == now
