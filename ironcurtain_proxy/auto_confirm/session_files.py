"""Small files of the engine: announced windows, abandoned reviewers, and what is not yet stored.

A file `windows/testing` or `windows/deployment` in the state directory holds the time at which it
ends. The state directory is protected, so that no agent opens a window for itself. `status` reads
the abandoned reviewers of a running session from a file of it.

Writes that failed are kept until the store takes them. A question without its end would stay open,
make its session look stuck, and count in the queue of others. A question that began while the store
failed has no row at all. Its id stands in a file of this session until its row is written: if the
session ends before, `metrics` counts it as missing.
"""

import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import orjson
from msgspec import Struct

from ironcurtain_proxy.auto_confirm.reviewer import LedgerError
from ironcurtain_proxy.mailbox.mailboxes import is_alive, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.private_files import read_beginning, write_whole

# --- windows, and abandoned reviewers

# --- windows


WindowName: TypeAlias = Literal["testing", "deployment"]
NAMES: Final[tuple[WindowName, ...]] = ("testing", "deployment")


class OpenWindows(Struct, frozen=True):
    """The open windows."""

    testing: bool = False
    deployment: bool = False


class Windows(Struct, frozen=True):
    """The windows of this user."""

    directory: Path
    """`windows` in the state directory; it may not exist."""

    def read(self, now: datetime) -> OpenWindows:
        """Return the windows that are open now.

        A file that cannot be understood closes a testing window, which approves, and keeps a
        deployment, which holds.
        """
        return OpenWindows(
            testing=self._is_open("testing", now, unclear=False),
            deployment=self._is_open("deployment", now, unclear=True),
        )

    def ends(self, name: WindowName) -> datetime | None:
        """Return the end of a window, or None if it is closed or its file is damaged."""
        try:
            text = (self.directory / name).read_text(encoding="ascii").strip()
            moment = datetime.fromisoformat(text)
        except (OSError, ValueError):
            return None
        return moment if moment.tzinfo is not None else None

    def open(self, name: WindowName, until: datetime) -> None:
        """Open a window.

        Args:
            name: which.
            until: aware.

        Raises:
            OSError: it cannot be written.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self.directory / name, until.isoformat().encode("ascii"))

    def close(self, name: WindowName) -> bool:
        """End a window. Return False if it was not open."""
        try:
            (self.directory / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _is_open(self, name: WindowName, now: datetime, *, unclear: bool) -> bool:
        if not (self.directory / name).exists():
            return False
        ends = self.ends(name)
        return unclear if ends is None else now < ends


# --- given up


FILE_NAME: Final = "given-up-reviewers.json"
_MOST_BYTES: Final = 1 << 16


class AbandonedReviewer(Struct, frozen=True):
    """A reviewer that a session no longer asks."""

    session: str
    reviewer: str


def note_given_up(directory: Path, reviewers: list[str]) -> None:
    """Write the reviewers that this process has abandoned.

    Args:
        directory: the session's; made if it is missing.
        reviewers: all of them.

    Raises:
        OSError: it cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = this_process()
    content = {"pid": owner.pid, "startTime": owner.start_time, "reviewers": reviewers}
    write_whole(directory / FILE_NAME, orjson.dumps(content))


