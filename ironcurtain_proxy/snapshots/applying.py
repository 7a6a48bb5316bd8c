"""The restoring of paths: each file completely or not at all, without links, in the workspace only.

A file is made in `staging` and then gets its name. Only one that still is the file that it was, and
has a name outside of the workspace, gets its content in place: so what was written there through
this name is taken back, too. An interrupted restore can be repeated. What stands in the way of one
path does not keep the others from being restored: otherwise a process that never rests could
prevent all of it.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from ironcurtain_proxy.private_files import closed_after, opened_to_owner
from ironcurtain_proxy.snapshots.history import Entry, Tree, mates, parent_of
from ironcurtain_proxy.snapshots.log import Blobs, DamagedError
from ironcurtain_proxy.snapshots.opening import PASSED, OpenedRoot
from ironcurtain_proxy.snapshots.planning import Act, RollbackError, RollbackPlan
from ironcurtain_proxy.snapshots.reading import (
    InTheWayError,
    IsExpected,
    StagedName,
    Staging,
    is_as_seen,
    unlock,
)

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVABLE: Final = ("user.", "system.posix_acl_")
_PRIVATE: Final = 0o600
_OURS: Final = 0o700
_HOPELESS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors that every further path would meet, too."""


class Application:
    """The restoring of a plan's paths."""

    def __init__(
        self,
        root: OpenedRoot,
        blobs: Blobs,
        staging: Staging,
        plan: RollbackPlan,
        now: Tree,
        *,
        force: bool,
    ) -> None:
        """Set the plan and the current state; `force`: whatever stands in the way is replaced."""
        self._root = root
        self._blobs = blobs
        self._staging = staging
        self._plan = plan
        self._now = now
        self._force = force
        self._mates, self._present_mates = mates(plan.target.items()), mates(now.items())
        self._retimed = {*self._mates, *self._present_mates}
        """Paths whose time this very rollback changes: it cuts and makes hard links."""
        self._pending = {step.path for step in plan.steps}
        self.stayed: list[str] = []
        """Directories with unscanned content, such as a cache."""
        self.aside: dict[str, str] = {}
        """Directories with unscanned content that were in the way, and where they are now."""
        self.failed: dict[str, str] = {}
        """Paths that could not be restored, with the reasons."""

    def apply(self) -> None:
        """Restore the paths, as many as possible; see `failed`.

        Raises:
            RollbackError: the disk is full or broken; it may be tried again.
        """
        opened = self._open_up()
        for step in reversed(self._plan.steps):
            if self._must_go(step.path):
                self._try(step.path, self._take_away)
        for step in self._plan.steps:
            if step.path in self._plan.target and step.path not in self.failed:
                self._try(step.path, partial(self._put_back, step.act))
        self._finish_directories(opened)

    def _try(self, path: str, deed: Callable[[int, str, str], None]) -> None:
        try:
            with self._root.directory(parent_of(path), PASSED) as parent:
                name = path.rpartition("/")[2]
                try:
                    deed(parent, name, path)
                except PermissionError:
                    if not unlock(parent, name):
                        raise
                    self._retimed.add(path)
                    deed(parent, name, path)
        except InTheWayError:
            self.failed[path] = "is being changed by another process"
        except RollbackError as error:
            self.failed[path] = str(error)
        except OSError as error:
            if error.errno in _HOPELESS:
                raise RollbackError(
                    f"{path}: {error.strerror}; what is missing can be put back by running it again"
                ) from None
            self.failed[path] = str(error.strerror or error)

    def _open_up(self) -> list[str]:
        """Make the changed directories writable; their modes are set later."""
        opened = []
        for path in sorted(_above(step.path for step in self._plan.steps)):
            entry = self._now.get(path)
            if entry is not None and entry.kind == "directory":
                opened.append(path)
                if entry.mode & _OURS != _OURS:
                    self._try(path, partial(_open_directory, entry.mode | _OURS))
        return opened

    def _must_go(self, path: str) -> bool:
        """Return True if the plan has no such path, or one of the two alone is a directory."""
        present, wanted = self._now.get(path), self._plan.target.get(path)
        if present is None or wanted is None:
            return present is not None
        return wanted.kind != present.kind and "directory" in (wanted.kind, present.kind)

    def _take_away(self, parent: int, name: str, path: str) -> None:
        present, wanted = self._now[path], self._plan.target.get(path)
        if present.kind != "directory":
            self._staging.take(parent, name, partial(self._is_expected, path))
            return
        try:
            os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if wanted is not None:
                self.aside[path] = self._staging.move_aside(parent, name)
                return
            self.stayed.append(path)
            set_mode_of(parent, name, present.mode)

    def _put_back(self, act: Act, parent: int, name: str, path: str) -> None:
        wanted = self._plan.target[path]
        expected = partial(self._is_expected, path)
        if wanted.kind == "directory":
            with suppress(FileExistsError):
                os.mkdir(name, _OURS, dir_fd=parent)
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise InTheWayError
        # A mode is that of all names of a file.
        elif act == "mode" and path not in self._retimed:
            set_mode_of(parent, name, wanted.mode, expected)
        else:
            staged = self._staging.place(parent)
            try:
                made = self._make(staged, path, wanted)
                if self._has_name_outside(path, wanted):
                    self._rewrite(parent, name, path, wanted)
                else:
                    self._staging.put(staged, made, parent, name, expected)
            except OSError as error:
                if error.errno != errno.EXDEV or not self._staging.is_private:
                    raise
                self._staging.share_nothing()
                self._put_back(act, parent, name, path)
            finally:
                self._staging.discard(staged)
            self._pending.discard(path)

    def _make(self, staged: StagedName, path: str, wanted: Entry) -> os.stat_result:
        """Make what is wanted under a name that nobody knows."""
        directory, name = staged
        match wanted.kind:
            case "file":
                if not self._link(staged, path):
                    return self._file(staged, wanted)
            case "link":
                os.symlink(wanted.content, name, dir_fd=directory)
                _set_time(directory, name, wanted)
            case "pipe":
                os.mkfifo(name, _PRIVATE, dir_fd=directory)
                set_mode_of(directory, name, wanted.mode)
                _set_time(directory, name, wanted)
            case "directory" | "special" | "lost":
                raise RollbackError("it was never held")
            case _:
                assert_never(wanted.kind)
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def _link(self, staged: StagedName, path: str) -> bool:
        """Link the path to a restored file, if it was another name of it."""
        for mate in sorted(self._mates.get(path, frozenset()) - {path}):
            if mate in self._pending:
                continue
            try:
                with self._root.directory(parent_of(mate), PASSED) as source:
                    os.link(
                        mate.rpartition("/")[2],
                        staged.name,
                        src_dir_fd=source,
                        dst_dir_fd=staged.directory,
                        follow_symlinks=False,
                    )
            except OSError:
                continue
            return True
        return False

    def _file(self, staged: StagedName, wanted: Entry) -> os.stat_result:
        made = os.open(staged.name, _CREATE, _PRIVATE, dir_fd=staged.directory)
        with closed_after(made) as descriptor:
            self._fill(descriptor, wanted)
            return os.fstat(descriptor)

    def _fill(self, descriptor: int, wanted: Entry) -> None:
        """Give an empty file what is wanted."""
        try:
            self._blobs.restore(wanted.content, descriptor)
        except DamagedError:
            raise RollbackError("the copy is gone or damaged") from None
        for name, value in wanted.attributes:
            os.setxattr(descriptor, name, bytes.fromhex(value))
        os.fchmod(descriptor, wanted.mode)
        os.utime(descriptor, ns=(wanted.mtime_ns, wanted.mtime_ns))

    def _has_name_outside(self, path: str, wanted: Entry) -> bool:
        """Return whether a file still is what it was, and had a name elsewhere all the time.

        Its number cannot have become another file's, because that name kept it.
        """
        present = self._now.get(path)
        if present is None or not wanted.kind == present.kind == "file":
            return False
        inside = [len(known.get(path, (path,))) for known in (self._mates, self._present_mates)]
        has_more = wanted.names > inside[0] and present.names > inside[1]
        return has_more and wanted.inode == present.inode

    def _rewrite(self, parent: int, name: str, path: str, wanted: Entry) -> None:
        """Give a file its content under all its names, after the copy was found to be whole."""
        if not self._now[path].mode & stat.S_IWUSR:
            set_mode_of(parent, name, _PRIVATE, partial(self._is_expected, path))
            self._retimed.add(path)
        with closed_after(os.open(name, _WRITE, dir_fd=parent)) as descriptor:
            found = os.fstat(descriptor)
            # By force, too, this is never another file that has come to the name meanwhile.
            if found.st_ino != wanted.inode or not self._is_expected(path, found):
                raise InTheWayError
            os.ftruncate(descriptor, 0)
            self._fill(descriptor, wanted)

    def _is_expected(self, path: str, found: os.stat_result | None) -> bool:
        """Return whether a path is unchanged since the scan, or may be replaced anyhow."""
        present = self._now.get(path)
        if found is None:
            return self._force or present is None or present.kind == "directory"
        if self._force:
            return not stat.S_ISDIR(found.st_mode)
        if present is None or present.kind == "directory":
            return False
        return is_as_seen(present, found) or path in self._retimed

    def _finish_directories(self, opened: list[str]) -> None:
        """Set modes and times, the deepest first."""
        made = [step.path for step in self._plan.steps]
        for path in sorted({*opened, *made}, reverse=True):
            wanted = self._plan.target.get(path)
            if wanted is not None and wanted.kind == "directory":
                self._try(path, partial(_finish_directory, wanted))


