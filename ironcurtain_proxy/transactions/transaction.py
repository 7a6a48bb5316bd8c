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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import closed_after
from ironcurtain_proxy.transactions import files, journal
from ironcurtain_proxy.transactions.applying import Applier
from ironcurtain_proxy.transactions.changes import Changes, KeptBack
from ironcurtain_proxy.transactions.control import Control
from ironcurtain_proxy.transactions.journal import Prepared, read_prepared, write_prepared
from ironcurtain_proxy.transactions.merging import Indexes, merge
from ironcurtain_proxy.transactions.walking import Walk

_UPPER, _WORK, _ASIDE = "upper", "work", "aside"
_LOCK: Final = "lock"
_RECORDED: Final = "recorded"
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
        self._booted_ns = files.booted_ns()
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
        with (
            closed_after(os.open(self.directory / _UPPER, files.DIRECTORY)) as upper,
            closed_after(os.open(self.directory / _ASIDE, files.DIRECTORY)) as aside,
        ):
            sure_ns = files.sure_time(self._started_ns, self._booted_ns)
            walk = Walk(upper, self._host, aside, sure_ns, control, self._started_ns - sure_ns)
            found = walk.changes()
        if found.is_nothing:
            return found
        prepared = Prepared(
            os.fsencode(self.workspace),
            os.fstat(self._host).st_ino,
            sure_ns,
            found,
            self._indexes.keep(self.directory, walk.indexes),
            booted_ns=self._booted_ns,
            boot=files.boot(),
        )
        write_prepared(self.directory, prepared)
        return found

    def close(self) -> None:
        """Let go of the workspace. The directories stay for `commit` or `discard`."""
        os.close(self._host)
        self._indexes.close()


