"""Real paths, and file systems that may hang.

The real path has every link followed, however much of the tail is missing. `os.path.realpath` will
not do: it follows `/proc/self/cwd` as if the server were this process, and gives up silently where
it may not look. Here each of these has an answer:

- a dangling link leads to its target, existing or not;
- a missing tail is kept as it is, of any length;
- a cycle of links cannot be opened: the path is judged at the first link that is part of it;
- what means another thing in another process (`/proc/self`, `/dev/fd`, …) is refused.

A mount that is served over a network or by another program (NFS, FUSE) can block a system call for
as long as its server likes. Where there is none, a path is looked up faster than a thread is asked
to do it. So the kernel's table of mounts is read, and kept open: the kernel reports its changes.
"""

import ctypes
import errno
import os
import select
import stat
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.facts.arguments import Refusal, Speller
from ironcurtain_proxy.model.request import PathValue
from ironcurtain_proxy.model.values import RealPath

PROCFS: Final = 0x9FA0
"""`PROC_SUPER_MAGIC` of statfs(2)."""

NO_NUMBER: Final = 0
"""The number on systems without such numbers (not Linux), and so without procfs."""

_BUFFER: Final = 256
"""Bytes: the structure has 120, of which the number is the first word."""

_LIBRARY: Final = ctypes.CDLL(None) if sys.platform == "linux" else None

_LOW_WORD: Final = 0 if sys.byteorder == "little" else ctypes.sizeof(ctypes.c_long) - 4


_MAX_LINKS: Final = 1000
"""The most links of one path. Linux stops at 40; other readers follow more."""

_OWN_TO_PROCESS: Final = Refusal("leads through /proc or /dev to what differs between processes")
_TOO_MANY_LINKS: Final = Refusal("leads through too many links")
_NAMESAKE: Final = Refusal(
    "is spelled so that a server may take it for another file that is there; write the name as it "
    "stands in the directory"
)
_UNREADABLE: Final = Refusal("leads through a directory that cannot be looked into")
_TOO_LONG: Final = Refusal("is too long to be looked up")
_NOT_TEXT: Final = Refusal("leads to a name that is not valid Unicode text")

NAME_MAX: Final = 255
"""Bytes in the name of a file on every file system of Linux."""
_NO_NAME: Final = frozenset({"", ".", ".."})
_PROC_NAMES: Final = frozenset({"self", "thread-self", "mounts", "net"})
_DEV_NAMES: Final = frozenset({"fd", "stdin", "stdout", "stderr", "tty"})
_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_PROCFS_OR_UNKNOWN: Final = frozenset({PROCFS, None})
_O_PATH: Final[int | None] = getattr(os, "O_PATH", None)


class PathReading(Struct, frozen=True):
    """The judged path, and the path that is sent."""

    value: PathValue
    spelled: str
    """Absolute and normalised, links as the agent wrote them: it leads where `value` says."""
    link: PathValue | None = None
    """The real place of the link itself, if the path is one: to remove it changes this place."""


