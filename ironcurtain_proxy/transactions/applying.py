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
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Self

from ironcurtain_proxy.control_places.rules import folded, looks_like_repository
from ironcurtain_proxy.private_files import closed_after
from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import EntryIdentity, KeptBack, Step
from ironcurtain_proxy.transactions.control import names_that_decide
from ironcurtain_proxy.transactions.merging import INDEX
from ironcurtain_proxy.transactions.moving import STAYS, sources_of, staying

_CHANGED = "it was changed in the workspace in the last moment"
_CHANGED_SINCE = "it was changed in the workspace since"
_OPEN = "another program has it open to write into it"
_BECAME = "a repository came about around it in the workspace"


class Applier:
    """Carries steps out between one upper directory and one workspace."""

    def __init__(self, upper: int, host: int, started_ns: int) -> None:
        """Begin with both directories opened, and the time of the file system at the start."""
        self._upper = upper
        self._host = host
        self._started_ns = started_ns
        self._moved: frozenset[int] = frozenset()
        self.conflicts: list[KeptBack] = []
        """The steps that were not done, and why."""

    def apply(
        self,
        steps: Collection[Step],
        judged_as: Mapping[bytes, Collection[str]],
        moved: Mapping[bytes, Collection[bytes]],
    ) -> None:
        """Carry the steps out, in their order. See `conflicts` for those that were not done.

        Args:
            steps: all steps.
            judged_as: see `Changes`.
            moved: see `Changes`.

        Raises:
            OSError: such as a full disk. What was done is in the workspace; `take_back` it.
        """
        done: list[Step] = []
        self._moved = _moved(steps)
        became = repositories_since(steps, judged_as, self._host)
        with _Parents(self._upper, self._host) as parents:
            for step in steps:
                if any(not path or step.path.startswith(path + b"/") for path in became):
                    self.conflicts.append(KeptBack(step.path, _BECAME))
                    continue
                try:
                    with parents.of(step.path) as (upper, host, name):
                        why = self._step(step, upper, host, name)
                except OSError as error:
                    if error.errno not in _SOMEBODY_ELSE:
                        # Such as a file to which may only be appended (`chattr +a`).
                        raise OSError(error.errno, error.strerror, os.fsdecode(step.path)) from None
                    why = _CHANGED
                if why is None:
                    done.append(step)
                else:
                    self.conflicts.append(KeptBack(step.path, why))
            sources = sources_of(moved)
            for step in reversed(done):
                self._give_back(step, parents, "", is_moved=step.path in sources)
            held = staying(moved, [one.path for one in self.conflicts])
            for step in [step for step in reversed(done) if step.path in held]:
                self._give_back(step, parents, STAYS)

    def _give_back(
        self, step: Step, parents: "_Parents", why: str, *, is_moved: bool = False
    ) -> None:
        """Give back what was taken out, for this reason, or if somebody else writes there."""
        try:
            with parents.of(step.path) as (upper, host, name):
                why = why or self._why_back(step, upper, host, name, is_moved=is_moved)
                if not why or step.act == "mode":
                    return
                now = files.look(host, name)
                if step.act == "remove":
                    files.move(upper, name, host)
                elif step.act == "swap" and now and files.identity(now) == step.after:
                    files.exchange(upper, name, host)
        except OSError as error:
            if error.errno not in _SOMEBODY_ELSE:
                raise
            why = why or _CHANGED
        self.conflicts.append(KeptBack(step.path, why))

    def _why_back(self, step: Step, upper: int, host: int, name: bytes, *, is_moved: bool) -> str:
        """Return who else writes to what a step took out or brought, or nothing if nobody does.

        Who has a file open writes into that file, wherever it lies by now: what is written there
        later would be gone with the view. A file that is removed is gone for that one anyway.
        """
        if step.act in {"swap", "remove"} and not self._is_expected(upper, name, step.before):
            return _CHANGED
        if (step.act == "swap" or is_moved) and files.is_written(upper, name):
            return _OPEN
        if step.act in {"make", "swap"} and name != INDEX:
            now = files.look(host, name)
            # Git reads its index again at any time.
            if now is None or files.identity(now) != step.after:
                return _CHANGED
        return ""

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
        return files.newest_change(upper, name, moved=self._moved) <= self._started_ns

    def take_back(self, steps: Iterable[Step], prepared_ns: int) -> list[KeptBack]:
        """Take back the steps that were done, the last one first. Return what stays, and why.

        A step that was not done, or was taken back already, is passed over. What somebody changed
        after it came into the workspace stays: it would be lost with the view.

        Args:
            steps: all steps, in their order.
            prepared_ns: the time of the file system when the changes were written down.

        Raises:
            OSError: such as a full disk. It may be called again.
        """
        stays: list[KeptBack] = []
        steps = list(steps)
        moved = _moved(steps)
        with _Parents(self._upper, self._host) as parents:
            for step in reversed(steps):
                try:
                    with parents.of(step.path) as (upper, host, name):
                        if not _take_back(step, upper, host, name, prepared_ns, moved):
                            stays.append(KeptBack(step.path, _CHANGED_SINCE))
                except OSError as error:
                    if error.errno not in _SOMEBODY_ELSE:
                        raise
                    stays.append(KeptBack(step.path, _CHANGED))
        return stays


