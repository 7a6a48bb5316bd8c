"""The SQLite file: private from the first moment, and nobody else's."""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ironcurtain_proxy.store.faults import StoreError

_PRIVATE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""SQLite makes these with the permissions of the database itself."""


Identity: TypeAlias = tuple[int, int]
"""Device and inode: which file it is, whatever its name."""

_LOG: Final = "-wal"
_INDEX: Final = "-shm"
_SET_ASIDE: Final = ".replaced"


def identity(path: Path) -> Identity | None:
    """Which file lies at a path; None: there is none."""
    with suppress(OSError):
        found = path.lstat()
        return found.st_dev, found.st_ino
    return None


@dataclass(slots=True)
class OpenFile:
    """The SQLite file that was opened, to be told from one that is put in its place.

    An open descriptor goes on with a file that has lost its name: what is written there is lost.
    """

    path: Path
    main: Identity | None
    log: Identity | None = None
    """The write-ahead log that was last in use; None: none was yet."""

    def log_now(self) -> Identity | None:
        """Which write-ahead log lies beside the file."""
        return identity(self.path.with_name(self.path.name + _LOG))

    def is_in_place(self) -> bool:
        """Whether its name still leads to the file."""
        return self.main is not None and identity(self.path) == self.main

    def set_remains_aside(self) -> None:
        """Take the log of a file that was replaced out of its successor's way.

        SQLite would replay it there, and so damage the successor. Only the very log that was in use
        is taken away: the successor may have one of its own by now.

        Raises:
            StoreError: it cannot be taken away.
        """
        if self.is_in_place() or identity(self.path) is None:
            return
        if self.log is None or self.log_now() != self.log:
            return
        try:
            for suffix in (_INDEX, _LOG):
                beside = self.path.with_name(self.path.name + suffix)
                with suppress(FileNotFoundError):
                    beside.rename(beside.with_name(beside.name + _SET_ASIDE))
        except OSError as error:
            raise StoreError(f"{self.path}: {_reason(error)}") from None


def prepare_file(path: Path, *, create: bool, own_directory: bool) -> OpenFile:
    """See that the database is a file of ours that only we can read; make an empty one.

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
            _make_directory(path.parent)
        if own_directory:
            _secure_directory(path.parent)
        opened = OpenFile(path, _secure_file(path, create=create))
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                _secure_file(path.with_name(path.name + suffix), create=False)
        return opened
    except FileNotFoundError:
        reason = "there is no such store: the auto-confirm engine has not run, or it was removed"
        raise StoreError(f"{path}: {reason}") from None
    except OSError as error:
        raise StoreError(f"{path}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if error.errno in {errno.ELOOP, errno.EMLINK}:
        return "is a symbolic link; the store must be a file of its own"
    return f"cannot be used as the store: {error.strerror or error}"


def _make_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    if directory != directory.parent:
        _make_directory(directory.parent)
    with suppress(FileExistsError):
        directory.mkdir(_PRIVATE_DIRECTORY)


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
    # With O_CREAT the mode holds from the beginning; the umask can only take more away.
    descriptor = os.open(path, _FLAGS | (os.O_CREAT if create else 0), _PRIVATE)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{path}: is not a regular file")
        if found.st_uid != os.geteuid():
            raise StoreError(f"{path}: belongs to another user, who could change what it says")
        if stat.S_IMODE(found.st_mode) != _PRIVATE:
            os.fchmod(descriptor, _PRIVATE)
        return found.st_dev, found.st_ino
    finally:
        os.close(descriptor)
