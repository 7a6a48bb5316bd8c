"""The mailbox's directory, and how files in it are read, written and watched for.

Both sides use it. Knows nothing of what the files say. Everything goes through a descriptor of the
directory: a link put in its place later leads nowhere.
"""

import errno
import logging
import os
import stat
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.inotify import InotifyQueue
from ironcurtain_proxy.private_files import make_private_directory

_log: Final = logging.getLogger(__name__)

_PRIVATE: Final = 0o600
_TAKEN: Final = 0o400
_CHUNK: Final = 1 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_REMEDY: Final = "name a directory that only you can write"


class UnacceptableFileError(Exception):
    """A file is there and must not be believed; the message says why, in a few words."""


class MailboxDirectory:
    """One open mailbox directory."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._fd = descriptor
        self._end = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def open(cls, path: Path, *, create: bool) -> "MailboxDirectory":
        """Open it, made private if we made it, or refuse it.

        One that was there stays as it is, and others may be able to list it: it may be anybody's
        (`/tmp`, `/proc`), and the files in it are ours alone.

        Raises:
            FileNotFoundError: it does not exist, and `create` is False.
            ConfigurationError: it is a link, another user's, writable by others, or cannot be made.
        """
        try:
            if create:
                make_private_directory(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if create:
                raise ConfigurationError(_unusable(path, "cannot be made")) from None
            raise
        except OSError as error:
            raise ConfigurationError(_unusable(path, _why_not_opened(path, error))) from None
        try:
            _secure(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this very directory."""
        with suppress(OSError):
            return os.path.samestat(self.path.lstat(), os.fstat(self._fd))
        return False

    def close(self) -> None:
        """Give the descriptor back; harmless if repeated."""
        self._end()

    def names(self) -> list[str]:
        """Return the names of all that is in it."""
        return os.listdir(self._fd)  # noqa: PTH208  a descriptor, not a path

    def has(self, name: str) -> bool:
        """Return whether something of that name is there, whatever it is."""
        with suppress(OSError):
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            return True
        return False

    def modified_ns(self, name: str) -> tuple[int, int] | None:
        """Return the inode and time of a file, which change with it.

        It is None if there is no file.
        """
        with suppress(OSError):
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            return found.st_ino, found.st_mtime_ns
        return None

    @contextmanager
    def opened(self, name: str, limit: int) -> Iterator[int]:
        """Open a file that is ours, regular, no link, and no larger than `limit` bytes.

        Raises:
            FileNotFoundError: it is not there.
            UnacceptableFileError: it is there and something else.
        """
        try:
            descriptor = os.open(name, _READ, dir_fd=self._fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            link = error.errno in (errno.ELOOP, errno.EMLINK)
            raise UnacceptableFileError(
                "is a symbolic link" if link else f"cannot be read: {error.strerror}"
            ) from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise UnacceptableFileError("is not a regular file")
            if found.st_uid != os.geteuid():
                raise UnacceptableFileError("belongs to another user")
            if found.st_size > limit:
                raise UnacceptableFileError(f"is larger than {limit} bytes")
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of such a file.

        Raises:
            FileNotFoundError: it is not there.
            UnacceptableFileError: it is there and must not be believed.
        """
        with self.opened(name, limit) as descriptor:
            return content(descriptor, limit)

    def write(self, name: str, raw: bytes) -> None:
        """Write a file of ours, whole or not at all, over what may be there.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        with self._written(name, raw) as (temporary, _):
            os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def put(self, name: str, raw: bytes) -> int:
        """Write a file, but never over an existing one: the first answer is the only one.

        Returns:
            A descriptor of the file, for the caller to close.

        Raises:
            FileExistsError: there is one.
            OSError: it could not be written.
        """
        with self._written(name, raw) as (temporary, descriptor):
            kept = os.dup(descriptor)
            try:
                self._name(temporary, name)
            except BaseException:
                os.close(kept)
                raise
            return kept

    def _name(self, temporary: str, name: str) -> None:
        try:
            os.link(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Without hard links nothing can refuse to overwrite: as near as it gets.
            if self.has(name):
                raise FileExistsError(errno.EEXIST, "exists", name) from None
            os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    @contextmanager
    def _written(self, name: str, raw: bytes) -> Iterator[tuple[str, int]]:
        temporary = f".{name}.{os.getpid()}.{os.urandom(6).hex()}.tmp"
        descriptor = os.open(temporary, _CREATE, _PRIVATE, dir_fd=self._fd)
        try:
            _write_all(descriptor, raw)
            yield temporary, descriptor
        finally:
            os.close(descriptor)
            self.discard(temporary)

    def discard(self, name: str) -> bool:
        """Remove a file, or a link itself. True if nothing of that name is left."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return True
        except OSError:
            with suppress(OSError):
                os.rmdir(name, dir_fd=self._fd)
                return True
            return False
        return True

    def clear(self, name: str) -> bool:
        """Make a name free: what cannot be removed, such as a full directory, is moved away."""
        if self.discard(name):
            return True
        aside = f".{name}.{os.getpid()}.{os.urandom(6).hex()}.tmp"
        with suppress(OSError):
            os.rename(name, aside, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            return True
        return False

    def discard_ours(self, name: str) -> None:
        """Remove a file unless it is another user's."""
        with suppress(OSError):
            if os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_uid == os.geteuid():
                self.discard(name)


def mark_taken(descriptor: int) -> None:
    """Tell the writer of a response, who may still hold it open, that it was accepted in time.

    The sign is a mode of the file, because the writer can still read it from its open descriptor
    after the file was removed.
    """
    with suppress(OSError):
        os.fchmod(descriptor, _TAKEN)


def is_marked_taken(descriptor: int) -> bool:
    """Return whether the other side accepted it."""
    return stat.S_IMODE(os.fstat(descriptor).st_mode) == _TAKEN


def is_removed(descriptor: int) -> bool:
    """Return whether the file has no name left."""
    return os.fstat(descriptor).st_nlink == 0


def content(descriptor: int, limit: int) -> bytes:
    """Return all bytes of an open file.

    Raises:
        UnacceptableFileError: it has grown beyond the limit, or cannot be read.
    """
    parts: list[bytes] = []
    size = 0
    try:
        while part := os.read(descriptor, min(_CHUNK, limit + 1)):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise UnacceptableFileError(f"is larger than {limit} bytes")
    except OSError as error:
        raise UnacceptableFileError(f"cannot be read: {error.strerror}") from None
    return b"".join(parts)


def temporary_writer(name: str) -> int | None:
    """Return the process that was writing a temporary file of ours.

    It is None if it is no such file.
    """
    parts = name.rsplit(".", 3)
    if not name.startswith(".") or len(parts) != 4 or parts[3] != "tmp":  # noqa: PLR2004
        return None
    return int(parts[1]) if parts[1].isascii() and parts[1].isdigit() else None


def _secure(path: Path, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        raise ConfigurationError(_unusable(path, "belongs to another user"))
    mode = stat.S_IMODE(found.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        # Tightening it would not undo what others may have put there.
        raise ConfigurationError(_unusable(path, "can be written by other users"))


def _why_not_opened(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return "is a symbolic link"
    if error.errno == errno.ENOTDIR:
        return "is not a directory"
    return f"cannot be used: {error.strerror}"


def _unusable(path: Path, what: str) -> str:
    return f"escalation directory {path} {what}; {_REMEDY}"


def _write_all(descriptor: int, raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


# --- watching -----------------------------------------------------------------------------------


_SECONDS: Final = 1.0
"""Seconds without a change after which an empty set is returned."""
_PAUSE: Final = 0.001
"""Seconds between two looks, where changes go on, as those of a log beside the mailbox do."""
_RETRY_SECONDS: Final = 0.25


async def watch_directory(path: Path, stop: anyio.Event) -> AsyncGenerator[set[str], None]:
    """Yield the names of made or changed files in the directory; an empty set every second.

    Where it cannot be watched (no more watches left, a strange file system), only an empty set
    comes: whoever reads this looks for himself then. Ends when `stop` is set.
    """
    why: object = "the system has no watch for it"
    try:
        with closing(InotifyQueue()) as watch:
            if watch.add(str(path), contents=True):
                while not stop.is_set():
                    await _until_something_happens(watch.descriptor, stop)
                    yield watch.names()
                    await anyio.sleep(_PAUSE)
                return
    except OSError as error:
        why = None if error.errno == errno.ENOSYS else error
    if why is not None:
        _log.warning("%s cannot be watched and is polled: %s", path, why)
    with anyio.move_on_after(_RETRY_SECONDS):
        await stop.wait()
    yield set()


async def _until_something_happens(descriptor: int, stop: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:

        async def until_stopped() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(until_stopped)
        with anyio.move_on_after(_SECONDS):
            await anyio.wait_readable(descriptor)
        tasks.cancel_scope.cancel()
