"""Statistics of a whole log, in constant memory.

Names are counted up to a limit, and durations in classes.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.audit.display import LogEntry, entry_of

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
        """The upper bound of this share's durations, in milliseconds; None: longer, or no calls.

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
