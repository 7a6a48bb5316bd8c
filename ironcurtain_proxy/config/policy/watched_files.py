"""The state of the files that a policy is read from, to notice that they changed.

A change is what `stat` shows of a path and of what a link at it leads to: content, owner, mode, or
another file in its place. What cannot be looked at is a state of its own.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

FileState: TypeAlias = tuple[int, ...] | None
"""None: there is no such file."""

FileStates: TypeAlias = tuple[FileState, ...]


def file_states(paths: Iterable[Path]) -> FileStates:
    """The state of each file, in this order. Reads no content."""
    return tuple([_state(path) for path in paths])


def gone(paths: Iterable[Path], before: FileStates, now: FileStates) -> list[Path]:
    """The files that existed before and no longer do."""
    states = zip(paths, before, now, strict=True)
    return [path for path, was, state in states if was is not None and state is None]


def _state(path: Path) -> FileState:
    try:
        own = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return (-1, error.errno or 0)
    try:
        target = os.stat(path)  # noqa: PTH116  beside lstat
    except OSError as error:
        return (-2, own.st_ino, own.st_mtime_ns, own.st_ctime_ns, error.errno or 0)
    return (
        *(own.st_ino, own.st_mtime_ns, own.st_ctime_ns),
        *(target.st_dev, target.st_ino, target.st_size, target.st_mtime_ns, target.st_ctime_ns),
    )
