"""How long the directories of ended sessions stay, in `~/.ironcurtain/sessions`.

A living proxy holds a shared lock (flock) on its session's directory itself, which no file in it
can fake and which ends with the process. Who removes takes the lock alone. Everything goes through
descriptors: servers wrote in these directories, and a link there leads nowhere.
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
from ironcurtain_proxy.downstream.working_directory import make_private
from ironcurtain_proxy.mailbox.listener_lock import is_listened_to
from ironcurtain_proxy.mailbox.requests import MailboxReader, utc_now

_DAY: Final = 86_400
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS: Final = 50
_PAUSE: Final = 0.01
_SECONDS: Final = 60.0
"""For removing one directory; the next start goes on with what is left."""
_REMOVED: Final = ".removed-"


class Hold:
    """A directory that nobody removes until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._end = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, directory: Path) -> "Hold | None":
        """Make a directory if need be, and hold it; None: it cannot be made or locked."""
        for _ in range(_ATTEMPTS):
            try:
                make_private(directory)
                hold = cls(os.open(directory, _DIRECTORY))
                fcntl.flock(hold.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                # It may have been removed between our look and our lock.
                if os.path.samestat(directory.lstat(), os.fstat(hold.descriptor)):
                    return hold
            except (BlockingIOError, FileNotFoundError):
                time.sleep(_PAUSE)
            except OSError:
                return None
        return None

    def release(self) -> None:
        """Hold it no more; harmless if repeated."""
        self._end()


def hold_session(settings: Settings) -> tuple[Hold, ...]:
    """Hold a session's directory, and its mailbox where that is another session's directory."""
    sessions = settings.sessions_dir
    wanted = {settings.session_dir}
    if settings.mailbox_dir.parent == sessions:
        wanted.add(settings.mailbox_dir)
    return tuple([hold for directory in wanted if (hold := Hold.of(directory)) is not None])


def remove_old_sessions_later(settings: Settings) -> None:
    """Remove old sessions' directories, in a thread of its own that nobody waits for."""
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
    """Remove the directories of sessions in which nothing has changed since then.

    Args:
        sessions: the directory with one for each session.
        before: a time stamp. What lives, has a listener, or has a question that a living process
            waits for stays, however old.
    """
    with suppress(OSError), _opened(str(sessions)) as place:
        for name in os.listdir(place):  # noqa: PTH208  a descriptor, not a path
            # What an earlier removal could not finish is nobody's, however young.
            date = float("inf") if name.startswith(_REMOVED) else before
            with suppress(OSError), _opened(name, place) as directory:
                if _is_old(directory, place, date) and not _is_waited_for(sessions / name):
                    _remove(name, place, directory, date)


def remove_session(directory: Path, hold: Hold) -> None:
    """Remove a directory that we hold, unless another process holds it, too."""
    with suppress(OSError), _opened(str(directory.parent)) as place:
        _remove(directory.name, place, hold.descriptor, float("inf"))


def _is_old(directory: int, place: int, before: float) -> bool:
    found = os.fstat(directory)
    above = os.fstat(place)
    # Somebody else's, or mounted from elsewhere, it is no session's.
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
    """Remove a directory whose lock can be had.

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
        # In one step, so that a proxy of the same name finds all of it or nothing.
        gone = f"{_REMOVED}{os.urandom(8).hex()}"
        os.rename(name, gone, src_dir_fd=place, dst_dir_fd=place)
    _empty(directory)
    os.rmdir(gone, dir_fd=place)


def _empty(directory: int) -> None:
    """Remove all that is in a directory.

    What lies deeper is moved up first: directories may be nested deeper than any stack is.
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
    """Remove a file; False: it is a directory."""
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
    """Give ourselves all rights to a directory of ours, whatever a server left there."""
    if sys.platform != "linux":
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        # A descriptor that only names the directory cannot change it, but leads to it.
        Path(f"/proc/self/fd/{descriptor}").chmod(0o700)
    finally:
        os.close(descriptor)
