"""Counts of the audit log's calls, for a page.

Memory is constant: calls are counted by the minute, names up to a limit, and only the last refused
calls are kept.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from ironcurtain_proxy.audit.calls import RecordedCall
from ironcurtain_proxy.audit.display import LogEntry, arrived_at
from ironcurtain_proxy.audit.selection import REFUSALS

KINDS: Final = ("allowed", "without a question", "by a person", "refused", "denied")
"""The ends of a call: allowed by the policy; approved by containment, a grant, the engine or the
auto-approver; approved by a reviewer; not approved (or held); denied by the policy."""
_UNASKED: Final = frozenset({"containment", "grant", "engine", "auto-approver", "policy"})
_NOBODY: Final = "nobody"
_MOST_NAMES: Final = 1000
_OTHERS: Final = "(others)"
_LAST: Final = 50
_MOST_WAITS: Final = 100_000


@dataclass(slots=True)
class Day:
    """Counts of calls."""

    total: int = 0
    errors: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    minutes: dict[datetime, Counter[str]] = field(default_factory=dict)
    """The counts by the minute of arrival, UTC."""
    tools: dict[str, Counter[str]] = field(default_factory=dict)
    clients: dict[str, Counter[str]] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rules and deciding parties of refused or denied calls."""
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rules and tools of calls with a question to a reviewer."""
    unreviewed: int = 0
    """Calls that needed a reviewer, and were refused because there was none."""
    waits: list[int] = field(default_factory=list)
    """Milliseconds of reviewers' answers."""
    last_refused: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=_LAST))

    @property
    def questions(self) -> int:
        """Calls with a question to a reviewer."""
        return self.asked.total()


def count_calls(calls: Iterable[RecordedCall]) -> Day:
    """Count the calls."""
    day = Day()
    for call in calls:
        _count(day, call)
    return day


def kind_of(entry: LogEntry) -> str:
    """The end of a call, a word of `KINDS`."""
    match entry.decision:
        case "allowed":
            return "allowed"
        case "approved":
            return "without a question" if entry.by in _UNASKED else "by a person"
        case "DENIED":
            return "denied"
        case _:
            return "refused"


def _count(day: Day, call: RecordedCall) -> None:
    entry, kind = call.entry, kind_of(call.entry)
    day.total += entry.calls
    day.kinds[kind] += entry.calls
    day.errors += entry.status == "error"
    arrived = arrived_at(entry)
    if arrived:
        minute = datetime.fromtimestamp(arrived // 60 * 60, UTC)
        day.minutes.setdefault(minute, Counter())[kind] += entry.calls
    _named(day.tools, entry.tool if entry.calls == 1 else _OTHERS)[kind] += entry.calls
    _named(day.clients, entry.client or "(not known)")[kind] += entry.calls
    if len(day.sessions) < _MOST_NAMES:
        day.sessions.add(entry.session)
    if entry.decision in REFUSALS:
        _add(day.rules, (entry.rule, entry.by), entry.calls)
        day.last_refused.append(entry)
    if kind == "refused" and entry.by == _NOBODY and not entry.waited_ms:
        day.unreviewed += entry.calls
    if entry.waited_ms or kind == "by a person":
        _add(day.asked, (entry.rule, entry.tool), 1)
        if len(day.waits) < _MOST_WAITS:
            day.waits.append(entry.waited_ms)


def _named(counts: dict[str, Counter[str]], name: str) -> Counter[str]:
    known = name if name in counts or len(counts) < _MOST_NAMES else _OTHERS
    return counts.setdefault(known, Counter())


def _add(counts: Counter[tuple[str, str]], names: tuple[str, str], number: int) -> None:
    known = names if names in counts or len(counts) < _MOST_NAMES else (_OTHERS, _OTHERS)
    counts[known] += number
