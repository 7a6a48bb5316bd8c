"""Directories opened component by component, so that no link can lead anywhere else.

A path is a tuple of its components, as in `model.path.RealPath`; names that are no text are kept
the way `os.fsdecode` gives them.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

Parts: TypeAlias = tuple[str, ...]
"""An absolute path: `/srv/a.txt` is `("srv", "a.txt")`."""

_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# With O_PATH a directory need not be readable to be passed through.
_PASS: Final = _DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
LISTED: Final = _DIRECTORY | os.O_RDONLY
"""Flags that open a directory to list it."""
MISLEADING: Final = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EMLINK})
"""What the system says of a link, or a file, where a directory should be."""


def text_of(parts: Parts) -> str:
    """The path as the system takes it."""
    return "/" + "/".join(parts)


def is_within(path: Parts, directory: Parts) -> bool:
    """Whether it is the directory itself or lies below it."""
    return path[: len(directory)] == directory


@contextmanager
def opened_directory(parts: Parts) -> Iterator[int]:
    """A descriptor of a directory that is reached without any link.

    Raises:
        OSError: `FileNotFoundError`, or one of `MISLEADING`, or another.
    """
    descriptor = os.open("/", _PASS)
    try:
        for part in parts:
            below = os.open(part, _PASS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_itself(parent: int, name: str) -> Iterator[int]:
    """A descriptor of a directory by its name; it need not be readable.

    Raises:
        OSError: as above.
    """
    descriptor = os.open(name, _PASS, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def first_missing(parts: Parts) -> Parts:
    """The path itself, or the first directory on the way to it that does not exist.

    Raises:
        OSError: a link or a file stands where a directory should be.
    """
    descriptor = os.open("/", _PASS)
    try:
        for index, part in enumerate(parts[:-1]):
            try:
                below = os.open(part, _PASS, dir_fd=descriptor)
            except FileNotFoundError:
                return parts[: index + 1]
            os.close(descriptor)
            descriptor = below
        return parts
    finally:
        os.close(descriptor)
