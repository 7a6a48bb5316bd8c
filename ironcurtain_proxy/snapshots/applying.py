"""Brings paths back to what was held: each file whole or not at all, and through no link.

Cut short at any point it can be done again: what is there then is what was found, what was held, or
nothing.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, assert_never

from ironcurtain_proxy.snapshots.contents import Contents, write_all
from ironcurtain_proxy.snapshots.faults import RollbackError
from ironcurtain_proxy.snapshots.places import (
    Parts,
    opened_directory,
    opened_itself,
    text_of,
)
from ironcurtain_proxy.snapshots.tree import SnapshotEntry, SnapshotEntryKind, SnapshotTree

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = 0o600
_OURS: Final = 0o700
"""What we must be allowed in a directory to work in it."""


class TreeRestorer:
    """The putting back of some paths."""

    def __init__(
        self,
        before: SnapshotTree,
        found: SnapshotTree,
        contents: Contents,
        temporary_name: str,
    ) -> None:
        """Say what is to be put back.

        Args:
            before: what was held.
            found: what is there now.
            contents: of the files that were held.
            temporary_name: the name of a file while it is written, in its directory.
        """
        self._before = before
        self._found = found
        self._contents = contents
        self._temporary = temporary_name

    def apply(self, paths: Sequence[Parts], leftovers: Sequence[Parts]) -> None:
        """Do it.

        Args:
            paths: those that differ; a directory before what is in it.
            leftovers: temporary files of a rollback that was cut short.

        Raises:
            RollbackError: it could not be done; it may be tried again.
        """
        self._open_up(paths)
        for path in leftovers:
            with suppress(FileNotFoundError), self._parent(path) as parent:
                os.unlink(path[-1], dir_fd=parent)
        for path in reversed(paths):
            self._take_away(path)
        for path in paths:
            if path in self._before:
                self._put_back(path, self._before[path])
        self._finish_times()

    def _open_up(self, paths: Sequence[Parts]) -> None:
        """Make the directories that something changes in writable; they get their modes later."""
        for path in sorted({path[:-1] for path in paths}):
            entry = self._found.get(path)
            if entry is not None and entry.kind == "directory" and entry.mode & _OURS != _OURS:
                with self._parent(path) as parent:
                    _set_mode(parent, path[-1], entry.mode | _OURS)

    def _take_away(self, path: Parts) -> None:
        """Remove what is not to be there, or is of another kind."""
        found, wanted = self._found.get(path), self._before.get(path)
        if found is None:
            return
        if wanted is not None and "directory" not in (wanted.kind, found.kind):
            return  # replaced in one step
        if wanted is not None and wanted.kind == found.kind:
            return
        with self._parent(path) as parent:
            self._check_unchanged(parent, path, found)
            _remove(parent, path[-1])

    def _put_back(self, path: Parts, wanted: SnapshotEntry) -> None:
        found = self._found.get(path)
        with self._parent(path) as parent:
            if found is not None and found.kind != "directory" and wanted.kind != "directory":
                self._check_unchanged(parent, path, found)
            elif wanted.kind != "directory":
                _check_absent(parent, path)
            match wanted.kind:
                case "directory":
                    _make_directory(parent, path)
                case "file":
                    self._file(parent, path, wanted)
                case "link":
                    os.symlink(wanted.content, self._temporary, dir_fd=parent)
                    _set_group(parent, self._temporary, wanted)
                    self._rename(parent, path[-1])
                case "other":
                    raise RollbackError(f"{text_of(path)}: was never held")
                case _:
                    assert_never(wanted.kind)

    def _file(self, parent: int, path: Parts, wanted: SnapshotEntry) -> None:
        descriptor = os.open(self._temporary, _CREATE, _PRIVATE, dir_fd=parent)
        try:
            self._contents.copy(wanted.content, lambda part: write_all(descriptor, part))
            if os.fstat(descriptor).st_gid != wanted.group:
                os.fchown(descriptor, -1, wanted.group)
            os.fchmod(descriptor, wanted.mode)
            os.utime(descriptor, ns=(wanted.modified_ns, wanted.modified_ns))
            os.fsync(descriptor)
        except BaseException:
            os.unlink(self._temporary, dir_fd=parent)
            raise
        finally:
            os.close(descriptor)
        self._rename(parent, path[-1])

    def _rename(self, parent: int, name: str) -> None:
        os.rename(self._temporary, name, src_dir_fd=parent, dst_dir_fd=parent)

    def _finish_times(self) -> None:
        """Set times, and modes of directories, the deepest first."""
        for path, wanted in sorted(self._before.items(), reverse=True):
            with suppress(FileNotFoundError), self._parent(path) as parent:
                found = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
                if wanted.kind == "directory" and stat.S_ISDIR(found.st_mode):
                    _finish_directory(parent, path[-1], wanted, found)
                if found.st_mtime_ns != wanted.modified_ns:
                    times = (wanted.modified_ns, wanted.modified_ns)
                    os.utime(path[-1], ns=times, dir_fd=parent, follow_symlinks=False)

    def _check_unchanged(self, parent: int, path: Parts, found: SnapshotEntry) -> None:
        """See once more that nobody wrote there since it was looked at."""
        now = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
        same = found.kind == "directory" or now.st_mtime_ns == found.modified_ns
        sized = found.kind != "file" or now.st_size == found.size
        if not same or not sized or _kind(now) != found.kind:
            raise _in_the_way(path)

    @contextmanager
    def _parent(self, path: Parts) -> Iterator[int]:
        with opened_directory(path[:-1]) as parent:
            yield parent


def open_up(path: Parts) -> None:
    """Make a directory one that we may read and write.

    Raises:
        OSError: it is not ours, or none any more.
    """
    with opened_directory(path[:-1]) as parent:
        mode = stat.S_IMODE(os.stat(path[-1], dir_fd=parent, follow_symlinks=False).st_mode)
        _set_mode(parent, path[-1], mode | _OURS)


def _remove(parent: int, name: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


def _make_directory(parent: int, path: Parts) -> None:
    try:
        os.mkdir(path[-1], _OURS, dir_fd=parent)
    except FileExistsError:
        found = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise _in_the_way(path) from None


def _check_absent(parent: int, path: Parts) -> None:
    # A rename would replace it without a word.
    with suppress(FileNotFoundError):
        os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
        raise _in_the_way(path)


def _in_the_way(path: Parts) -> RollbackError:
    return RollbackError(f"{text_of(path)}: is being changed; nothing more was put back")


def _finish_directory(parent: int, name: str, wanted: SnapshotEntry, found: os.stat_result) -> None:
    if found.st_gid != wanted.group:
        _set_group(parent, name, wanted)
    if stat.S_IMODE(found.st_mode) != wanted.mode or found.st_gid != wanted.group:
        _set_mode(parent, name, wanted.mode)


def _set_group(parent: int, name: str, wanted: SnapshotEntry) -> None:
    if os.stat(name, dir_fd=parent, follow_symlinks=False).st_gid != wanted.group:
        os.chown(name, -1, wanted.group, dir_fd=parent, follow_symlinks=False)


def _set_mode(parent: int, name: str, mode: int) -> None:
    """Of a directory. By its name a link in its place would be followed."""
    with opened_itself(parent, name) as descriptor:
        if hasattr(os, "O_PATH"):
            Path(f"/proc/self/fd/{descriptor}").chmod(mode)
        else:
            os.fchmod(descriptor, mode)


def _kind(found: os.stat_result) -> SnapshotEntryKind:
    if stat.S_ISDIR(found.st_mode):
        return "directory"
    if stat.S_ISREG(found.st_mode):
        return "file"
    return "link" if stat.S_ISLNK(found.st_mode) else "other"
