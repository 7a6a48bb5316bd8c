"""A directory for the sockets of one sandbox: made before it, removed after it.

srt puts its sockets into TMPDIR, and leaves them there when it is killed. A socket's path holds 107
bytes at most, and a comma or a colon in it has a meaning for socat. So srt could not start where
TMPDIR is too long or holds such a character.

Each process that needs the directory holds a lock on it, and the kernel releases the lock however
the process dies. A directory without a lock is abandoned: `abandoned` removes it.
"""

import errno
import fcntl
import os
import re
import shutil
import tempfile
from typing import Final

from msgspec import Struct

_SHORT: Final = "/tmp"  # noqa: S108  where everything fits
_PREFIX: Final = "ironcurtain-srt-"
_LONGEST: Final = 107 - len(f"/{_PREFIX}01234567") - len("/claude-http-0123456789abcdef.sock")
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._-]+", re.ASCII)
_TRIES: Final = 20
NAME: Final = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}", re.ASCII)
"""The names of such directories."""
OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""The flags for opening such a directory."""


class SocketDirectory(Struct, eq=False):
    """A directory of this proxy, locked until it is removed or the proxy ends."""

    path: str
    _lock: int

    def remove(self) -> None:
        """Remove the directory with its content. A missing directory is no error."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def make_directory() -> SocketDirectory:
    """A new directory, for this user only.

    Raises:
        OSError: none can be made.
    """
    base = places()[0]
    for _ in range(_TRIES):
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        try:
            return SocketDirectory(path, _locked(path))
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            if error.errno not in (errno.ENOENT, errno.EAGAIN):
                raise
    raise OSError(errno.EAGAIN, f"somebody locks every new directory in {base}")


def places() -> tuple[str, ...]:
    """The parents of such directories: the present one, and the one if TMPDIR does not suit."""
    base = os.path.realpath(tempfile.gettempdir())
    fits = len(base) <= _LONGEST and _PLAIN.fullmatch(base) is not None
    return (base, _SHORT) if fits and base != _SHORT else (_SHORT,)


def _locked(path: str) -> int:
    """A lock on a directory that was just made.

    Raises:
        OSError: somebody took it for abandoned meanwhile (ENOENT, EAGAIN), or there is no
            descriptor left.
    """
    lock = os.open(path, OPEN)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            # Without locks on this file system, nobody can look for abandoned directories either.
            return lock
        # If somebody locked it before us, it was removed or replaced.
        if not os.path.samestat(os.fstat(lock), os.lstat(path)):
            raise FileNotFoundError(errno.ENOENT, "removed", path)
    except OSError:
        os.close(lock)
        raise
    return lock