def given_up(sessions: Path) -> Iterator[AbandonedReviewer]:
    """Yield the abandoned reviewers of all running sessions.

    Args:
        sessions: the directory with one for each session.
    """
    for file in sorted(sessions.glob(f"*/{FILE_NAME}")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = orjson.loads(read_beginning(file, _MOST_BYTES))
            if is_alive(Owner(int(found["pid"]), str(found["startTime"]))):
                for name in found["reviewers"]:
                    yield AbandonedReviewer(file.parent.name, str(name))


# --- what is owed to the store

_log: Final = logging.getLogger(__name__)

MOST: Final = 10_000
"""The most kept questions; there is one for each call in progress when the store failed, and one
for each that began since."""

PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds until the next attempt; the last value repeats."""

_UNWRITTEN: Final = "unwritten"
_LONGEST_LINE: Final = 200

OwedLine: TypeAlias = Callable[[], object]
"""Writes one line, in a thread. After an exception it is tried again."""


class OwedLines(Struct):
    """Lines that wait for the store: those of one question in their order."""

    in_thread: Callable[[OwedLine], Awaitable[object]]
    """Runs work in a thread. Raises `LedgerError` where it fails."""
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    most: int = MOST
    _questions: dict[EscalationId, deque[OwedLine]] = msgspec.field(default_factory=dict)
    _some: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def __len__(self) -> int:
        return len(self._questions)

    def has(self, identifier: EscalationId) -> bool:
        """Return whether a line of this question waits; later lines then wait, too."""
        return identifier in self._questions

    def add(self, identifier: EscalationId, write: OwedLine) -> None:
        """Keep a line for later."""
        if identifier not in self._questions and len(self._questions) >= self.most:
            del self._questions[next(iter(self._questions))]
            _log.error("too much waits for the store: how an escalation ended is lost")
        self._questions.setdefault(identifier, deque()).append(write)
        self._some.set()

    async def run(self) -> None:
        """Write the kept lines, until cancelled."""
        while True:
            await self._some.wait()
            self._some = anyio.Event()
            turn = 0
            while self._questions:
                await self.wait(PAUSES[min(turn, len(PAUSES) - 1)])
                turn = 0 if await self.pay() else turn + 1

    async def pay(self) -> bool:
        """Try each question up to the first failure. Return whether any line was written."""
        paid = False
        for identifier in list(self._questions):
            lines = self._questions.get(identifier)
            while lines:
                try:
                    await self.in_thread(lines[0])
                except LedgerError as error:
                    _log.debug("escalation %s waits for the store: %s", identifier, error)
                    # Moved to the end, so that a question that always fails blocks no other.
                    if self._questions.get(identifier) is lines:
                        self._questions[identifier] = self._questions.pop(identifier)
                    return paid
                paid = True
                lines.popleft()
            if self._questions.get(identifier) is lines:
                del self._questions[identifier]
        return paid


# --- questions without a row ----------------------------------------------------------------------


class UnwrittenQuestions(Struct):
    """The questions of this session that have no row, in a file that outlives a killed proxy."""

    path: Path | None
    """The file, or None if none is kept."""
    _open: set[EscalationId] = msgspec.field(default_factory=set)

    def add(self, identifier: EscalationId, at: datetime) -> None:
        """Note a question."""
        self._open.add(identifier)
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self.path, flags, 0o600), "a", encoding="utf-8") as file:  # noqa: PTH123  private
                file.write(f"{at.isoformat()} {identifier}\n")
        except OSError as error:
            _log.warning("%s: metrics may not count what is missing: %s", self.path, error.strerror)

    def written(self, identifier: EscalationId) -> None:
        """Note that a question has its row. The file goes with the last one."""
        self._open.discard(identifier)
        if self.path is not None and not self._open:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def unwritten_file(state_dir: Path, process: str) -> Path:
    """Return the file of a process."""
    return state_dir / _UNWRITTEN / f"{process}.txt"


def unwritten_questions(state_dir: Path, since: datetime | None = None) -> Mapping[str, datetime]:
    """Return the questions in the files of all sessions, with their times.

    Some of them may have a row: a file is as old as its session's last failure. What cannot be read
    is left out.
    """
    return {
        identifier: at
        for path in sorted((state_dir / _UNWRITTEN).glob("*.txt"))
        for at, identifier in _entries(path)
        if since is None or at >= since
    }


def forget_unwritten(state_dir: Path, keep: timedelta, now: datetime) -> None:
    """Remove the files whose questions are all older than what the store keeps."""
    for path in (state_dir / _UNWRITTEN).glob("*.txt"):
        with suppress(OSError):
            if path.stat().st_mtime < (now - keep).timestamp():
                path.unlink()


def _entries(path: Path) -> Iterator[tuple[datetime, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            while line := file.readline(_LONGEST_LINE):
                at, _, identifier = line.rstrip("\n").partition(" ")
                with suppress(ValueError):
                    moment = datetime.fromisoformat(at)
                    if identifier and moment.tzinfo is not None and line.endswith("\n"):
                        yield moment, identifier
    except OSError as error:
        _log.warning("%s: %s", path, error.strerror)
