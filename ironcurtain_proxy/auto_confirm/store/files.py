"""The SQLite file: private, owned by this user, in its place, and written only by SQLite."""

import errno
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.private_files import make_private_directory

# --- the file of SQLite ---------------------------------------------------------------------------
# Checks that an open SQLite file still has its name, and that only SQLite wrote to it.
#
# Writes to an open file that has lost its name are lost. And SQLite caches pages, so it does not
# see what another program writes over the file.


Identity: TypeAlias = tuple[int, int]
"""Device and inode, which identify a file without its name."""

_LOG: Final = "-wal"
_INDEX: Final = "-shm"
_SET_ASIDE: Final = ".replaced"
_INDEX_BYTES: Final = 132
_SALTS: Final = slice(32, 40)
_BACKFILL: Final = 96
_ATTEMPTED: Final = 128
"""Offsets in the log's index, see "WAL-mode File Format" of SQLite: which log it is, how much of it
was copied into the file, and how much is being copied."""

_DESCRIPTORS: Final = "/proc/self/fd"

_Copied: TypeAlias = tuple[bytes, int, int]


def identity(path: Path) -> Identity | None:
    """Return the identity of the file at a path, or None if there is none."""
    with suppress(OSError):
        found = path.lstat()
        return found.st_dev, found.st_ino
    return None


class OpenFile(Struct):
    """An opened SQLite file."""

    path: Path
    main: Identity
    log: Identity | None = None
    """The last used write-ahead log. `None` means none yet."""
    _seen: tuple[tuple[int, int], _Copied] | None = None
    """The file's size and time at the last check, and the part of the log copied into it."""
    _descriptor: int = -1
    """SQLite's own, of the log's index, the last time it was read."""

    def log_now(self) -> Identity | None:
        """Return the identity of the write-ahead log beside the file."""
        return identity(self._beside(_LOG))

    def is_in_place(self) -> bool:
        """Return whether the name still leads to the file."""
        return identity(self.path) == self.main

    def was_overwritten(self) -> bool:
        """Return whether another program than SQLite wrote to the file since the last check.

        SQLite writes there only when it copies its log, which the log's index shows before and
        after. A changed time alone looks the same, so the caller then checks the whole file.
        """
        before, found = self._copied(), self._state()
        if before is None or before != self._copied() or before[1] != before[2]:
            # There is no log, or it is being copied.
            return False
        seen, self._seen = self._seen, (found, before)
        return seen is not None and seen[1] == before and seen[0] != found

    def _state(self) -> tuple[int, int]:
        with suppress(OSError):
            found = self.path.stat()
            return found.st_size, found.st_mtime_ns
        return 0, 0

    def _copied(self) -> _Copied | None:
        """Return the copied part of the log, from its index, or None if unknown.

        Read through SQLite's own descriptor: to close another one of the same file would release
        the locks of this process on it.
        """
        index = identity(self._beside(_INDEX))
        if index is None:
            return None
        if not _is_open_as(self._descriptor, index):
            self._descriptor = _found_open(index)
        with suppress(OSError):
            return _read_index(os.pread(self._descriptor, _INDEX_BYTES, 0))
        return None

    def set_remains_aside(self) -> None:
        """Take the log of a file that was replaced out of its successor's way.

        SQLite would replay it there, and so damage the successor. Only the very log that was in use
        is taken away: the successor may have one of its own by now.

        Raises:
            StoreError: it cannot be taken away.
        """
        if not self.is_in_place() and self.path.exists():
            self._set_log_aside()

    def discard_log(self) -> None:
        """Take away the log of a file whose content is another now.

        It is emptied as well: another process that still has it open, and closes it last, would
        copy it into the file.

        Raises:
            StoreError: it cannot be taken away.
        """
        self._set_log_aside(empty=True)

    def _set_log_aside(self, *, empty: bool = False) -> None:
        if self.log is None or self.log_now() != self.log:
            return
        try:
            for suffix in (_INDEX, _LOG):
                beside = self._beside(suffix)
                with suppress(FileNotFoundError):
                    beside.rename(beside.with_name(beside.name + _SET_ASIDE))
            if empty:
                os.truncate(self._beside(_LOG + _SET_ASIDE), 0)
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"{self.path}: its log cannot be taken away: {why}") from None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def _is_open_as(descriptor: int, wanted: Identity) -> bool:
    with suppress(OSError):
        found = os.fstat(descriptor)
        return (found.st_dev, found.st_ino) == wanted
    return False


