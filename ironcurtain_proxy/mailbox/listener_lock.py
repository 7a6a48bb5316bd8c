"""The listener lock: a file lock in a mailbox, or in the directory of all sessions.

`review` or an `EscalationInbox(listen=True)` locks it, and a proxy tests it before it asks. It
is a kernel lock (flock), so the lock of a dead process counts as free, whatever the file says;
the number in the file is for people.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from ironcurtain_proxy.private_files import is_at, locked_file

LOCK_NAME: Final = "escalation-listener.lock"
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.005
_DIGITS: Final = 20


class ListenerLock:
    """A lock that this process has until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._fd: int | None = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> "ListenerLock | None":
        """Lock the directory; None if another listener has the lock.

        Raises:
            OSError: the directory is not there, or the file is not ours to write.
        """
        path = directory / LOCK_NAME
        for _ in range(_ATTEMPTS):
            descriptor = locked_file(path)
            if descriptor is not None:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
                return cls(path, descriptor)
            # A proxy that just looks holds it for some microseconds.
            time.sleep(_PAUSE)
        return None

    def release(self) -> None:
        """Release the lock; harmless if repeated."""
        if self._fd is None:
            return
        with suppress(OSError):
            if is_at(self._fd, self._path):
                self._path.unlink()
        os.close(self._fd)
        self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_listened_to(directory: Path) -> bool:
    """Whether a living process of this user has the directory's lock. Takes microseconds."""
    try:
        descriptor = os.open(directory / LOCK_NAME, _OPEN)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        # Shared: two proxies that look at once do not take each other for a listener.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def listener_pid(directory: Path) -> int | None:
    """The pid in the lock file, for a message to people."""
    with suppress(OSError, ValueError):
        return int((directory / LOCK_NAME).read_bytes()[:_DIGITS])
    return None
