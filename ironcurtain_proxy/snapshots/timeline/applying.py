"""The restoring of paths: each file completely or not at all, without links, in the workspace only.

A file is written beside and renamed over, so that a hard link from elsewhere keeps its content. An
interrupted restore can be repeated.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, assert_never

from ironcurtain_proxy.snapshots.faults import RollbackError
from ironcurtain_proxy.snapshots.timeline.blobs import Blobs, DamagedError
from ironcurtain_proxy.snapshots.timeline.entry import Entry, Tree, mates, parent_of
from ironcurtain_proxy.snapshots.timeline.opening import PASSED, OpenedRoot
from ironcurtain_proxy.snapshots.timeline.planning import RollbackPlan, RollbackStep
from ironcurtain_proxy.snapshots.timeline.reading import is_as_seen

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVABLE: Final = ("user.", "system.posix_acl_")
_PRIVATE: Final = 0o600
_OURS: Final = 0o700
TEMPORARY: Final = ".ironcurtain-rollback.tmp"
"""The name of a file while it is written, in its directory; one that was left is written over."""


class Application:
    """The restoring of a plan's paths."""

    def __init__(self, root: OpenedRoot, blobs: Blobs, plan: RollbackPlan, now: Tree) -> None:
        """Set the plan and the current state."""
        self._root = root
        self._blobs = blobs
        self._plan = plan
        self._now = now
        self._mates = mates(plan.target.items())
        self._shared = self._mates.keys() | mates(now.items()).keys()
        self._pending = {step.path for step in plan.steps}
        self.stayed: list[str] = []
        """Directories with unscanned content, such as a cache."""

    def apply(self) -> None:
        """Restore the paths.

        Raises:
            RollbackError: it could not be done; it may be tried again.
        """
        try:
            opened = self._open_up()
            for step in reversed(self._plan.steps):
                self._take_away(step)
            for step in self._plan.steps:
                self._put_back(step)
            self._finish_directories(opened)
        except OSError as error:
            raise RollbackError(
                f"{error.filename or 'a path'}: {error.strerror}; what is missing can be put back "
                "by running it again"
            ) from None

    def _open_up(self) -> list[str]:
        """Make the changed directories writable; their modes are set later."""
        opened = []
        for path in sorted(_above(step.path for step in self._plan.steps)):
            entry = self._now.get(path)
            if entry is not None and entry.kind == "directory":
                opened.append(path)
                if entry.mode & _OURS != _OURS:
                    self._set_mode(path, entry.mode | _OURS)
        return opened

    def _take_away(self, step: RollbackStep) -> None:
        """Remove paths that the plan does not have, and directories where it has another kind."""
        present, wanted = self._now.get(step.path), self._plan.target.get(step.path)
        if present is None or (
            wanted is not None and "directory" not in (wanted.kind, present.kind)
        ):
            return
        if wanted is not None and wanted.kind == present.kind:
            return
        with self._parent(step.path) as (parent, name):
            if present.kind != "directory":
                self._check(parent, name, step.path)
                os.unlink(name, dir_fd=parent)
                return
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or wanted is not None:
                    raise _named(error, step.path) from None
                self.stayed.append(step.path)
                self._set_mode(step.path, present.mode)

    def _put_back(self, step: RollbackStep) -> None:
        wanted = self._plan.target.get(step.path)
        if wanted is None:
            return
        with self._parent(step.path) as (parent, name):
            if wanted.kind == "directory":
                with suppress(FileExistsError):
                    os.mkdir(name, _OURS, dir_fd=parent)
                return
            # A mode is that of all names of a file.
            if step.act == "mode" and step.path not in self._shared:
                self._check(parent, name, step.path)
                _set_mode_of(parent, name, wanted.mode)
            else:
                self._check(parent, name, step.path)
                with suppress(FileNotFoundError):
                    os.unlink(TEMPORARY, dir_fd=parent)
                self._make(parent, step.path, wanted)
                os.rename(TEMPORARY, name, src_dir_fd=parent, dst_dir_fd=parent)
            # Of two names of one file, a rename of one to the other does nothing.
            with suppress(FileNotFoundError):
                os.unlink(TEMPORARY, dir_fd=parent)
        self._pending.discard(step.path)

    def _make(self, parent: int, path: str, wanted: Entry) -> None:
        match wanted.kind:
            case "file":
                if not self._link(parent, path):
                    self._file(parent, path, wanted)
            case "link":
                os.symlink(wanted.content, TEMPORARY, dir_fd=parent)
                _set_time(parent, TEMPORARY, wanted)
            case "pipe":
                os.mkfifo(TEMPORARY, _PRIVATE, dir_fd=parent)
                _set_mode_of(parent, TEMPORARY, wanted.mode)
                _set_time(parent, TEMPORARY, wanted)
            case "directory" | "special" | "lost":
                raise RollbackError(f"{path}: was never held")
            case _:
                assert_never(wanted.kind)

    def _link(self, parent: int, path: str) -> bool:
        """Link the path to a restored file, if it was another name of it."""
        for mate in sorted(self._mates.get(path, frozenset()) - {path}):
            if mate in self._pending:
                continue
            try:
                with self._parent(mate) as (source, name):
                    os.link(
                        name, TEMPORARY, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False
                    )
            except OSError:
                continue
            return True
        return False

    def _file(self, parent: int, path: str, wanted: Entry) -> None:
        descriptor = os.open(TEMPORARY, _CREATE, _PRIVATE, dir_fd=parent)
        try:
            self._blobs.restore(wanted.content, descriptor)
            for name, value in wanted.attributes:
                os.setxattr(descriptor, name, bytes.fromhex(value))
            os.fchmod(descriptor, wanted.mode)
            os.utime(descriptor, ns=(wanted.mtime_ns, wanted.mtime_ns))
        except DamagedError:
            raise RollbackError(f"{path}: the copy is gone or damaged") from None
        except OSError as error:
            raise _named(error, path) from None
        finally:
            os.close(descriptor)

    def _check(self, parent: int, name: str, path: str) -> None:
        """Check again that the path is unchanged since the scan."""
        present = self._now.get(path)
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            if present is None or present.kind == "directory":
                return
            raise _in_the_way(path) from None
        if present is None or present.kind == "directory":
            raise _in_the_way(path)
        # A hard link that was cut or made by this very rollback has a new time.
        if not is_as_seen(present, found) and path not in self._shared:
            raise _in_the_way(path)

    def _finish_directories(self, opened: list[str]) -> None:
        """Set modes and times, the deepest first."""
        made = [step.path for step in self._plan.steps]
        for path in sorted({*opened, *made}, reverse=True):
            wanted = self._plan.target.get(path)
            if wanted is None or wanted.kind != "directory":
                continue
            with self._parent(path) as (parent, name):
                _set_attributes(parent, name, wanted)
                _set_mode_of(parent, name, wanted.mode)
                _set_time(parent, name, wanted)

    def _set_mode(self, path: str, mode: int) -> None:
        with self._parent(path) as (parent, name):
            _set_mode_of(parent, name, mode)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        with self._root.directory(parent_of(path), PASSED) as parent:
            yield parent, path.rpartition("/")[2]


