"""Bringing the changes of a command into the workspace, and taking them out again.

Theory of operation. Each step is one rename, which the kernel does whole or not at all, between the
upper directory of the view and the workspace. What was in the workspace comes to lie in the upper
directory under the same path, so that nothing is copied and nothing is destroyed:

    make     upper/a ──▶ workspace/a
    swap     upper/a ◀─▶ workspace/a
    remove   upper/a ◀── workspace/a      (the whiteout is removed first)

After each step it is compared what came out of the workspace with what was expected there. If
somebody changed it in the last moment, the step is taken back, and the change is a conflict. The
steps are written down before the first one. Which of them were done can be seen from the inodes, so
that the next start takes back what a killed proxy left half done.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import EntryIdentity, KeptBack, Step

_CHANGED = "it was changed in the workspace in the last moment"


class Applier:
    """Carries steps out between one upper directory and one workspace."""

    def __init__(self, upper: int, host: int, started_ns: int) -> None:
        """Begin with both directories opened, and the time of the file system at the start."""
        self._upper = upper
        self._host = host
        self._started_ns = started_ns
        self.conflicts: list[KeptBack] = []
        """The steps that were not done, and why."""

    def apply(self, steps: Iterable[Step]) -> list[Step]:
        """Carry the steps out, in their order. Return those that were done.

        Raises:
            OSError: such as a full disk. What was done is in the workspace; `take_back` it.
        """
        done: list[Step] = []
        with _Parents(self._upper, self._host) as parents:
            for step in steps:
                try:
                    with parents.of(step.path) as (upper, host, name):
                        why = self._step(step, upper, host, name)
                except OSError as error:
                    if error.errno not in _SOMEBODY_ELSE:
                        raise
                    why = _CHANGED
                if why is None:
                    done.append(step)
                else:
                    self.conflicts.append(KeptBack(step.path, why))
        return done

    def _step(self, step: Step, upper: int, host: int, name: bytes) -> str | None:
        match step.act:
            case "make":
                files.move(upper, name, host)
                return None
            case "swap":
                files.exchange(upper, name, host)
                if self._is_expected(upper, name, step.before):
                    return None
                files.exchange(upper, name, host)
                return _CHANGED
            case "remove":
                _remove_whiteout(upper, name)
                files.move(host, name, upper)
                if self._is_expected(upper, name, step.before):
                    return None
                files.move(upper, name, host)
                return _CHANGED
            case "mode":
                return _set_mode(host, name, step.before, step.after)

    def _is_expected(self, upper: int, name: bytes, before: EntryIdentity | None) -> bool:
        """Return whether what came out of the workspace is what was looked at."""
        found = files.look(upper, name)
        if found is None or files.identity(found) != before:
            return False
        if not stat.S_ISDIR(found.st_mode):
            return True
        return files.newest_change(upper, name) <= self._started_ns

    def take_back(self, steps: Iterable[Step]) -> list[KeptBack]:
        """Take back the steps that were done, the last one first. Return what stays, and why.

        A step that was not done, or was taken back already, is passed over.

        Raises:
            OSError: such as a full disk. It may be called again.
        """
        stays: list[KeptBack] = []
        with _Parents(self._upper, self._host) as parents:
            for step in reversed(list(steps)):
                try:
                    with parents.of(step.path) as (upper, host, name):
                        _take_back(step, upper, host, name)
                except OSError as error:
                    if error.errno not in _SOMEBODY_ELSE:
                        raise
                    stays.append(KeptBack(step.path, _CHANGED))
        return stays


def is_done(step: Step, upper: int, host: int, name: bytes) -> bool:
    """Return whether a step was carried out, by what lies on both sides."""
    here, there = files.look(upper, name), files.look(host, name)
    match step.act:
        case "make":
            return here is None and there is not None and _is(there, step.after)
        case "swap":
            return there is not None and _is(there, step.after)
        case "remove":
            return here is not None and _is(here, step.before)
        case "mode":
            return there is not None and _has_new_mode(there, step)


def _take_back(step: Step, upper: int, host: int, name: bytes) -> None:
    if not is_done(step, upper, host, name):
        return
    match step.act:
        case "make":
            files.move(host, name, upper)
        case "swap":
            files.exchange(upper, name, host)
        case "remove":
            files.move(upper, name, host)
        case "mode":
            _set_mode(host, name, step.after, step.before)


_SOMEBODY_ELSE = frozenset(
    {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENOTEMPTY, errno.EISDIR}
)
"""What the kernel answers where the workspace is not as it was when it was looked at."""


def _is(status: os.stat_result, identity: EntryIdentity | None) -> bool:
    return identity is not None and status.st_ino == identity.inode


def _has_new_mode(status: os.stat_result, step: Step) -> bool:
    return _is(status, step.before) and step.after is not None and status.st_mode == step.after.mode


def _remove_whiteout(upper: int, name: bytes) -> None:
    status = files.look(upper, name)
    if status is not None and stat.S_ISCHR(status.st_mode):
        os.unlink(name, dir_fd=upper)


def _set_mode(
    host: int, name: bytes, before: EntryIdentity | None, after: EntryIdentity | None
) -> str | None:
    """Set the mode of a directory. Return why not, if it is another one by now."""
    passed = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=host)
    try:
        found = os.fstat(passed)
        if before is None or after is None:
            return _CHANGED
        if found.st_mode != before.mode:
            return _CHANGED
        os.chmod(f"/proc/self/fd/{passed}", stat.S_IMODE(after.mode))  # noqa: PTH101  a descriptor has no other way
    finally:
        os.close(passed)
    return None


class _Parents:
    """The directories of consecutive steps, opened once for steps in the same directory."""

    def __init__(self, upper: int, host: int) -> None:
        self._roots = (upper, host)
        self._path: bytes | None = None
        self._opened: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @contextmanager
    def of(self, path: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Open the directories of a path in the upper directory and in the workspace."""
        above, _, name = path.rpartition(b"/")
        if self._opened is None or above != self._path:
            self._close()
            upper = files.open_below(self._roots[0], above)
            try:
                host = files.open_below(self._roots[1], above)
            except OSError:
                os.close(upper)
                raise
            self._path, self._opened = above, (upper, host)
        yield (*self._opened, name)

    def _close(self) -> None:
        if self._opened is not None:
            for descriptor in self._opened:
                os.close(descriptor)
        self._opened = None
