"""Calls in the logs of a user: all one by one, the last ones, new ones, or one by its number.

Reads only. What a reader chooses is a `Selection`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from math import inf, nextafter
from operator import itemgetter
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from ironcurtain_proxy.audit.display import LogEntry, Selection, details, entry_of
from ironcurtain_proxy.audit.files import (
    MAX_LINE,
    Line,
    last_lines,
    lines_with,
    parsed,
    records_of,
    rotated_paths,
)
from ironcurtain_proxy.audit.known_logs import Member, newest_first, read_number
from ironcurtain_proxy.private_files import opened


class RecordedCall(NamedTuple):
    """The last record of a call: its outcome, or its intent if it has no outcome."""

    fields: Mapping[str, object]
    entry: LogEntry


def recorded_calls(members: tuple[Member, ...], chosen: Selection) -> Iterator[RecordedCall]:
    """Yield the chosen calls of several logs, log by log; calls without an outcome stand last.

    Raises:
        OSError: a log cannot be read.
    """
    for member in members:
        started: dict[str, RecordedCall] = {}
        for fields in records_of(member.path):
            call = RecordedCall(fields, entry_of(fields, member.process))
            if call.entry.is_intent:
                started[call.entry.request_id] = call
                continue
            started.pop(call.entry.request_id, None)
            if chosen.matches(call.entry):
                yield call
        yield from [call for call in started.values() if chosen.matches(call.entry)]


# --- the ends of logs: the last calls, and new ones as they arrive --------------------------------

EVERYTHING: Final = Selection()

_SLACK: Final = 1.0
"""Seconds by which the clock of a file system may be behind."""
_AT_ONCE: Final = 16 << 20
_STEP_BACK: Final = 3600.0
"""Seconds by which a clock that was set may have made a later record look older."""

T = TypeVar("T")


def last_calls(
    members: tuple[Member, ...], most: int, chosen: Selection = EVERYTHING
) -> list[LogEntry]:
    """Return the last chosen calls of several logs, oldest first, by outcome or else intent.

    Raises:
        OSError: a log cannot be read.
    """
    found = _last(members, most, partial(_calls_backwards, chosen=chosen), since=_begin(chosen))
    return found.calls[:most][::-1]


def last_records(
    members: tuple[Member, ...], most: int, chosen: Selection = EVERYTHING
) -> list[bytes]:
    """Return the last chosen records of several logs, oldest first, as they stand there.

    Raises:
        OSError: a log cannot be read.
    """
    return _last(members, most, partial(_records_backwards, chosen=chosen)).calls[:most][::-1]


class Looked(Struct, Generic[T], frozen=True):
    """The result of a look into the logs from their ends."""

    calls: list[T]
    """Newest first."""
    before: float
    """The time up to which the next look reads, in seconds since 1970. 0: nothing is left."""


_Lines: TypeAlias = Callable[[Member, float], Iterator[tuple[float, T | None]]]
"""Yields the lines of a log that ended at a time or before, newest first, each with the time that
it ended at the latest, and what it is, or None if it is not chosen."""


def _last(
    members: tuple[Member, ...],
    most: int,
    lines: _Lines[T],
    *,
    before: float = inf,
    budget: int = sys.maxsize,
    since: float = 0.0,
) -> Looked[T]:
    """Return the newest lines, `most` and those of the same moment, of at most `budget` lines."""
    found: list[tuple[float, T]] = []
    total, horizon = 0, since
    for member, changed in newest_first(members):
        if most == 0 or changed + _SLACK < horizon:
            break
        here: list[tuple[float, T]] = []
        left, last = max(budget - total, budget // 10, 1), inf
        for read, (at, what) in enumerate(lines(member, before)):
            total += 1
            is_enough = at < last and (len(here) >= most or read >= left)
            if at <= horizon or is_enough:
                horizon = max(horizon, at)
                break
            last = at
            if what is not None:
                here.append((at, what))
        found += here
    found = sorted([one for one in found if one[0] > horizon], key=itemgetter(0), reverse=True)
    if len(found) > most:
        horizon = nextafter(found[most - 1][0], 0)
    left_out = horizon if horizon > since else 0.0
    return Looked([what for at, what in found if at > horizon], left_out)


class _Outline(Struct, rename="camel"):
    """The part of a record that says what it is and when: read in a tenth of the time."""

    timestamp: str = ""
    request_id: str = ""
    phase: str = ""
    duration_ms: int = 0


_OUTLINES: Final = msgspec.json.Decoder(_Outline)


def _backwards(member: Member) -> Iterator[tuple[float, _Outline, bytes]]:
    """Yield the lines, newest first, with times that never rise: a clock may have been set back."""
    at = inf
    for raw in last_lines(member.path):
        try:
            outline = _OUTLINES.decode(raw)
            ended = datetime.fromisoformat(outline.timestamp).timestamp()
            at = min(at, ended + max(0, outline.duration_ms) / 1000)
        except (ValueError, OverflowError):
            outline = _Outline()  # another program's, or damaged
        yield at if at < inf else member.changed() + _SLACK, outline, raw


def _records_backwards(
    member: Member, _before: float, chosen: Selection
) -> Iterator[tuple[float, bytes | None]]:
    for at, _, line in _backwards(member):
        fields = parsed(line)
        is_chosen = fields is not None and chosen.matches(entry_of(fields))
        yield at, line if is_chosen else None


def _begin(chosen: Selection) -> float:
    return 0.0 if chosen.since is None else chosen.since.timestamp() - _STEP_BACK


def _calls_backwards(
    member: Member, before: float, chosen: Selection
) -> Iterator[tuple[float, LogEntry | None]]:
    finished: set[str] = set()
    for at, outline, raw in _backwards(member):
        is_intent = outline.phase == "intent"
        is_finished = is_intent and outline.request_id in finished
        if is_finished:
            finished.discard(outline.request_id)
        elif not is_intent:
            finished.add(outline.request_id)
        if at > before:
            continue
        fields = None if is_finished else parsed(raw)
        entry = None if fields is None else entry_of(fields, member.process)
        yield at, entry if entry is not None and chosen.matches(entry) else None


class LogFollower:
    """Follows logs as they grow, including logs that begin later."""

    def __init__(self, members: Callable[[], tuple[Member, ...]]) -> None:
        """Begin at the current ends.

        Args:
            members: gives the logs that there are.

        Raises:
            OSError: a log cannot be read.
        """
        self._members = members
        self._ends = {member.path: _End(member.path) for member in members()}

    def new_lines(self) -> Iterator[tuple[Member, bytes]]:
        """Yield the lines that were completed since the last time."""
        for member in self._members():
            if member.path not in self._ends:
                self._ends[member.path] = _End(member.path, whole=True)
            for line in self._ends[member.path].new_lines():
                yield member, line


class _End:
    """The end of one log that grows, and may be rotated. Holds no descriptor."""

    def __init__(self, log: Path, *, whole: bool = False) -> None:
        self._log = log
        status = None if whole and not log.exists() else log.stat()
        self._file = (0, 0) if status is None else (status.st_dev, status.st_ino)
        self._offset = 0 if whole or status is None else status.st_size
        self._rest = b""

    def new_lines(self) -> Iterator[bytes]:
        """Yield the lines that were completed since the last time."""
        try:
            status = self._log.stat()
        except FileNotFoundError:
            return
        if (status.st_dev, status.st_ino) == self._file:
            if status.st_size < self._offset:
                # Somebody has cut it off: what is written now begins there.
                self._offset, self._rest = 0, b""
            yield from self._read(self._log)
            return
        # It may have got some more lines before it was rotated away, and other files may have
        # filled up meanwhile.
        rotated = rotated_paths(self._log)
        ours = [number for number, path in enumerate(rotated) if self._is_ours(path)]
        if ours:
            yield from self._read(rotated[ours[0]])
        for path in [*(rotated[ours[0] + 1 :] if ours else []), self._log]:
            status = path.stat()
            self._file, self._offset, self._rest = (status.st_dev, status.st_ino), 0, b""
            yield from self._read(path)

    def _read(self, path: Path) -> Iterator[bytes]:
        with opened(path) as file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != self._file:
                # The file was rotated a moment ago: the next call finds it.
                return
            file.seek(self._offset)
            data = file.read(_AT_ONCE)
        self._offset += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= MAX_LINE else b""
        yield from lines

    def _is_ours(self, path: Path) -> bool:
        status = path.stat()
        return (status.st_dev, status.st_ino) == self._file


# --- one call, by its number or the beginning of its id -------------------------------------------


class Call(Struct):
    """The records of one call: its intent, if it had one, and its outcome."""

    request_id: str
    lines: list[Line] = msgspec.field(default_factory=list)


def find_calls(members: tuple[Member, ...], reference: str) -> list[Call]:
    """Return the calls that a reference may mean.

    Args:
        members: the logs.
        reference: a number as `tail` shows it, `17` or `4711:17`; otherwise an id or its beginning.
            A bare number is a line of the first log that has one of this number.

    Raises:
        OSError: a log cannot be read.
    """
    number = read_number(reference)
    if number is not None:
        process, seq = number
        for member in members:
            if process is not None and member.process != process:
                continue
            found = _by_number(member, seq)
            if found:
                return found
    return [] if not reference else _by_id(members, reference)


def _by_number(member: Member, seq: int) -> list[Call]:
    calls: list[Call] = []
    for line, fields in _records_with(member, b'"seq":%d' % seq):
        request = fields.get("requestId")
        if fields.get("seq") != seq:
            continue
        if isinstance(request, str) and request:
            calls += [call for call in _by_id((member,), request) if call.request_id == request]
        else:
            calls.append(Call("", [line]))
    # A log that was tampered with can have a number twice.
    return list({(call.request_id, call.lines[0].where): call for call in calls}.values())


def _by_id(members: tuple[Member, ...], beginning: str) -> list[Call]:
    calls: dict[str, Call] = {}
    for member in members:
        for line, fields in _records_with(member, beginning.encode()):
            request = fields.get("requestId")
            if isinstance(request, str) and request.startswith(beginning):
                calls.setdefault(request, Call(request)).lines.append(line)
    exact = calls.get(beginning)
    return [*calls.values()] if exact is None else [exact]


def _records_with(member: Member, needle: bytes) -> Iterator[tuple[Line, dict[str, object]]]:
    for line in lines_with(member.path, needle):
        fields = parsed(line.raw or b"")
        if fields is not None:
            yield line, fields


def lines_of(call: Call) -> list[str]:
    """Return all records of a call, for people: each after its file and line."""
    lines: list[str] = []
    for line in call.lines:
        lines += [line.where, *details(parsed(line.raw or b"") or {}), ""]
    return lines


MOST_CALLS: Final = 200
MOST_READ: Final = 40_000
"""The most lines that one look reads, which takes a third of a second."""


class CallHistory(Struct, frozen=True):
    """The calls that were recorded."""

    members: Callable[[], tuple[Member, ...]]
    """Gives the logs that exist now."""
    when: Callable[[str], str]
    """Turns a record's time into local time."""

    def calls(self, chosen: Selection) -> list[LogEntry]:
        """Return the last chosen calls, newest first.

        Raises:
            OSError: a log cannot be read.
        """
        return last_calls(self.members(), MOST_CALLS, chosen)[::-1]

    def look(
        self, chosen: Selection, *, before: float = inf, most: int = MOST_CALLS
    ) -> Looked[LogEntry]:
        """Return the chosen calls of the last lines, or of those before an earlier look.

        Raises:
            OSError: a log cannot be read.
        """
        lines = partial(_calls_backwards, chosen=chosen)
        begin = _begin(chosen)
        return _last(self.members(), most, lines, before=before, budget=MOST_READ, since=begin)

    def call(self, number: str) -> list[str]:
        """Return the record of a call in lines, none if there is no such call.

        Raises:
            OSError: a log cannot be read.
        """
        calls = find_calls(self.members(), number)
        return lines_of(calls[0]) if len(calls) == 1 else []
