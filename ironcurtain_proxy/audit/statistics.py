"""What a whole log amounts to. Pure: no I/O, no clock, no log.

Memory does not grow with the log: names are counted up to a limit, durations in classes.
"""

from collections import Counter
from typing import Final

from ironcurtain_proxy.audit.display import Entry

_MOST_NAMES: Final = 1000
_OTHERS: Final = "(others)"
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
        self.tools: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self._open: set[str] = set()
        self._durations: Counter[int] = Counter()

    def add(self, entry: Entry) -> None:
        """Count one entry; an intent counts only if no outcome follows."""
        if entry.is_intent:
            self._open.add(entry.request_id)
            return
        self._open.discard(entry.request_id)
        self.calls += 1
        self.first = self.first or entry.time
        self.last = entry.time
        self.decisions[entry.decision] += 1
        self.results[entry.status] += 1
        _count(self.tools, entry.tool)
        _count(self.rules, entry.rule)
        if entry.status != "denied":
            self._durations[_class_of(entry.duration_ms)] += 1

    @property
    def unfinished(self) -> int:
        """Intents without outcome."""
        return len(self._open)

    def duration_below(self, share: float) -> int | None:
        """Milliseconds that this share of the forwarded calls stayed within; None: longer, or none.

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


def _count(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < _MOST_NAMES else _OTHERS] += 1


def _class_of(duration_ms: int) -> int:
    return next((bound for bound in _CLASSES if duration_ms <= bound), 0)
