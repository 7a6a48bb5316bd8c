"""Which snapshots belong to a call that is under way: such a one is not removed.

A lock on a file in the snapshot says so; the system takes it away with the process, so that a
crash leaves none. It is not the lock that a rollback takes, which would wait for the call to end.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ironcurtain_proxy.snapshots.faults import SnapshotError
from ironcurtain_proxy.snapshots.storage import MANIFEST, locked

_FILE: Final = "running"
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE: Final = 0o600


@dataclass(slots=True)
class SnapshotLock:
    """Keeps a snapshot from being removed, until it is released or the process ends."""

    _descriptor: int | None

    def release(self) -> None:
        """The call has ended; harmless if repeated."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def hold(place: Path) -> SnapshotLock:
    """Keep a snapshot for as long as its call is under way.

    Raises:
        SnapshotError: it was removed already.
        OSError: it cannot be kept.
    """
    with locked(place):
        # Whoever removes it has this lock too, and takes the manifest first.
        if not (place / MANIFEST).is_file():
            raise SnapshotError("the snapshot is gone")
        descriptor = os.open(place / _FILE, _FLAGS | os.O_CREAT, _PRIVATE)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return SnapshotLock(descriptor)


def is_under_way(place: Path) -> bool:
    """Whether a call holds it, in whatever process.

    Raises:
        OSError: it cannot be told.
    """
    try:
        descriptor = os.open(place / _FILE, _FLAGS)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
