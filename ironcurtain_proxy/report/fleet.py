"""Counts of the audit log's calls: of one machine for its page, and of many machines as text.

Memory is constant: calls are counted by the minute, names up to a limit, and only the last refused
calls are kept.

For many machines, the records are read that `audit ship` has put into one directory:
TEAM/MACHINE.LOG.jsonl. A person who answers after an hour has not looked at the question for an
hour: a wait counts two minutes at most.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from ironcurtain_proxy.audit.display import REFUSALS, LogEntry, arrived_at, entry_of, shown_time
from ironcurtain_proxy.audit.files import records_of
from ironcurtain_proxy.audit.verify import copies_in
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.report import plots
from ironcurtain_proxy.report.plots import (
    NOTHING,
    UNKNOWN,
    ReportPart,
    ReportSection,
    Tile,
    begin_of_stretch,
    percent,
    step_for,
    table,
)

# --- day


KINDS: Final = ("allowed", "without a question", "by a person", "refused", "denied")
"""The ends of a call: allowed by the policy; approved by containment, a grant, the engine or the
auto-approver; approved by a reviewer; not approved (or held); denied by the policy."""
_UNASKED: Final = frozenset({"containment", "grant", "engine", "auto-approver", "policy"})
_NOBODY: Final = "nobody"
_MOST_NAMES: Final = 1000
_OTHERS: Final = "(others)"
_LAST: Final = 50
_MOST_WAITS: Final = 100_000


class Day(Struct):
    """Counts of calls."""

    total: int = 0
    errors: int = 0
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    minutes: dict[datetime, Counter[str]] = msgspec.field(default_factory=dict)
    """The counts by the minute of arrival, UTC."""
    tools: dict[str, Counter[str]] = msgspec.field(default_factory=dict)
    clients: dict[str, Counter[str]] = msgspec.field(default_factory=dict)
    sessions: set[str] = msgspec.field(default_factory=set)
    rules: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """Rules and deciding parties of refused or denied calls."""
    asked: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """Rules and tools of calls with a question to a reviewer."""
    unreviewed: int = 0
    """Calls that needed a reviewer, and were refused because there was none."""
    waits: list[int] = msgspec.field(default_factory=list)
    """Milliseconds of reviewers' answers."""
    last_refused: deque[LogEntry] = msgspec.field(default_factory=lambda: deque(maxlen=_LAST))

    @property
    def questions(self) -> int:
        """Calls with a question to a reviewer."""
        return self.asked.total()


def count_calls(calls: Iterable[LogEntry]) -> Day:
    """Count the calls, oldest first."""
    day = Day()
    for entry in calls:
        _count(day, entry)
    return day


def kind_of(entry: LogEntry) -> str:
    """Return the end of a call, a word of `KINDS`."""
    match entry.decision:
        case "allowed":
            return "allowed"
        case "approved":
            return "without a question" if entry.by in _UNASKED else "by a person"
        case "DENIED":
            return "denied"
        case _:
            return "refused"


def is_question(entry: LogEntry) -> bool:
    """Return whether a reviewer was asked about a call."""
    return bool(entry.waited_ms) or kind_of(entry) == "by a person"


def _count(day: Day, entry: LogEntry) -> None:
    kind = kind_of(entry)
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
    if is_question(entry):
        _add(day.asked, (entry.rule, entry.tool), 1)
        if len(day.waits) < _MOST_WAITS:
            day.waits.append(entry.waited_ms)


def _named(counts: dict[str, Counter[str]], name: str) -> Counter[str]:
    known = name if name in counts or len(counts) < _MOST_NAMES else _OTHERS
    return counts.setdefault(known, Counter())


def _add(counts: Counter[tuple[str, str]], names: tuple[str, str], number: int) -> None:
    known = names if names in counts or len(counts) < _MOST_NAMES else (_OTHERS, _OTHERS)
    counts[known] += number


