"""The directories of timelines: one for each workspace, and one for each further proxy there."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.path import RealPath

_MOST: Final = 16
_PRIVATE: Final = 0o700
_OWNER, _NAME = "owner", "workspace"


@dataclass(frozen=True, slots=True)
class TimelineLock:
    """A timeline's directory that no other proxy uses, until it is released or the process ends."""

    directory: Path
    descriptor: int

    def release(self) -> None:
        """Release the directory."""
        os.close(self.descriptor)


def claim(parent: Path, workspace: RealPath) -> TimelineLock:
    """Find or make the directory for a workspace.

    Raises:
        OSError: it cannot be made, or too many proxies have one.
    """
    parent.mkdir(_PRIVATE, parents=True, exist_ok=True)
    digest = hashlib.sha256(os.fsencode(str(workspace))).hexdigest()[:16]
    for number in range(_MOST):
        directory = parent / f"{digest}-{number}"
        with suppress(FileExistsError):
            directory.mkdir(_PRIVATE)
        descriptor = os.open(directory / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        (directory / _NAME).write_bytes(os.fsencode(str(workspace)))
        return TimelineLock(directory, descriptor)
    raise OSError(0, "too many proxies keep a timeline of this workspace")


def timelines(parent: Path) -> Iterator[tuple[Path, RealPath]]:
    """All timelines, with their workspaces."""
    with suppress(FileNotFoundError):
        for directory in sorted(parent.iterdir()):
            with suppress(OSError):
                yield directory, RealPath.from_text(os.fsdecode((directory / _NAME).read_bytes()))


def remove_old(parent: Path, keep: timedelta, now: float) -> None:
    """Remove timelines without a write for this long. Never fails.

    Args:
        parent: the directory of them all.
        keep: for how long.
        now: seconds since the epoch.
    """
    for directory, _ in timelines(parent):
        with suppress(OSError):
            descriptor = os.open(directory / _OWNER, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if now - (directory / "log").stat().st_mtime > keep.total_seconds():
                    shutil.rmtree(directory)
            finally:
                os.close(descriptor)
