"""One transaction: a view, what was changed in it, and the end of both.

    store/SESSION/4f1c…/   a name that nobody foresees, for this user alone
        upper/ work/       the layers of the overlay; `upper` holds the old contents afterwards
        aside/             what does not come into the workspace
        prepared journal   the changes, once the command has ended, and while they are brought in
        index-0 …          the indexes of git as they were before the command that changed them

The process that runs the command prepares its changes, and the process that answers for the
workspace commits them, or discards them. A view without a journal has changed nothing. One with a
journal was being committed when its process was killed, or the power failed: the next start takes
it back.
"""

import fcntl
import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from ironcurtain_proxy.transactions import files, journal
from ironcurtain_proxy.transactions.applying import Applier
from ironcurtain_proxy.transactions.changes import Changes, KeptBack
from ironcurtain_proxy.transactions.control import Control
from ironcurtain_proxy.transactions.journal import Prepared, read_prepared, write_prepared
from ironcurtain_proxy.transactions.merging import Indexes, merge
from ironcurtain_proxy.transactions.walking import Walk

_UPPER, _WORK, _ASIDE = "upper", "work", "aside"
_LOCK: Final = "lock"
_PRIVATE: Final = 0o700


class CommandView:
    """The private directories of one view, for a command to run in."""

    def __init__(self, session: Path, workspace: str, repositories: Iterable[str] = ()) -> None:
        """Make the directories.

        Args:
            session: the directory of the session in the store, on the workspace's file system.
            workspace: the directory that the view shows.
            repositories: the known directories of git in it, absolute.

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
        below = f"{workspace}/"
        self._indexes = Indexes(
            self._host,
            [os.fsencode(one.removeprefix(below)) for one in repositories if one.startswith(below)],
        )

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
            argv: the command, in restrictions of its own: it can write wherever the user can.
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
                walk = Walk(upper, self._host, aside, self._started_ns, control)
                found = walk.changes()
            finally:
                os.close(aside)
        finally:
            os.close(upper)
        if found.is_nothing:
            return found
        host = os.fstat(self._host)
        prepared = Prepared(
            os.fsencode(self.workspace),
            host.st_dev,
            host.st_ino,
            self._started_ns,
            found,
            self._indexes.keep(self.directory, walk.indexes),
        )
        write_prepared(self.directory, prepared)
        return found

    def close(self) -> None:
        """Let go of the workspace. The directories stay for `commit` or `discard`."""
        os.close(self._host)
        self._indexes.close()


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
        prepared, late = merge(directory, prepared, upper, host)
        changes = prepared.changes
        written_ns = journal.begin(directory, upper, changes.steps)
        applier = Applier(upper, host, prepared.started_ns)
        try:
            applier.apply(changes.steps, changes.judged_as)
        except BaseException:
            if not applier.take_back(changes.steps, written_ns):
                journal.end(directory)
            raise
        journal.end(directory)
    return [*late, *applier.conflicts]


def take_back(directory: Path) -> list[KeptBack]:
    """Take a commit back that was done, while its view is there. Return what stays, and why.

    Raises:
        OSError: nothing was done, or it cannot be taken back now; the next start tries again.
        msgspec.MsgspecError: what is written there is damaged.
    """
    journal.reopen(directory)
    prepared, written_ns = journal.read_begun(directory)
    with _one_at_a_time(directory.parent.parent), _opened(directory, prepared) as (upper, host):
        applier = Applier(upper, host, prepared.started_ns)
        stays = applier.take_back(prepared.changes.steps, written_ns)
    if not stays:
        journal.end(directory)
    return stays


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
    if journal.is_begun(directory):
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
        taken_back: is told of each commit that was taken back, with the number of its steps; 0:
            none of them had been done.

    Returns:
        What could not be taken back, because somebody changed it meanwhile, or because the disk
        damaged what was written down.
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
    if not any(map(journal.is_begun, session.iterdir())):
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
    if not journal.is_begun(view):
        if journal.is_waiting(view):
            taken_back(0)
        return []
    try:
        begun, written_ns = journal.read_begun(view)
    except msgspec.MsgspecError:
        why = f"what a commit wrote down is damaged twice; what it replaced lies in {view}"
        return [KeptBack(b".", why)]
    with _opened(view, begun) as (upper, host):
        stays = Applier(upper, host, begun.started_ns).take_back(begun.changes.steps, written_ns)
    if not stays:
        journal.end(view)
        taken_back(len(begun.changes.steps))
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
