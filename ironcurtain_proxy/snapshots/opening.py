"""The workspace and the timeline's own directories, opened safely.

Paths below a directory, opened so that no link on the way leads anywhere else.

Directories with changes since the last scan, as the kernel reports them.

Linux only; on other systems, and without free watches, everything is scanned. A write through a
memory mapping, or under another name outside of the workspace, causes no event: a scan finds it.

The directories of timelines: one for each workspace, and one for each further proxy there.

The limits on a held workspace, and a check of them without copies.
"""

import ctypes
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from sys import byteorder
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.inotify import IGNORED, ONLYDIR, OVERFLOW, InotifyQueue
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.private_files import (
    closed_after,
    opened_to_owner,
    read_regular,
    write_whole,
)

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PASSED: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to pass through a directory or change it, which need not be readable."""


_TIMELY: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0xCA451A4E, 0x2FC12FC1})
"""The types of file systems that set a file's times at a write through a shared mapping: ext, XFS,
Btrfs, F2FS, bcachefs and ZFS. tmpfs does not, and overlays, FUSE and networks pass on what another
file system does."""
_STATFS_BYTES: Final = 512


class OpenedRoot:
    """An open directory, independent of later changes of its name."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            OSError: it is not there, or no directory.
        """
        self.path = path
        self.opens = False
        """Whether directories that are closed to us are opened for the time of a look, where they
        are ours. It changes the time of their last change."""
        self.descriptor = os.open(path, DIRECTORY)
        found = os.fstat(self.descriptor)
        self.device = found.st_dev
        self.sets_times = self._kind_of_file_system() in _TIMELY
        """Whether every write changes a file's times; an unknown file system counts as one that
        does not."""

    def _kind_of_file_system(self) -> int:
        """Return the number by which the kernel knows the file system, or 0 if it does not say."""
        if not hasattr(os, "O_PATH"):
            return 0
        found = ctypes.create_string_buffer(_STATFS_BYTES)
        if ctypes.CDLL(None).fstatfs(ctypes.c_int(self.descriptor), found) != 0:
            return 0
        return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_uint)], byteorder)

    def is_in_place(self) -> bool:
        """Return whether the path still leads here."""
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self.descriptor))
        except OSError:
            return False

    def open(self, path: str, flags: int = DIRECTORY) -> int:
        """Return a descriptor of a path below, or empty if of the directory itself.

        Raises:
            OSError: `FileNotFoundError`, `NotADirectoryError`, or ELOOP for a link.
        """
        if not path:
            return os.open(".", flags, dir_fd=self.descriptor)
        *above, name = path.split("/")
        descriptor = os.open(".", PASSED, dir_fd=self.descriptor)
        try:
            for part in above:
                below = os.open(part, PASSED, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            return os.open(name, flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def directory(self, path: str, flags: int = DIRECTORY) -> Iterator[int]:
        """Open a directory, and close it afterwards."""
        with ExitStack() as held:
            try:
                opened = held.enter_context(closed_after(self.open(path, flags)))
                if self.opens:
                    os.stat(".", dir_fd=opened)
            except PermissionError:
                if not self.opens or not path:
                    raise
                above, _, name = path.rpartition("/")
                parent = held.enter_context(self.directory(above, PASSED))
                held.enter_context(opened_to_owner(parent, name))
                opened = held.enter_context(closed_after(os.open(name, flags, dir_fd=parent)))
            yield opened

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


# --- events


_CHANGES: Final = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""Written, attributes, closed after writing, moved from and to, created, deleted, itself gone."""


