"""One transaction: a view, what was changed in it, and the end of both.

    store/SESSION/4f1c…/   a name that nobody foresees, for this user alone
        upper/ work/       the layers of the overlay; `upper` holds the old contents afterwards
        aside/             what does not come into the workspace
        prepared           the changes, once the command has ended
        index              git's index as it was before the command, if the command changed it
        journal            the steps of `prepared`, while they are done

The process that runs the command prepares its changes, and the process that answers for the
workspace commits them, or discards them. A view without a journal has changed nothing. One with a
journal was being committed when its process was killed: the next start takes it back.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.control_places.git_files import (
    MOST_READ,
    UnreadableIndexError,
    hash_length_of,
    merged,
)
from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.applying import Applier
from ironcurtain_proxy.transactions.changes import Changes, KeptBack, Step
from ironcurtain_proxy.transactions.control import Control
from ironcurtain_proxy.transactions.walking import Walk

_UPPER, _WORK, _ASIDE = "upper", "work", "aside"
_PREPARED, _JOURNAL, _NEW, _LOCK = "prepared", "journal", "new", "lock"
_BASE, _MERGED = "index", "merged"
_INDEX: Final = b".git/index"
"""The file of which two changes are merged: that of the workspace's own repository."""
_BEING_WRITTEN: Final = b"index.lock"
_PATIENCE: Final = 2.0
"""Seconds that a commit waits for the user's git to have written the index."""
_PAUSE: Final = 0.01
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE: Final = 0o700
_VERSION: Final = 1


class Prepared(Struct, frozen=True, array_like=True):
    """The changes of an ended command, as they are written down."""

    version: int
    workspace: bytes
    device: int
    inode: int
    """Of the workspace: another directory at its path is left alone."""
    started_ns: int
    """The time of the file system before the command began."""
    changes: Changes


class CommandView:
    """The private directories of one view, for a command to run in."""

    def __init__(self, session: Path, workspace: str) -> None:
        """Make the directories.

        Args:
            session: the directory of the session in the store, on the workspace's file system.
            workspace: the directory that the view shows.

        Raises:
            OSError: the workspace cannot be opened, or the directories cannot be made.
        """
        self.workspace = workspace
        self.directory = session / secrets.token_hex(16)
        self._host = os.open(workspace, files.DIRECTORY)
        try:
            self.directory.mkdir(_PRIVATE)
            for name in (_UPPER, _WORK, _ASIDE):
                (self.directory / name).mkdir(_PRIVATE)
            # The top of the view has the mode of the upper directory.
            status = os.fstat(self._host)
            (self.directory / _UPPER).chmod(stat.S_IMODE(status.st_mode))
        except OSError:
            os.close(self._host)
            raise
        self._started_ns = (self.directory / _UPPER).stat().st_ctime_ns
        self._index: int | None = None
        with suppress(OSError), files.below(self._host, b".git") as git:
            # Git replaces the file, and never writes into it.
            self._index = os.open(b"index", _READ, dir_fd=git)

    def arguments(
        self,
        argv: Sequence[str],
        status: int,
        *,
        namespaces: str = "-",
        limits: str = "-",
    ) -> list[str]:
        """Return the arguments of `mounting` that run a command in the view.

        Args:
            argv: the command, in walls of its own: it can write wherever the user can.
            status: the descriptor that gets the exit status once nothing of the command lives.
            namespaces: the descriptors for `mounting`.
            limits: the limits for `mounting`.
        """
        layers = [self.workspace, *[str(self.directory / name) for name in (_UPPER, _WORK)]]
        return [namespaces, limits, str(status), *layers, "--", *argv]

    def prepare(self, control: Control) -> Changes:
        """Look at what was changed, and write it down for `commit` if it is anything.

        No process of the view may live any more.

        Raises:
            RefusedChangesError: the changes cannot come into the workspace as a whole.
            OSError: something cannot be read, or such as a full disk.
        """
        upper = os.open(self.directory / _UPPER, files.DIRECTORY)
        try:
            aside = os.open(self.directory / _ASIDE, files.DIRECTORY)
            try:
                merges = () if self._index is None else (_INDEX,)
                walk = Walk(upper, self._host, aside, self._started_ns, control, merges)
                found = walk.changes()
            finally:
                os.close(aside)
        finally:
            os.close(upper)
        if found.is_nothing:
            return found
        if self._index is not None and any(step.path == _INDEX for step in found.steps):
            (self.directory / _BASE).write_bytes(_content(self._index))
        host = os.fstat(self._host)
        prepared = Prepared(
            _VERSION,
            os.fsencode(self.workspace),
            host.st_dev,
            host.st_ino,
            self._started_ns,
            found,
        )
        _write(self.directory, _PREPARED, prepared)
        return found

    def close(self) -> None:
        """Let go of the workspace. The directories stay for `commit` or `discard`."""
        os.close(self._host)
        if self._index is not None:
            os.close(self._index)