def _found_open(wanted: Identity) -> int:
    """Return the descriptor of a file in this process, or -1 if there is none or no list."""
    with suppress(OSError):
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208  names are numbers
            if _is_open_as(int(name), wanted):
                return int(name)
    return -1


def _read_index(head: bytes) -> _Copied | None:
    if len(head) < _INDEX_BYTES:
        return None
    backfill, attempted = [
        int(struct.unpack_from("=I", head, offset)[0]) for offset in (_BACKFILL, _ATTEMPTED)
    ]
    return head[_SALTS], backfill, attempted


_PRIVATE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700
STORE_NAME: Final = "interactions.db"
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""SQLite makes these with the permissions of the database itself."""


def prepare_file(path: Path, *, create: bool, own_directory: bool) -> OpenFile:
    """Ensure that the database is a private file of this user; make an empty one if needed.

    Args:
        path: absolute.
        create: whether it may be made, and its directory.
        own_directory: whether the directory is only ours, to be closed to others.

    Returns:
        Which file it is.

    Raises:
        StoreError: it is a link, no file or another user's, or it cannot be made or written.
    """
    try:
        if create:
            make_private_directory(path.parent)
        if own_directory:
            _secure_directory(path.parent)
        opened = OpenFile(path, _secure_file(path, create=create))
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                _secure_file(path.with_name(path.name + suffix), create=False)
        return opened
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise StoreError(f"{path}: {_reason(error)}") from None


def reused_file(path: Path) -> OpenFile:
    """Check a file that this process may have open, without opening it.

    To close any descriptor of a file releases all locks of the process on it, including those of
    another thread's transaction.

    Raises:
        StoreError: it is not there, a link, no file or another user's.
    """
    try:
        found = path.lstat()
        _refuse_what_is_not_ours(path, found)
        if stat.S_IMODE(found.st_mode) != _PRIVATE:
            path.chmod(_PRIVATE)
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise StoreError(f"{path}: {_reason(error)}") from None
    return OpenFile(path, (found.st_dev, found.st_ino))


def _missing(path: Path) -> StoreError:
    reason = "there is no such store: the auto-confirm engine has not run, or it was removed"
    return StoreError(f"{path}: {reason}")


def _reason(error: OSError) -> str:
    if error.errno in {errno.ELOOP, errno.EMLINK}:
        return "is a symbolic link; the store must be a file of its own"
    return f"cannot be used as the store: {error.strerror or error}"


def _secure_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise StoreError(f"{directory}: belongs to another user, who could replace the store")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, _PRIVATE_DIRECTORY)
    finally:
        os.close(descriptor)


def _secure_file(path: Path, *, create: bool) -> Identity:
    # With O_CREAT the mode holds from the start; the umask can only remove more.
    descriptor = os.open(path, _FLAGS | (os.O_CREAT if create else 0), _PRIVATE)
    try:
        found = os.fstat(descriptor)
        _refuse_what_is_not_ours(path, found)
        if stat.S_IMODE(found.st_mode) != _PRIVATE:
            os.fchmod(descriptor, _PRIVATE)
        return found.st_dev, found.st_ino
    finally:
        os.close(descriptor)


def _refuse_what_is_not_ours(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path}: is not a regular file")
    if found.st_uid != os.geteuid():
        raise StoreError(f"{path}: belongs to another user, who could change its content")
