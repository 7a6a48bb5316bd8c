"""The limit on denied calls that get a record each.

An agent can cause any number of denied calls, which could fill the disk; and on a full disk the
proxy forwards nothing. Denied calls share a budget of bytes, which refills with time. While the
budget is empty, denied calls are counted by server, tool and reason, and one record holds the
counts. Decisions of persons and reviewers always have a record each.
"""

from collections import Counter
from datetime import datetime
from typing import Final, TypeAlias

from ironcurtain_proxy.model.audit import AuditRecord
from ironcurtain_proxy.model.decider import KERNEL

BURST_BYTES: Final = 4 << 20
BYTES_PER_SECOND: Final = 16 << 10
SECONDS: Final = 1.0
"""Between two lines of counts."""

_MOST_KINDS: Final = 16
_NAME: Final = 100
"""Characters of a tool's name: it is the agent's."""

DenialKind: TypeAlias = tuple[str, str, str, str]
"""Server, tool, rule, and the party that refused."""


def is_denial(record: AuditRecord) -> bool:
    """Return whether a record is of a call that the proxy refused without a question."""
    return (
        record.result is not None
        and record.result.status == "denied"
        and record.decided_by == KERNEL
        and all(name != "waitedMs" for name, _ in record.context)
    )


class Denials:
    """The budget of one log, and its unwritten counts. Times are monotonic."""

    def __init__(self) -> None:
        self._left = float(BURST_BYTES)
        self._looked_at: float | None = None
        self._written_at: float | None = None
        self._counts: Counter[DenialKind] = Counter()
        self._first: AuditRecord | None = None
        self._last: AuditRecord | None = None

    def is_spent(self, now: float) -> bool:
        """Return whether the next denied call is counted instead of recorded."""
        since = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at)
        self._looked_at = now
        self._left = min(float(BURST_BYTES), self._left + since * BYTES_PER_SECOND)
        return self._left <= 0

    def charge(self, size: int) -> None:
        """Subtract the bytes of a recorded denied call from the budget."""
        self._left -= size

    def count(self, record: AuditRecord) -> None:
        """Count a denied call instead of recording it."""
        if self._first is None:
            self._first = record
        self._last = record
        by = next((str(value) for name, value in record.context if name == "refusedBy"), "")
        kind = (record.server[:_NAME], record.tool[:_NAME], record.rule[:_NAME], by)
        if kind not in self._counts and len(self._counts) >= _MOST_KINDS:
            kind = ("", "", "", "")
        self._counts[kind] += 1

    @property
    def is_waiting(self) -> bool:
        """Whether there are unwritten counts."""
        return self._first is not None

    def is_due(self, now: float) -> bool:
        """Return whether the counts must be written now: the first at once, then once a second."""
        late = self._written_at is None or now - self._written_at >= SECONDS
        return self.is_waiting and late

    def take(self, now: float) -> "Counted | None":
        """Return the counts since the last time, or None if there are none."""
        first, last = self._first, self._last
        if first is None or last is None:
            return None
        found = Counted(first, last.timestamp, self._counts)
        self._first = self._last = None
        self._counts = Counter()
        self._written_at = now
        return found


class Counted:
    """Counted denied calls, for one record."""

    __slots__ = ("first", "kinds", "until")

    def __init__(self, first: AuditRecord, until: datetime, kinds: Counter[DenialKind]) -> None:
        self.first = first
        """The first call: it gives the session and the start time."""
        self.until = until
        """The time of the last call."""
        self.kinds = kinds

    @property
    def total(self) -> int:
        """The number of counted calls."""
        return self.kinds.total()