def read_prepared(directory: Path) -> Prepared:
    """Return what was prepared in a view.

    Raises:
        OSError: nothing was.
        msgspec.MsgspecError: what is written there is damaged.
    """
    return msgspec.msgpack.decode((directory / _PREPARED).read_bytes(), type=Prepared)


def commit(directory: Path) -> list[KeptBack]:
    """Bring the prepared changes of a view into the workspace.

    Returns:
        What did not come into it after all, because somebody changed it in the last moment.

    Raises:
        OSError: such as a full disk. The workspace is as it was.
        msgspec.MsgspecError: what is written there is damaged.
    """
    prepared = read_prepared(directory)
    with _one_at_a_time(directory.parent.parent), _opened(directory, prepared) as (upper, host):
        prepared = _with_shared_objects(directory, prepared, upper, host)
        prepared, late = _with_merged_index(directory, prepared, upper, host)
        changes = prepared.changes
        journal = (directory / _PREPARED).rename(directory / _JOURNAL)
        applier = Applier(upper, host, prepared.started_ns)
        try:
            applier.apply(changes.steps, changes.judged_as)
        except BaseException:
            if not applier.take_back(changes.steps, journal.stat().st_mtime_ns):
                journal.unlink()
            raise
        journal.unlink()
    return [*late, *applier.conflicts]


def _with_shared_objects(directory: Path, prepared: Prepared, upper: int, host: int) -> Prepared:
    """Let new objects of git come into a directory that somebody else has made meanwhile.

    Their names are their content: nothing of this kind is a conflict.
    """
    steps: list[Step] = []
    for step in prepared.changes.steps:
        is_of_objects = step.act == "make" and _OBJECTS.search(step.path) is not None
        steps += _each_object(step, upper, host) if is_of_objects else [step]
    if (*steps,) == prepared.changes.steps:
        return prepared
    found = replace(prepared, changes=replace(prepared.changes, steps=tuple(steps)))
    _write(directory, _PREPARED, found)
    return found


def _each_object(step: Step, upper: int, host: int) -> list[Step]:
    """Return the steps that bring in what a directory of objects lacks, or the step itself."""
    found: list[Step] = []
    try:
        with files.below(host, step.path) as theirs, files.below(upper, step.path) as ours:
            for name in sorted(map(os.fsencode, os.listdir(ours))):  # noqa: PTH208  of a descriptor
                if files.look(theirs, name) is None:
                    made = files.identity(os.stat(name, dir_fd=ours, follow_symlinks=False))
                    found.append(Step("make", step.path + b"/" + name, None, made))
    except OSError:
        return [step]  # there is none
    return found


_OBJECTS: Final = re.compile(rb"(?:^|/)\.git/objects/[0-9a-f]{2}\Z")


def _with_merged_index(
    directory: Path, prepared: Prepared, upper: int, host: int
) -> tuple[Prepared, list[KeptBack]]:
    """Merge a changed index with what the workspace has by now, path by path.

    Two commands that ran at once, or the user's own git meanwhile, have changed one file and mean
    different entries of it.

    Returns:
        What to commit, and the index as a conflict where both sides changed the same path.
    """
    steps = prepared.changes.steps
    step = next((one for one in steps if one.path == _INDEX and one.act == "swap"), None)
    if step is None or not (directory / _BASE).exists():
        return prepared, []
    rest = tuple([one for one in steps if one is not step])
    with suppress(*_NO_INDEX), files.below(host, b".git") as theirs:
        now = _written_index(theirs)
        if files.identity(now) == step.before and now.st_ctime_ns <= prepared.started_ns:
            return prepared, []
        with files.below(upper, b".git") as ours:
            mine = os.stat(b"index", dir_fd=ours, follow_symlinks=False)
            content = merged(
                (directory / _BASE).read_bytes(),
                _file(ours, b"index"),
                _file(theirs, b"index"),
                hash_length=hash_length_of(_file(theirs, b"config")),
            )
            if content is not None:
                made = directory / _MERGED
                made.write_bytes(content)
                made.chmod(stat.S_IMODE(now.st_mode))
                # Git looks again at files that are newer than the index.
                oldest = min(now.st_mtime_ns, mine.st_mtime_ns)
                os.utime(made, ns=(oldest, oldest))
                after = files.identity(made.stat())
                os.rename(made, b"index", dst_dir_fd=ours)
                step = Step("swap", _INDEX, files.identity(now), after)
                found = replace(prepared, changes=replace(prepared.changes, steps=(*rest, step)))
                _write(directory, _PREPARED, found)
                return found, []
    found = replace(prepared, changes=replace(prepared.changes, steps=rest))
    _write(directory, _PREPARED, found)
    return found, [KeptBack(_INDEX, _SAME_ENTRY)]


_NO_INDEX: Final = (UnreadableIndexError, FileNotFoundError, NotADirectoryError, TimeoutError)
_SAME_ENTRY: Final = (
    "git's index was changed in the workspace, in the same entries or in a way that is not read"
)


