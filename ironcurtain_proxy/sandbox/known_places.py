"""The state of a place with steering files, as a watch knows it, and the identity of files."""

import os
import stat
from dataclasses import dataclass, field

from ironcurtain_proxy.sandbox.steering import Item, SteeringPlace


@dataclass(slots=True)
class KnownPlace:
    """A watched place."""

    place: SteeringPlace
    items: dict[str, Item]
    inode: tuple[int, int]
    from_start: bool
    """Whether it was there before any server ran."""
    accepted: bool
    """Whether all of it was accepted once."""
    closed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The inodes of its parts that sandboxes close, by their names in it."""


def joined(directory: str, name: str) -> str:
    """The path of an entry; the directory itself for an empty name."""
    return f"{directory}/{name}" if name else directory


def inode_of(path: str) -> tuple[int, int] | None:
    """The device and number of a file; None: it is not there."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if not stat.S_ISFIFO(status.st_mode) else (0, 0)


def has_one_name(path: str) -> bool:
    """Whether a closed file cannot be written under another name."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) or status.st_nlink == 1


def is_directory(path: str) -> bool:
    """Whether a path is a directory, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def shown(path: str) -> str:
    """A path on one line: a server may have chosen its name."""
    return "".join([c if c.isprintable() else f"\\x{ord(c):02x}" for c in path])
