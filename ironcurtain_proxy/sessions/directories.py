"""The session directories in `~/.ironcurtain/sessions`: their locks, and the removal of old ones.

A running proxy holds a shared lock (flock) on its session's directory itself: no file in the
directory can imitate it, and it ends with the process. A directory is removed under an exclusive
lock. All access goes through descriptors, because servers could write in these directories and
may have left links there.
"""

import errno
import fcntl
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.starting import make_private
from ironcurtain_proxy.mailbox.mailboxes import MailboxReader, is_listened_to, utc_now

_DAY: Final = 86_400
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS: Final = 50
_PAUSE: Final = 0.01
_SECONDS: Final = 60.0
"""The time limit for removing one directory. The next start continues with the rest."""
_REMOVED: Final = ".removed-"


class SessionLock:
    """A lock that keeps a directory from removal until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._end = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, directory: Path) -> "SessionLock | None":
        """Create a directory if needed, and lock it, or None if it cannot be created or locked."""
        for _ in range(_ATTEMPTS):
            try:
                make_private(directory)
                hold = cls(os.open(directory, _DIRECTORY))
                fcntl.flock(hold.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                # It may have been removed between the look and the lock.
                if os.path.samestat(directory.lstat(), os.fstat(hold.descriptor)):
                    return hold
            except (BlockingIOError, FileNotFoundError):
                time.sleep(_PAUSE)
            except OSError:
                return None
        return None

    def release(self) -> None:
        """Release the lock. Harmless if repeated."""
        self._end()


def hold_session(settings: Settings) -> tuple[SessionLock, ...]:
    """Lock a session's directory, and its mailbox if that lies in another session's."""
    sessions = settings.sessions_dir
    wanted = {settings.session_dir}
    if settings.mailbox_dir.parent == sessions:
        wanted.add(settings.mailbox_dir)
    return tuple([hold for directory in wanted if (hold := SessionLock.of(directory)) is not None])


def remove_old_sessions_later(settings: Settings) -> None:
    """Remove the directories of old sessions in a background thread."""
    days, sessions = settings.session_retention_days, settings.sessions_dir
    if days:
        with suppress(RuntimeError):
            threading.Thread(
                target=remove_old_sessions,
                args=(sessions, utc_now().timestamp() - days * _DAY),
                name="old sessions",
                daemon=True,
            ).start()


def remove_old_sessions(sessions: Path, before: float) -> None:
    """Remove the directories of sessions without any change since a time.

    Args: sessions: the directory that holds one directory for each session. before: a time
    stamp. Directories of running sessions, of sessions with a listener, and of those with a
    question that a running process waits for, are kept at any age.
    """
    with suppress(OSError), _opened(str(sessions)) as place:
        for name in os.listdir(place):  # noqa: PTH208  a descriptor, not a path
            # The remains of an interrupted removal belong to no session, at any age.
            date = float("inf") if name.startswith(_REMOVED) else before
            with suppress(OSError), _opened(name, place) as directory:
                if _is_old(directory, place, date) and not _is_waited_for(sessions / name):
                    _remove(name, place, directory, date)


def remove_session(directory: Path, hold: SessionLock) -> None:
    """Remove a locked directory, unless another process holds a lock on it, too."""
    with suppress(OSError), _opened(str(directory.parent)) as place:
        _remove(directory.name, place, hold.descriptor, float("inf"))


def _is_old(directory: int, place: int, before: float) -> bool:
    found = os.fstat(directory)
    above = os.fstat(place)
    # A directory of another user or file system is no session's directory.
    if (found.st_uid, found.st_dev) != (os.geteuid(), above.st_dev) or found.st_mtime > before:
        return False
    with os.scandir(directory) as entries:
        return all(entry.stat(follow_symlinks=False).st_mtime <= before for entry in entries)


def _is_waited_for(directory: Path) -> bool:
    if is_listened_to(directory):
        return True
    reader = MailboxReader(directory)
    try:
        return any(found.request.owner is not None for found in reader.pending(utc_now()))
    finally:
        reader.close()


def _remove(name: str, place: int, directory: int, before: float) -> None:
    """Lock a directory and remove it.

    Raises:
        OSError: it is locked, or something in it cannot be removed.
    """
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not _is_old(directory, place, before):
        return
    if not os.path.samestat(
        os.stat(name, dir_fd=place, follow_symlinks=False), os.fstat(directory)
    ):
        return
    gone = name
    if not name.startswith(_REMOVED):
        # A rename is atomic: a proxy of the same name finds all of the directory or nothing.
        gone = f"{_REMOVED}{os.urandom(8).hex()}"
        os.rename(name, gone, src_dir_fd=place, dst_dir_fd=place)
    _empty(directory)
    os.rmdir(gone, dir_fd=place)


def _empty(directory: int) -> None:
    """Remove everything in a directory.

    Nested directories are first moved up, because they may be nested deeper than the call stack
    allows.
    """
    end = time.monotonic() + _SECONDS
    device = os.fstat(directory).st_dev
    while names := os.listdir(directory):
        for name in names:
            if time.monotonic() > end:
                raise TimeoutError
            if not _unlinked(name, directory):
                _flatten(name, directory, device)


def _flatten(name: str, top: int, device: int) -> None:
    _open_up(name, top)
    with _opened(name, top) as inner:
        if os.fstat(inner).st_dev != device:
            raise OSError(errno.EXDEV, "something is mounted there")
        for child in os.listdir(inner):  # noqa: PTH208  a descriptor, not a path
            if not _unlinked(child, inner):
                # Without write permission a directory cannot be moved.
                _open_up(child, inner)
                os.rename(child, os.urandom(16).hex(), src_dir_fd=inner, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


def _unlinked(name: str, parent: int) -> bool:
    """Remove a file, or False if it is a directory."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        return False
    return True


@contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_up(name: str, parent: int) -> None:
    """Give the owner all rights to a directory, whatever mode a server left."""
    if sys.platform != "linux":
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        # An O_PATH descriptor cannot change the directory, but its /proc path can.
        Path(f"/proc/self/fd/{descriptor}").chmod(0o700)
    finally:
        os.close(descriptor)