def _written_index(git: int) -> os.stat_result:
    """Return the status of an index that nobody is writing anew.

    Raises:
        OSError: there is none, or git does not end.
    """
    end = time.monotonic() + _PATIENCE
    while files.look(git, _BEING_WRITTEN) is not None:
        if time.monotonic() > end:
            raise TimeoutError(0, "git is writing the index")
        time.sleep(_PAUSE)
    return os.stat(b"index", dir_fd=git, follow_symlinks=False)


def _file(directory: int, name: bytes) -> bytes:
    opened = os.open(name, _READ, dir_fd=directory)
    try:
        return _content(opened)
    finally:
        os.close(opened)


def _content(opened: int) -> bytes:
    """Return what a regular file holds.

    Raises:
        OSError: it is another kind of file, or too large.
    """
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_READ:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    with os.fdopen(os.dup(opened), "rb") as file:
        file.seek(0)
        return file.read()


@contextmanager
def _one_at_a_time(store: Path) -> Iterator[None]:
    """Hold the lock of all commits: each sees all that the others brought in."""
    lock = os.open(store, files.DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def discard(directory: Path) -> None:
    """Remove the directories of a view, however deep and whatever modes were set in them.

    Never fails. What cannot be removed is left to the next start, and so is a view that is half
    committed: it holds the only copy of what it replaced.
    """
    if (directory / _JOURNAL).exists():
        return
    with suppress(OSError, RecursionError):
        shutil.rmtree(directory)
    for words in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if not os.path.lexists(directory):
            return
        with suppress(OSError):
            subprocess.run(  # noqa: S603  an argument list of ours
                [*words, "--", str(directory)],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


class SessionViews:
    """The directory of one session in a store, locked while the session lives."""

    def __init__(self, store: Path) -> None:
        """Make it.

        Raises:
            OSError: it cannot be made.
        """
        store.mkdir(_PRIVATE, parents=True, exist_ok=True)
        self.directory = store / secrets.token_hex(16)
        self.directory.mkdir(_PRIVATE)
        self._lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove it with all its views, which nobody may be committing."""
        _discard_session(self.directory)
        os.close(self._lock)


def recover(store: Path, taken_back: Callable[[int], None] = lambda _steps: None) -> list[KeptBack]:
    """Take back what killed processes left half committed, and remove their views. Never fails.

    Args:
        store: the directory of all sessions.
        taken_back: is told of each commit that was taken back, with the number of its steps.

    Returns:
        What could not be taken back, because somebody changed it meanwhile, or because a power cut
        damaged the journal.
    """
    stays: list[KeptBack] = []
    with suppress(OSError):
        for session in sorted(store.iterdir()):
            with suppress(OSError), _unlocked(session):
                for view in sorted(session.iterdir()):
                    stays += _reverted(view, taken_back)
                _discard_session(session)
    return stays


def _discard_session(session: Path) -> None:
    """Remove a session and its views, but for those that are half committed."""
    if not any(session.glob(f"*/{_JOURNAL}")):
        discard(session)
        return
    for view in session.iterdir():
        if view.is_dir():
            discard(view)


def _reverted(view: Path, taken_back: Callable[[int], None]) -> list[KeptBack]:
    """Take back what was being committed.

    Raises:
        OSError: it cannot be; the next start tries again.
    """
    try:
        content = (view / _JOURNAL).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        journal = msgspec.msgpack.decode(content, type=Prepared)
    except msgspec.MsgspecError:
        why = f"the journal of a commit is damaged; what it replaced lies in {view}"
        return [KeptBack(b".", why)]
    with _opened(view, journal) as (upper, host):
        made_ns = (view / _JOURNAL).stat().st_mtime_ns
        stays = Applier(upper, host, journal.started_ns).take_back(journal.changes.steps, made_ns)
    if not stays:
        (view / _JOURNAL).unlink()
        taken_back(len(journal.changes.steps))
    # The view stays until a person removes it.
    return [KeptBack(one.path, f"{one.why}; what was there before lies in {view}") for one in stays]


@contextmanager
def _unlocked(session: Path) -> Iterator[None]:
    """Hold the lock of a session that has ended.

    Raises:
        OSError: it has not, or it is no directory of a session.
    """
    lock = os.open(session / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


@contextmanager
def _opened(directory: Path, prepared: Prepared) -> Iterator[tuple[int, int]]:
    """Open the upper directory of a view and its workspace.

    Raises:
        OSError: one of them is not there, or the workspace is another directory by now.
    """
    upper = os.open(directory / _UPPER, files.DIRECTORY)
    try:
        host = os.open(prepared.workspace, files.DIRECTORY)
        try:
            status = os.fstat(host)
            if (status.st_dev, status.st_ino) != (prepared.device, prepared.inode):
                raise FileNotFoundError(0, "the workspace is another directory by now")
            yield upper, host
        finally:
            os.close(host)
    finally:
        os.close(upper)


def _write(directory: Path, name: str, prepared: Prepared) -> None:
    """Write the changes down, whole or not at all.

    Nothing is forced to the disk: a killed process loses no write, and commands do not wait for it.
    """
    new = directory / _NEW
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        content = memoryview(msgspec.msgpack.encode(prepared))
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)
    new.rename(directory / name)
