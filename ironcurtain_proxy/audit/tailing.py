"""The ends of logs: the last records, and new ones as they arrive. Reads only."""

import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from ironcurtain_proxy.audit.display import LogEntry, ended_at, entry_of
from ironcurtain_proxy.audit.family import Member, newest_first
from ironcurtain_proxy.audit.files import parsed, rotated_paths
from ironcurtain_proxy.audit.reading import last_lines
from ironcurtain_proxy.audit.selection import Selection

EVERYTHING: Final = Selection()

_SLACK: Final = 1.0
"""Seconds by which the clock of a file system may be behind."""
_STEP_BACK: Final = 3600.0
"""Seconds by which a clock that was set may have made a later record look older."""

T = TypeVar("T")


def last_calls(
    members: tuple[Member, ...], most: int, chosen: Selection = EVERYTHING
) -> list[LogEntry]:
    """The last chosen calls of several logs, oldest first: their outcomes, or intents without one.

    Raises:
        OSError: a log cannot be read.
    """
    found: list[tuple[float, LogEntry]] = []
    for member in _worth_a_look(members, most, found):
        entries = _since(_calls_backwards(member), chosen)
        calls = list(islice(filter(chosen.matches, entries), most))[::-1]
        found[:] = _merged(found, [(ended_at(one), one) for one in calls])[-most:]
    return [entry for _, entry in found]


def last_records(
    members: tuple[Member, ...], most: int, chosen: Selection = EVERYTHING
) -> list[bytes]:
    """The last chosen lines of several logs, oldest first.

    Raises:
        OSError: a log cannot be read.
    """
    found: list[tuple[float, bytes]] = []
    for member in _worth_a_look(members, most, found):
        timed = list(islice(_records_backwards(member, chosen), most))[::-1]
        found[:] = _merged(found, timed)[-most:]
    return [line for _, line in found]


def _records_backwards(member: Member, chosen: Selection) -> Iterator[tuple[float, bytes]]:
    for line in last_lines(member.path):
        entry = entry_of(parsed(line) or {})
        if chosen.is_everything or chosen.matches(entry):
            yield ended_at(entry), line


def _since(entries: Iterator[LogEntry], chosen: Selection) -> Iterator[LogEntry]:
    """The entries up to the first that is much older than the chosen ones."""
    if chosen.since is None:
        yield from entries
        return
    begin = chosen.since.timestamp() - _STEP_BACK
    for entry in entries:
        if 0 < ended_at(entry) < begin:
            return
        yield entry


def _worth_a_look(
    members: tuple[Member, ...], most: int, found: list[tuple[float, T]]
) -> Iterator[Member]:
    """The logs, newest first, up to those that end before all found entries."""
    if most == 0:
        return
    for member, changed in newest_first(members):
        if len(found) >= most and found[0][0] > changed + _SLACK:
            return
        yield member


def _merged(
    one: Iterable[tuple[float, T]], other: Iterable[tuple[float, T]]
) -> list[tuple[float, T]]:
    """Two lists merged by time; the order within each stays."""
    return list(heapq.merge(_rising(one), _rising(other), key=lambda timed: timed[0]))


def _rising(timed: Iterable[tuple[float, T]]) -> Iterator[tuple[float, T]]:
    highest = 0.0
    for moment, what in timed:
        highest = max(highest, moment)
        yield highest, what


def _calls_backwards(member: Member) -> Iterator[LogEntry]:
    finished: set[str] = set()
    for raw in last_lines(member.path):
        fields = parsed(raw)
        if fields is None:
            continue
        entry = entry_of(fields, member.process)
        if entry.is_intent and entry.request_id in finished:
            finished.discard(entry.request_id)
            continue
        if not entry.is_intent:
            finished.add(entry.request_id)
        yield entry


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
        """The lines that were completed since the last time."""
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
        """The lines that were completed since the last time."""
        try:
            status = self._log.stat()
        except FileNotFoundError:
            return
        if (status.st_dev, status.st_ino) == self._file:
            if status.st_size > self._offset:
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
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != self._file:
                # It was rotated a moment ago: the next look finds its file.
                return
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines

    def _is_ours(self, path: Path) -> bool:
        status = path.stat()
        return (status.st_dev, status.st_ino) == self._file
