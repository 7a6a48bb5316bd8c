"""The SQLite file: private from its creation, and owned by this user."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.auto_confirm.store.faults import StoreError
from ironcurtain_proxy.auto_confirm.store.open_file import Identity, OpenFile
from ironcurtain_proxy.private_files import make_private_directory

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
        own_directory: whether the directory is ours alone, to be closed to others.

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