class PathReader:
    """Reads the paths of one agent connection.

    Thread-safe. Blocks as long as the file system does.
    """

    def __init__(self, speller: Speller, *, keep_unreadable: bool = False) -> None:
        """Set the meaning of short spellings.

        Args:
            speller: the text half of the work.
            keep_unreadable: keep the rest of a path behind an unreadable directory instead of
                refusing it. Only for decisions after which nothing is sent.
        """
        self._speller = speller
        self._keep_unreadable = keep_unreadable

    def read(self, text: str) -> PathReading | Refusal:
        """Read one string. No string makes it raise."""
        spelled = self._speller.spell(text)
        if isinstance(spelled, Refusal):
            return spelled
        real = self.real_path(spelled)
        if isinstance(real, Refusal):
            return real
        text = str(real)
        value = PathValue(text, real)
        if text == spelled:
            return PathReading(value, spelled)
        parent, _, name = spelled.rpartition("/")
        directory = self.real_path(parent)
        if isinstance(directory, Refusal):
            return directory
        place = RealPath((*directory.parts, name))
        if place == real:
            return PathReading(value, spelled)
        return PathReading(PathValue(text, real, place), spelled, PathValue(str(place), place))

    def real_path(self, spelled: str) -> RealPath | Refusal:
        """Follow the links of an absolute, normalised spelling."""
        parts = [part for part in spelled.split("/") if part]
        # Some paths differ between processes without a link (`/dev/tty`).
        if parts[:1] not in (["proc"], ["dev"]):
            if _has_no_link(spelled):
                return RealPath(tuple(parts))
            # Most of what does not exist is a new file in a directory that does.
            if _has_no_link(spelled.rpartition("/")[0]):
                return self._walk(parts[:-1], parts[-1:])
        return self._walk([], parts)

    def _walk(self, done: list[str], parts: list[str]) -> RealPath | Refusal:
        """Resolve `parts` one after the other below `done`, which is real already."""
        budget = iter(range(_MAX_LINKS))
        for index, part in enumerate(parts):
            reached = self._expand(done, part, budget)
            if isinstance(reached, Refusal):
                return reached
            if reached is None:
                done = done + parts[index:]
                break
            done = reached
        try:
            "/".join(done).encode()
        except UnicodeEncodeError:
            return _NOT_TEXT
        return RealPath(tuple(done))

    def _expand(
        self, done: list[str], part: str, budget: Iterator[int]
    ) -> list[str] | Refusal | None:
        """Follow one component to its end: the real components, or None if it is a cycle."""
        done = list(done)
        pending: list[str | _EndOfLink] = [part]
        following: set[str] = set()
        while pending:
            step = pending.pop()
            if isinstance(step, _EndOfLink):
                following.discard(step.place)
                continue
            if step in _NO_NAME:
                done = done[:-1] if step == ".." else done
                continue
            place = "/" + "/".join((*done, step))
            target = self._target(done, step, place)
            if target is None:
                done.append(step)
                continue
            if place in following:
                return None
            if isinstance(target, Refusal):
                return target
            if next(budget, None) is None:
                return _TOO_MANY_LINKS
            following.add(place)
            pending += [_EndOfLink(place), *reversed(target.split("/"))]
            done = [] if target.startswith("/") else done
        return done

    def _target(self, directory: list[str], name: str, place: str) -> str | Refusal | None:
        """Return the target of the link at `place`; None if it is no link or is missing."""
        if directory == ["proc"] and (name in _PROC_NAMES or name.isdigit()):
            return _OWN_TO_PROCESS
        if directory == ["dev"] and name in _DEV_NAMES:
            return _OWN_TO_PROCESS
        try:
            status = os.lstat(place)
            if not stat.S_ISLNK(status.st_mode):
                return None
            # A link of procfs is not text but a door, wherever procfs is mounted.
            if _is_of_procfs(status, directory):
                return _OWN_TO_PROCESS
            return os.readlink(place)  # noqa: PTH115  microseconds
        except OSError as error:
            return self._unless_missing(error, place)

    def _unless_missing(self, error: OSError, place: str) -> Refusal | None:
        if error.errno in _NOTHING_THERE:
            return _NAMESAKE if not self._keep_unreadable and _has_namesake(place) else None
        if error.errno == errno.ENAMETOOLONG:
            # No file can have such a name, so nothing lies there or below. If it is only the whole
            # that is too long, it may well exist, reached step by step.
            longest = max(len(os.fsencode(name)) for name in place.split("/"))
            return None if longest > NAME_MAX else _TOO_LONG
        if error.errno == errno.EACCES and self._keep_unreadable:
            return None
        return _UNREADABLE


class _EndOfLink(Struct, frozen=True):
    """The end of a link's target among the remaining components."""

    place: str