def repositories_since(
    steps: Iterable[Step], judged_as: Mapping[bytes, Collection[str]], host: int
) -> list[bytes]:
    """Return the directories that are repositories now, or will be, other than when judged.

    Two commands that ran at once were each judged without the other: one makes settings in a
    directory that is none, and the other one makes it a repository.
    """
    made: dict[bytes, set[str]] = {}
    for step in steps:
        if step.act != "remove":
            above, _, name = step.path.rpartition(b"/")
            made.setdefault(above, set()).add(folded(os.fsdecode(name)))
    found: list[bytes] = []
    for path, before in judged_as.items():
        with suppress(OSError), files.below(host, path) as directory:
            now = names_that_decide(directory)
            together = now | made.get(path, set())
            is_by_name = folded(os.fsdecode(path.rpartition(b"/")[2])) == ".git"
            if not is_by_name and not now.issubset(before) and looks_like_repository(together):
                found.append(path)
    return found


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


def _moved(steps: Iterable[Step]) -> frozenset[int]:
    """Return the inodes that the steps rename: of a hard link, another name may be in a tree."""
    return frozenset(
        [one.inode for step in steps for one in (step.before, step.after) if one is not None]
    )


def _take_back(
    step: Step, upper: int, host: int, name: bytes, prepared_ns: int, moved: Collection[int]
) -> bool:
    """Take a step back. Return False if somebody has changed since what it brought."""
    if not is_done(step, upper, host, name):
        # What it replaced lies in the view, and something else than it brought in its place.
        old = files.look(upper, name)
        return step.act != "swap" or old is None or not _is(old, step.before)
    if step.act in {"make", "swap"} and not _is_untouched(step, host, name, prepared_ns, moved):
        return False
    match step.act:
        case "make":
            files.move(host, name, upper)
        case "swap":
            files.exchange(upper, name, host)
        case "remove":
            files.move(upper, name, host)
        case "mode":
            _set_mode(host, name, step.after, step.before)
    return True


def _is_untouched(
    step: Step, host: int, name: bytes, prepared_ns: int, moved: Collection[int]
) -> bool:
    """Return whether what a step brought is as it came: the step itself set its time of change."""
    found = files.look(host, name)
    if found is None or files.identity(found) != step.after:
        return False
    if not stat.S_ISDIR(found.st_mode):
        return True
    return files.newest_change(host, name, moved=moved) <= prepared_ns


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
        with files.open_to_owner(upper):
            os.unlink(name, dir_fd=upper)


def _set_mode(
    host: int, name: bytes, before: EntryIdentity | None, after: EntryIdentity | None
) -> str | None:
    """Set the mode of a directory. Return why not, if it is another one by now."""
    with closed_after(
        os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=host)
    ) as passed:
        found = os.fstat(passed)
        if before is None or after is None:
            return _CHANGED
        if found.st_mode != before.mode:
            return _CHANGED
        os.chmod(f"/proc/self/fd/{passed}", stat.S_IMODE(after.mode))  # noqa: PTH101  a descriptor has no other way
    return None


class _Parents:
    """The directories of consecutive steps, opened once for steps in the same directory."""

    def __init__(self, upper: int, host: int) -> None:
        self._roots = (upper, host)
        self._path: bytes | None = None
        self._opened: tuple[int, int] | None = None
        self._stack = ExitStack()

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
            upper, host = (
                self._stack.enter_context(files.below(one, above)) for one in self._roots
            )
            self._path, self._opened = above, (upper, host)
        yield (*self._opened, name)

    def _close(self) -> None:
        self._opened = None
        self._stack.close()
