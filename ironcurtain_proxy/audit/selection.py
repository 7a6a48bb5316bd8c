"""A selection of calls of the audit log, and statistics of calls in constant memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

from ironcurtain_proxy.audit.display import LogEntry, ended_at, entry_of

REFUSALS: Final = frozenset({"DENIED", "REFUSED", "HELD"})
"""The decisions after which no server got the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The conditions of a selection; an empty one holds for every call."""

    since: datetime | None = None
    """Aware: the call ended at this time or later."""
    until: datetime | None = None
    """Aware: the call ended before this time."""
    decisions: frozenset[str] = frozenset()
    """Words of the column DECISION: `allowed`, `approved`, `DENIED`, `REFUSED`, `HELD`."""
    by: str = ""
    """A word of the column BY, such as `person`."""
    tool: str = ""
    """`SERVER/TOOL`, with `*` for any characters; without a slash, a tool of any server."""
    server: str = ""
    client: str = ""
    """The beginning of the client's name."""
    session: str = ""
    """The beginning of the session's id."""
    text: str = ""
    """Stands in the tool, the rule, the main argument or the outcome; capitals do not count."""

    @property
    def is_everything(self) -> bool:
        """Whether there is no condition."""
        return self == Selection()

    def matches(self, entry: LogEntry) -> bool:
        """Return whether the call of this record is chosen."""
        return (
            self._is_in_time(entry)
            and (not self.decisions or entry.decision in self.decisions)
            and (not self.by or entry.by == self.by)
            and self._is_of(entry)
            and entry.client.startswith(self.client)
            and entry.session.startswith(self.session)
            and (not self.text or self._holds(entry, self.text.casefold()))
        )

    def _is_in_time(self, entry: LogEntry) -> bool:
        if self.since is None and self.until is None:
            return True
        ended = ended_at(entry)
        return (self.since is None or ended >= self.since.timestamp()) and (
            self.until is None or ended < self.until.timestamp()
        )

    def _is_of(self, entry: LogEntry) -> bool:
        if self.server and entry.tool.partition("/")[0] != self.server:
            return False
        if not self.tool:
            return True
        pattern = self.tool if "/" in self.tool else f"*/{self.tool}"
        return fnmatchcase(entry.tool, pattern)

    @staticmethod
    def _holds(entry: LogEntry, text: str) -> bool:
        told = (entry.tool, entry.rule, entry.argument, entry.outcome)
        return any(text in one.casefold() for one in told)


# --- statistics: names are counted up to a limit, durations in classes ----------------------------

_MOST_NAMES: Final = 1000
_OTHERS: Final = "(others)"
_COUNTED: Final = "(counted only)"
_UNKNOWN: Final = "(not known)"
_CLASSES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
"""Upper bounds of the classes of durations, in milliseconds."""


class Statistics:
    """Counts entries one by one."""

    def __init__(self) -> None:
        self.calls = 0
        self.first = ""
        self.last = ""
        self.decisions: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.deciders: Counter[str] = Counter()
        self.clients: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self._open: set[str] = set()
        self._durations: Counter[int] = Counter()

    def add(self, fields: Mapping[str, object]) -> None:
        """Count one record; an intent counts only if no outcome follows."""
        if fields.get("phase") == "intent":
            self._open.add(str(fields.get("requestId")))
        else:
            self._add_outcome(entry_of(fields))

    def _add_outcome(self, entry: LogEntry) -> None:
        self._open.discard(entry.request_id)
        self.calls += entry.calls
        # Several logs are read one after the other.
        self.first = min(self.first or entry.time, entry.time)
        self.last = max(self.last, entry.time)
        self.decisions[entry.decision] += entry.calls
        self.results[entry.status] += entry.calls
        _count(self.deciders, entry.by, entry.calls)
        _count(self.tools, entry.tool if entry.calls == 1 else _COUNTED, entry.calls)
        _count(self.rules, entry.rule, entry.calls)
        _count(self.clients, entry.client or _UNKNOWN, entry.calls)
        if entry.status != "denied":
            self._durations[_class_of(entry.duration_ms)] += 1

    @property
    def unfinished(self) -> int:
        """Intents without outcome."""
        return len(self._open)

    def duration_below(self, share: float) -> int | None:
        """Return an upper bound of this share's durations in milliseconds, or None if longer.

        Args:
            share: 0.5 for the median.
        """
        wanted = share * self._durations.total()
        counted = 0
        for bound in _CLASSES:
            counted += self._durations[bound]
            if counted and counted >= wanted:
                return bound
        return None


def _count(counter: Counter[str], name: str, calls: int) -> None:
    counter[name if name in counter or len(counter) < _MOST_NAMES else _OTHERS] += calls


def _class_of(duration_ms: int) -> int:
    return next((bound for bound in _CLASSES if duration_ms <= bound), 0)