def _above(paths: Iterable[str]) -> set[str]:
    """All directories that paths are in, at whatever depth."""
    found: set[str] = set()
    for path in paths:
        above = parent_of(path)
        while above and above not in found:
            found.add(above)
            above = parent_of(above)
    return found


def open_unlisted(root: OpenedRoot, path: str, mode: int) -> bool:
    """Give a directory its permissions back, so that it can be looked into. False: it cannot."""
    try:
        with root.directory(parent_of(path), PASSED) as parent:
            _set_mode_of(parent, path.rpartition("/")[2], mode | _OURS)
    except OSError:
        return False
    return True


def _set_mode_of(parent: int, name: str, mode: int) -> None:
    """Set the mode through a descriptor, because a name could be a link by now."""
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            return
        if hasattr(os, "O_PATH"):
            Path(f"/proc/self/fd/{descriptor}").chmod(mode)
        else:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _set_attributes(parent: int, name: str, wanted: Entry) -> None:
    """Give a directory its extended attributes, and no others."""
    if not hasattr(os, "listxattr"):
        return
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        present = {one: os.getxattr(descriptor, one) for one in os.listxattr(descriptor)}
        target = {one: bytes.fromhex(value) for one, value in wanted.attributes}
        for one in present.keys() - target.keys():
            # Labels of the system's own stay.
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


def _named(error: OSError, path: str) -> OSError:
    return OSError(error.errno, error.strerror, path)


def _in_the_way(path: str) -> RollbackError:
    return RollbackError(f"{path}: is being changed; nothing more was put back")
