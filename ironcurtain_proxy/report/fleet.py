"""Questions of many machines by rule, team and machine, and the minutes of people that they cost.

Reads the records that `audit ship` has put into one directory: TEAM/MACHINE.LOG.jsonl. A person who
answers after an hour has not looked at the question for an hour: a wait counts two minutes at most.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.audit.display import LogEntry, entry_of
from ironcurtain_proxy.audit.files import parsed, read_lines
from ironcurtain_proxy.audit.heads import HEADS_SUFFIX
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.report.day import is_question

_MOST_MINUTES: Final = 2.0
_MOST_NAMES: Final = 10_000
_OTHERS: Final = "(others)"
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
    rules: dict[str, Cost] = field(default_factory=dict)
    teams: dict[str, Cost] = field(default_factory=dict)
    machines: dict[str, Cost] = field(default_factory=dict)

    def add(self, team: str, machine: str, entry: LogEntry) -> None:
        """Count a call of a machine."""
        self.whole.add(entry)
        for table, name in (
            (self.rules, entry.rule or "-"),
            (self.teams, team),
            (self.machines, machine),
        ):
            key = name if name in table or len(table) < _MOST_NAMES else _OTHERS
            table.setdefault(key, Cost()).add(entry)

    def tables(self) -> Iterator[tuple[str, Mapping[str, Cost]]]:
        """Yield each table with its title."""
        yield "rule", self.rules
        yield "team", self.teams
        yield "machine", self.machines


def count_fleet(directory: Path) -> FleetCosts:
    """Count the records of a directory; those that were sent twice count once.

    Raises:
        OSError: a file cannot be read.
    """
    costs = FleetCosts()
    for path in sorted(directory.rglob("*.jsonl")):
        machine, _, rest = path.name.partition(".")
        if "." not in rest or path.name.endswith(HEADS_SUFFIX):
            continue
        team = NO_TEAM if path.parent == directory else path.parent.name
        for entry in _outcomes(path):
            costs.add(team, machine, entry)
    return costs


def _outcomes(path: Path) -> Iterator[LogEntry]:
    last = 0
    for line in read_lines(path):
        fields = None if line.raw is None else parsed(line.raw)
        seq = None if fields is None else fields.get("seq")
        if fields is None or not isinstance(seq, int) or seq <= last:
            continue
        last = seq
        entry = entry_of(fields)
        if not entry.is_intent:
            yield entry


def fleet_lines(costs: FleetCosts, most: int = 20) -> Iterator[str]:
    """Yield the tables for people, the dearest first."""
    yield f"{costs.whole.calls} calls, {costs.whole.questions} questions"
    for title, table in costs.tables():
        yield ""
        yield f"{title:<40}{'calls':>9}{'questions':>11}{'per 100':>9}{'minutes':>9}"
        for name, cost in _dearest(table)[:most]:
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
            for name, cost in _dearest(table)
        ]
        for title, table in costs.tables()
    }


def _dearest(table: Mapping[str, Cost]) -> list[tuple[str, Cost]]:
    items: Iterable[tuple[str, Cost]] = table.items()
    return sorted(items, key=lambda one: (-one[1].minutes, -one[1].questions, one[0]))