# --- the calls of the report ----------------------------------------------------------------------
# The part of a report about the calls of the audit log.


PALETTE: Final[plots.Palette] = dict(zip(KINDS, ("c1", "c2", "c5", "c3", "c4"), strict=True))
_ROWS: Final = 12
_NAME_WIDTH: Final = 190


def calls_part(day: Day, at: datetime, local: Callable[[str], str], begin: str = "") -> ReportPart:
    """Return the calls, the questions and the refusals.

    Args:
        day: the counted calls.
        at: the time of the report.
        local: a record's time as the clock on the wall showed it.
        begin: the time from which calls were counted, where earlier ones were left out.
    """
    left_out = f" Only calls since {begin}: `ironcurtain-proxy report` counts all." if begin else ""
    sessions, clients = len(day.sessions), len(day.clients)
    return ReportPart(
        "calls",
        f"{_many(day.total, 'call')} of {_many(sessions, 'session')} and "
        f"{_many(clients, 'client')} as of {at:%Y-%m-%d %H:%M} UTC, from the audit log.{left_out}",
        list(_tiles(day)),
        list(_sections(day, local)),
    )


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _tiles(day: Day) -> Iterator[Tile]:
    total = day.total
    yield Tile("Calls", str(total), f"{day.errors} ended with a server's error")
    every = day.questions + day.unreviewed
    questions = f"{100 * every / total:.1f}" if total else UNKNOWN
    asked = f"{day.questions} asked, {day.unreviewed} refused because nobody reviewed"
    yield Tile("Questions per 100 calls", questions, asked)
    kinds = day.kinds
    yield _share("Let through without a question", kinds["allowed"] + kinds[KINDS[1]], total)
    yield _share("Denied or refused", kinds["denied"] + kinds["refused"], total)
    waits = sorted(day.waits)
    middle = shown_time(waits[len(waits) // 2]) if waits else UNKNOWN
    slowest = f"longest: {shown_time(waits[-1])}" if waits else "nobody was asked"
    yield Tile("Time to an answer, median", middle, slowest)


def _share(name: str, part: int, whole: int) -> Tile:
    return Tile(name, percent(part / whole) if whole else UNKNOWN, f"{part} of {whole}")


def _sections(day: Day, local: Callable[[str], str]) -> Iterator[ReportSection]:
    yield ReportSection("Calls over time, by what became of them", _over_time(day), is_wide=True)
    yield ReportSection("Tools, by what became of their calls", _rows(day.tools))
    yield ReportSection("Clients", _rows(day.clients))
    yield ReportSection("Asked about most often", _counted(("Rule", "Tool", "Calls"), day.asked))
    yield ReportSection("Refused most often", _counted(("Rule", "By", "Calls"), day.rules))
    refused = [
        (local(one.time), one.decision, one.by, one.tool, one.argument, one.outcome)
        for one in reversed(day.last_refused)
    ]
    titles = ("Time", "Decision", "By", "Tool", "Argument", "Outcome")
    title = f"The last {len(refused)} calls that no server got"
    yield ReportSection(title, table(titles, refused), is_wide=True)


def _over_time(day: Day) -> str:
    if not day.minutes:
        return NOTHING
    step = step_for(day.minutes)
    found: dict[datetime, Counter[str]] = {}
    for minute, counts in day.minutes.items():
        found.setdefault(begin_of_stretch(minute, step), Counter()).update(counts)
    bars, start = [], min(found)
    while start <= max(found):
        bars.append(plots.Bar(start, found.get(start, {})))
        start += step
    plot = plots.stacked_over_time(bars, step, "Calls over time", PALETTE)
    return plot + plots.legend([bar.counts for bar in bars], PALETTE)


def _rows(counts: Mapping[str, Mapping[str, int]]) -> str:
    if not counts:
        return NOTHING
    most = sorted(counts.items(), key=lambda one: (-sum(one[1].values()), one[0]))[:_ROWS]
    rows = {_fitting(name): kinds for name, kinds in most}
    plot = plots.stacked_rows(rows, "Calls", PALETTE, left=_NAME_WIDTH)
    return plot + plots.legend([*rows.values()], PALETTE)


def _fitting(name: str) -> str:
    longest = _NAME_WIDTH // 7
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def _counted(titles: tuple[str, str, str], counts: Counter[tuple[str, str]]) -> str:
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:_ROWS]
    return table(titles, [(*names, str(number)) for names, number in most])


# --- fleet


_MOST_MINUTES: Final = 2.0
_MOST_FLEET_NAMES: Final = 10_000
NO_TEAM: Final = "(no team)"


class Cost(Struct):
    """The calls of one rule, team or machine."""

    calls: int = 0
    questions: int = 0
    minutes: float = 0.0

    @property
    def per_hundred(self) -> float:
        """The questions in a hundred calls."""
        return 100 * self.questions / self.calls if self.calls else 0.0

    def add(self, entry: LogEntry) -> None:
        """Count a call."""
        self.calls += entry.calls
        if is_question(entry):
            self.questions += 1
            self.minutes += min(entry.waited_ms / 60_000, _MOST_MINUTES)


class FleetCosts(Struct):
    """The counts of all machines."""

    whole: Cost = field(default_factory=Cost)
    tables: dict[str, dict[str, Cost]] = field(
        default_factory=lambda: {"rule": {}, "team": {}, "machine": {}}
    )
    """The counts by name, for each kind of name."""

    def add(self, team: str, machine: str, entry: LogEntry) -> None:
        """Count a call of a machine."""
        self.whole.add(entry)
        names = {"rule": entry.rule or "-", "team": team, "machine": machine}
        for kind, name in names.items():
            table = self.tables[kind]
            known = name if name in table or len(table) < _MOST_FLEET_NAMES else _OTHERS
            table.setdefault(known, Cost()).add(entry)


def count_fleet(directory: Path) -> FleetCosts:
    """Count the records of a directory; those that were sent twice count once.

    Raises:
        OSError: a file cannot be read.
    """
    costs = FleetCosts()
    for machine, path in copies_in(directory):
        team = NO_TEAM if path.parent == directory else path.parent.name
        for entry in _outcomes(path):
            costs.add(team, machine, entry)
    return costs


def _outcomes(path: Path) -> Iterator[LogEntry]:
    seen: set[int] = set()
    for fields in records_of(path):
        seq = fields.get("seq")
        # A record may have come twice. A high number that somebody made up must hide no other one.
        if not isinstance(seq, int) or seq in seen:
            continue
        seen.add(seq)
        entry = entry_of(fields)
        if not entry.is_intent:
            yield entry


def fleet_lines(costs: FleetCosts, most: int = 20) -> Iterator[str]:
    """Yield the tables for people, the dearest first."""
    yield f"{costs.whole.calls} calls, {costs.whole.questions} questions"
    for title, names in costs.tables.items():
        yield ""
        yield f"{title:<40}{'calls':>9}{'questions':>11}{'per 100':>9}{'minutes':>9}"
        for name, cost in _dearest(names)[:most]:
            numbers = f"{cost.calls:>9}{cost.questions:>11}{cost.per_hundred:>9.1f}"
            yield f"{name[:39]:<40}{numbers}{cost.minutes:>9.1f}"


def fleet_fields(costs: FleetCosts) -> dict[str, Json]:
    """Return the same for programs."""
    return {
        f"{title}s": [
            {
                "name": name,
                "calls": cost.calls,
                "questions": cost.questions,
                "per100": round(cost.per_hundred, 2),
                "minutes": round(cost.minutes, 2),
            }
            for name, cost in _dearest(names)
        ]
        for title, names in costs.tables.items()
    }


def _dearest(names: Mapping[str, Cost]) -> list[tuple[str, Cost]]:
    return sorted(names.items(), key=lambda one: (-one[1].minutes, -one[1].questions, one[0]))