def _open_directory(mode: int, parent: int, name: str, _path: str) -> None:
    set_mode_of(parent, name, mode)


def _finish_directory(wanted: Entry, parent: int, name: str, _path: str) -> None:
    _set_attributes(parent, name, wanted)
    set_mode_of(parent, name, wanted.mode)
    _set_time(parent, name, wanted)


def _above(paths: Iterable[str]) -> set[str]:
    """Return all directories that paths are in, at whatever depth."""
    found: set[str] = set()
    for path in paths:
        above = parent_of(path)
        while above and above not in found:
            found.add(above)
            above = parent_of(above)
    return found


def set_mode_of(parent: int, name: str, mode: int, expected: IsExpected = lambda _: True) -> None:
    """Set the mode through a descriptor, because a name could be a link by now.

    Raises:
        InTheWayError: it is not what is expected.
    """
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
    with closed_after(os.open(name, flags, dir_fd=parent)) as descriptor:
        found = os.fstat(descriptor)
        if not expected(found):
            raise InTheWayError
        if stat.S_ISLNK(found.st_mode):
            return
        if hasattr(os, "O_PATH"):
            Path(f"/proc/self/fd/{descriptor}").chmod(mode)
        else:
            os.fchmod(descriptor, mode)


def _set_attributes(parent: int, name: str, wanted: Entry) -> None:
    """Give a directory its extended attributes, and no others."""
    if not hasattr(os, "listxattr"):
        return
    with opened_to_owner(parent, name):
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        present = {one: os.getxattr(descriptor, one) for one in os.listxattr(descriptor)}
        target = {one: bytes.fromhex(value) for one, value in wanted.attributes}
        for one in present.keys() - target.keys():
            # Other attributes, such as SELinux labels, are set by the system and stay.
            if one.startswith(_REMOVABLE):
                os.removexattr(descriptor, one)
        for one, value in target.items():
            if present.get(one) != value:
                os.setxattr(descriptor, one, value)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
    finally:
        os.close(descriptor)


def _set_time(parent: int, name: str, wanted: Entry) -> None:
    times = (wanted.mtime_ns, wanted.mtime_ns)
    os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)