def _has_namesake(place: str) -> bool:
    """Return whether another entry of the directory is the same text to Unicode.

    `é` may be one character or two, and the Kelvin sign is a K. A server that does not find a name
    may look for such an entry (npm's filesystem server does), and open what was never judged.
    """
    directory, _, name = place.rpartition("/")
    wanted = unicodedata.normalize("NFC", name)
    plain = name.isascii()
    try:
        entries = os.listdir(directory or "/")  # noqa: PTH208  names alone, microseconds
    except OSError:
        return False
    # The namesake of a plain name cannot be plain: most entries need not be looked at.
    return any(
        unicodedata.normalize("NFC", entry) == wanted
        for entry in entries
        if not (plain and entry.isascii())
    )


def _has_no_link(spelled: str) -> bool:
    """Return whether the path exists and contains no link.

    Three system calls, whatever the depth; `lstat` on every component costs one each.
    """
    if _O_PATH is None:
        return False
    try:
        descriptor = os.open(spelled, _O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == spelled  # noqa: PTH115  microseconds
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_of_procfs(status: os.stat_result, directory: list[str]) -> bool:
    """Return whether a link lies in a procfs. Each mount of it may have a device of its own."""
    if os.major(status.st_dev) != 0:
        # The link lies on a disk, and a procfs does not.
        return False
    return file_system_type("/" + "/".join(directory)) in _PROCFS_OR_UNKNOWN


def file_system_type(directory: str) -> int | None:
    """Return the number of the file system that holds a directory, or None if it is unknown."""
    if _LIBRARY is None:
        return NO_NUMBER
    buffer = ctypes.create_string_buffer(_BUFFER)
    try:
        failed = _LIBRARY.statfs(os.fsencode(directory), buffer)
    except ValueError:
        return None
    return None if failed else ctypes.c_uint32.from_buffer(buffer, _LOW_WORD).value


# --- mounts


_DISKS: Final = frozenset(
    {"bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs"}
    | {"ntfs3", "squashfs", "vfat", "xfs", "zfs"}
)
_MEMORY: Final = frozenset({"devtmpfs", "hugetlbfs", "overlay", "ramfs", "rootfs", "tmpfs"})
_KERNEL: Final = frozenset(
    {"binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs"}
    | {"fusectl", "mqueue", "nsfs", "proc", "pstore", "resctrl", "securityfs", "selinuxfs"}
    | {"sysfs", "tracefs"}
)
_LOCAL_TYPES: Final = _DISKS | _MEMORY | _KERNEL
"""File systems on local memory or disks. Any other type counts as one that can hang."""

_MOUNT_POINT: Final = 4
"""The field of a line that holds where it is mounted; the type follows a lone hyphen."""


class MountTable:
    """Watches the mounts of this process. Not thread-safe."""

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        """Open the table; where there is none (not Linux), everything may block."""
        self._descriptor: int | None = None
        self._poll = select.poll()
        self._table = table
        try:
            self._descriptor = os.open(table, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._may_block = True
            return
        self._poll.register(self._descriptor, select.POLLPRI | select.POLLERR)
        self._may_block = self._read()

    def may_block(self) -> bool:
        """Return whether any mount could block a system call. Takes a third of a microsecond."""
        if self._descriptor is not None and self._poll.poll(0):
            self._may_block = self._read()
        return self._may_block

    def close(self) -> None:
        """Stop watching: from now on everything may block."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._may_block = True

    def __del__(self) -> None:
        """Close the descriptors when nobody holds the table any more."""
        with suppress(OSError, AttributeError):
            self.close()

    def _read(self) -> bool:
        try:
            lines = Path(self._table).read_text(errors="replace").splitlines()
        except OSError:
            return True
        return not lines or not all(map(_is_local, lines))


def _is_local(line: str) -> bool:
    fields = line.split()
    if "-" not in fields[:-1]:
        return False
    # The doors of systemd's automounter below /proc and /sys lead to this kernel again.
    if fields[_MOUNT_POINT].startswith(("/proc/", "/sys/")):
        return True
    return fields[fields.index("-") + 1] in _LOCAL_TYPES