class Events:
    """The directories that are watched."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._queue: InotifyQueue | None = None
        with suppress(OSError):
            self._queue = InotifyQueue()
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self.missed = self._queue is None
        """Whether events may be missing, so that everything must be scanned."""

    @property
    def can_tell(self) -> bool:
        """Whether the system has such watches at all."""
        return self._queue is not None

    def watch(self, path: str, descriptor: int) -> None:
        """Watch an open directory under a name. The caller lists it afterwards, not before."""
        if self._queue is None:
            return
        try:
            # By its descriptor, because its name may be a link by now.
            found = self._queue.watch(f"/proc/self/fd/{descriptor}", _CHANGES | ONLYDIR)
        except OSError:
            self.missed = True
            self.close()
            return
        old = self._paths.get(found)
        if old is not None and self._watches.get(old) == found:
            del self._watches[old]
        self._paths[found] = path
        self._watches[path] = found

    def is_watched(self, path: str) -> bool:
        """Return whether a directory is watched under this name."""
        return path in self._watches

    def forget(self, path: str) -> None:
        """Stop watching a directory that is gone from there, unless it was met elsewhere."""
        watch = self._watches.pop(path, None)
        if watch is not None and self._paths.get(watch) == path and self._queue is not None:
            del self._paths[watch]
            self._queue.unwatch(watch)

    def happened(self) -> dict[str, set[str]]:
        """Return the names with events since the last call, by directory."""
        found: dict[str, set[str]] = {}
        for watch, mask, name in () if self._queue is None else self._queue.events():
            self.missed |= bool(mask & OVERFLOW)
            path = self._paths.get(watch)
            if path is not None:
                found.setdefault(path, set()).add(name)
                if mask & IGNORED:
                    del self._paths[watch]
                    self._watches.pop(path, None)
        return found

    def close(self) -> None:
        """Watch nothing any more."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None
            self._paths.clear()
            self._watches.clear()


# --- places


_MOST: Final = 16
_PRIVATE: Final = 0o700
_OWNER, _NAME = "owner", "workspace"


class TimelineLock(Struct, frozen=True):
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
        directory.mkdir(_PRIVATE, exist_ok=True)
        descriptor = os.open(directory / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Read without the lock. The beginning of a path would be another workspace.
            write_whole(directory / _NAME, os.fsencode(str(workspace)))
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
        else:
            return TimelineLock(directory, descriptor)
    raise OSError(0, "too many proxies keep a timeline of this workspace")


def timelines(parent: Path) -> Iterator[tuple[Path, RealPath]]:
    """Yield all timelines, with their workspaces."""
    for directory in sorted(parent.glob("*")):
        with suppress(OSError):
            text = os.fsdecode(read_regular(directory / _NAME))
            # A crash can leave the file empty, which is not the root.
            if text.startswith("/") and "\0" not in text:
                yield directory, RealPath.from_text(text)


def remove_old(parent: Path, keep: timedelta, now: float) -> None:
    """Remove timelines without a write for this long. Never fails.

    Args:
        parent: the directory of them all.
        keep: for how long.
        now: seconds since the epoch.
    """
    for directory, _ in timelines(parent):
        with (
            suppress(OSError),
            closed_after(os.open(directory / _OWNER, os.O_RDWR | os.O_CLOEXEC)) as descriptor,
        ):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if now - (directory / "log").stat().st_mtime > keep.total_seconds():
                shutil.rmtree(directory)


# --- bounds


LARGEST_PART: Final = 4
"""A file that takes more than this part of all bytes is not held."""


def too_many(max_files: int) -> str:
    """Return the message about a workspace with more files, which is not held."""
    return f"the workspace has more than {max_files:,} files and directories"


def too_large(max_bytes: int) -> str:
    """Return the message about a workspace with more bytes, which is not held."""
    return f"the workspace holds more than {max_bytes / (1 << 20):,.0f} MiB"


def beyond_bounds(
    workspace: str, *, max_files: int, max_bytes: int, caches: Collection[str], state: str
) -> str | None:
    """Return why a workspace is not held, or None if it is within the bounds. Stops at the first.

    Args:
        workspace: where it is.
        max_files: the most files, directories and links.
        max_bytes: the most bytes.
        caches: names of directories that are left alone.
        state: the directory of the proxy's state, which is left alone as well.
    """
    try:
        device = os.stat(workspace).st_dev  # noqa: PTH116  pathlib is slow for so many
    except OSError as error:
        return f"the workspace or its timeline cannot be used: {error.strerror}"
    size = 0
    for files, taken in enumerate(_found(workspace, frozenset(caches), state, device), 1):
        size += taken if taken <= max_bytes // LARGEST_PART else 0
        if files > max_files:
            return too_many(max_files)
        if size > max_bytes:
            return too_large(max_bytes)
    return None


def _found(workspace: str, caches: frozenset[str], state: str, device: int) -> Iterator[int]:
    """Yield all scanned entries, each with the bytes of its copy."""
    waiting = [workspace]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    is_file = stat.S_ISREG(status.st_mode)
                    yield min(status.st_size, status.st_blocks * 512) if is_file else 0
                elif entry.name not in caches and entry.path != state:
                    yield 0
                    if status.st_dev == device:
                        waiting.append(entry.path)