def commit(directory: Path, call: str = "") -> list[KeptBack]:
    """Bring the prepared changes of a view into the workspace, for the call of this id.

    Returns:
        What did not come into it after all, because somebody changed it in the last moment.

    Raises:
        OSError: such as a full disk. The workspace is as it was.
        msgspec.MsgspecError: what is written there is damaged.
    """
    prepared = read_prepared(directory)
    sure_ns = files.sure_time(prepared.started_ns, prepared.booted_ns)
    prepared = replace(prepared, started_ns=sure_ns)
    with _one_at_a_time(directory.parent.parent), _opened(directory, prepared) as (upper, host):
        prepared, late = merge(directory, prepared, upper, host)
        changes = prepared.changes
        written_ns = journal.begin(directory, upper, replace(prepared, call=call))
        applier = Applier(upper, host, prepared.started_ns)
        try:
            applier.apply(changes.steps, changes.judged_as, changes.moved)
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
    with closed_after(os.open(store, files.DIRECTORY)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def discard(directory: Path) -> None:
    """Remove the directories of a view, however deep and whatever modes were set in them.

    Never fails. What cannot be removed is left to the next start, and so is a view that is half
    committed: it holds the only copy of what it replaced.
    """
    if journal.is_begun(directory):
        return
    with suppress(OSError, RecursionError):
        journal.forget(directory)
        shutil.rmtree(directory)
    with suppress(OSError), closed_after(os.open(directory.parent, files.DIRECTORY)) as store:
        files.remove_tree(store, os.fsencode(directory.name))


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


class TakenBack(Struct, frozen=True, kw_only=True):
    """A commit that was cut off, and is taken back."""

    view: Path
    workspace: str = ""
    call: str = ""
    """The request id of its call, or empty if it was cut off before that was written down."""
    steps: int = 0
    """How many there were. It is 0 if the commit had not begun."""
    stays: tuple[KeptBack, ...] = ()
    """What could not be taken back, because somebody changed it meanwhile, or because the disk
    damaged what was written down. It stays until a person removes the view."""

    def __str__(self) -> str:
        done = f"all of them ({self.steps} steps) were taken back"
        if self.stays:
            done = f"not all could be taken back: {', '.join(map(str, self.stays))}"
        elif not self.steps:
            done = "none of them came in"
        whose = f"the changes of call {self.call}" if self.call else "a command's changes"
        return f"a proxy was cut off before {whose} were in the workspace {self.workspace}: {done}"

    def as_json(self) -> dict[str, Json]:
        """Return it for a record."""
        return {"call": self.call, "workspace": self.workspace, "left": [*map(str, self.stays)]}

    @property
    def is_recorded(self) -> bool:
        """Whether an earlier start has recorded it."""
        return (self.view / _RECORDED).exists()


class Recovery:
    """The sessions of killed processes, whose commits are taken back. It never fails."""

    def __init__(self, store: Path) -> None:
        """Take back what is half committed in a store, and hold its sessions' locks."""
        self.found: list[TakenBack] = []
        held: list[tuple[Path, int]] = []
        with suppress(OSError):
            for session in sorted(store.iterdir()):
                with suppress(OSError):
                    held.append((session, _locked(session)))
                    self.found += filter(None, map(_reverted, sorted(session.iterdir())))
        self._held = iter(held)  # two threads may close: each session is the first one's to ask

    def close(self, *, is_recorded: bool) -> None:
        """Let go of the sessions, and remove them if what was found is recorded."""
        for one in self.found if is_recorded else ():
            with suppress(OSError):
                (one.view / _RECORDED).touch()
        for session, lock in self._held:
            if is_recorded or all(one.view.parent != session for one in self.found):
                with suppress(OSError):
                    _discard_session(session)
            os.close(lock)


def _discard_session(session: Path) -> None:
    """Remove a session and its views, but for those that are half committed."""
    for view in filter(Path.is_dir, session.iterdir()):
        discard(view)
    if not any(map(journal.is_begun, session.iterdir())):
        discard(session)


def _reverted(view: Path) -> TakenBack | None:
    """Take back what was being committed. Return None if nothing was."""
    if (undone := journal.read_undone(view)) is not None:
        return _taken_back(view, undone)
    if not journal.is_begun(view):
        return TakenBack(view=view) if journal.is_waiting(view) else None
    lies = f"what was there before lies in {view}"
    try:
        begun, written_ns = journal.read_begun(view)
    except (msgspec.MsgspecError, OSError):
        why = f"what a commit wrote down is damaged twice; what it replaced lies in {view}"
        return TakenBack(view=view, stays=(KeptBack(b".", why),))
    try:
        with _opened(view, begun) as (upper, host):
            applier = Applier(upper, host, begun.started_ns)
            stays = applier.take_back(begun.changes.steps, written_ns)
        if not stays:
            journal.undo(view)
    except OSError as error:
        # The next start tries again.
        stays = [KeptBack(b".", f"it cannot be taken back now: {error.strerror}")]
    return _taken_back(view, begun, [KeptBack(one.path, f"{one.why}; {lies}") for one in stays])


def _taken_back(view: Path, begun: Prepared, stays: Sequence[KeptBack] = ()) -> TakenBack:
    return TakenBack(
        view=view,
        workspace=os.fsdecode(begun.workspace),
        call=begun.call,
        steps=len(begun.changes.steps),
        stays=(*stays,),
    )


def _locked(session: Path) -> int:
    """Take the lock of a session that has ended.

    Raises:
        OSError: it has not, or it is no directory of a session.
    """
    lock = os.open(session / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


@contextmanager
def _opened(directory: Path, prepared: Prepared) -> Iterator[tuple[int, int]]:
    """Open the upper directory of a view and its workspace.

    Raises:
        OSError: one of them is not there, or the workspace is another directory by now.
    """
    with (
        closed_after(os.open(directory / _UPPER, files.DIRECTORY)) as upper,
        closed_after(os.open(prepared.workspace, files.DIRECTORY)) as host,
    ):
        status = os.fstat(host)
        # The number of the device may be another one each time the machine starts.
        device = os.fstat(upper).st_dev
        if (status.st_dev, status.st_ino) != (device, prepared.inode):
            raise FileNotFoundError(0, "the workspace is another directory by now")
        yield upper, host
