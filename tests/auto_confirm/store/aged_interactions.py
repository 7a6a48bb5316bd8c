"""Interactions of any age, and what is left of them, looked at without the code under test."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.interactions import BATCH
from ironcurtain_proxy.auto_confirm.store.rows import NewPattern
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.auto_confirm.store.tables import INTERACTIONS, METADATA, PATTERNS, TASKS
from tests.auto_confirm.store.direct import open_task, record_interaction
from tests.auto_confirm.store.specimens import auto_approved, ends, interaction, task
from tests.fakes import FakeClock

Kind = Literal["auto", "approved", "refused", "timed out", "pending", "held", "escalated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OPEN = ("pending", "held", "escalated")
TODAY = 1000
"""Days on the clock when a purge is made."""


@dataclass(frozen=True)
class Past:
    """An interaction as it once was."""

    kind: Kind
    age: float
    """Days."""
    took: float = 0.0
    """Days until it ended."""
    scope: str = "/srv/app/a.md"

    def is_kept(self, keep: float) -> bool:
        if self.kind in OPEN:
            return self.age <= max(keep, 3)
        return self.age - (0 if self.kind == "auto" else self.took) <= keep


def add_pattern(store: Store) -> None:
    """The one that `auto` interactions were approved by; its id is 1."""
    pattern = NewPattern(name="p", operation="file_edit", scope_regex=None, created_by="operator")
    assert store.add_pattern(pattern) == 1


def lived(store: Store, clock: FakeClock, past: Past) -> int:
    """Let it happen, when it happened."""
    wind(clock, TODAY - past.age)
    if past.kind == "auto":
        row = interaction(status="auto_approved", scope=past.scope, pattern=1)
        return auto_approved(store, row)
    identifier = record_interaction(store, interaction(scope=past.scope))
    if past.kind == "pending":
        return identifier
    open_task(store, identifier, task())
    if past.kind == "held":
        return identifier
    store.record_escalation(identifier, "architect_manager", "human", "no answer")
    open_task(store, identifier, task("human", "no answer"))
    if past.kind == "escalated":
        return identifier
    wind(clock, TODAY - past.age + past.took)
    end = {
        "approved": ends("approved", "human"),
        "refused": ends("rejected", "reviewer:a"),
        "timed out": ends("rejected", "timeout", "nobody answered"),
    }
    assert store.end(identifier, end[past.kind])
    return identifier


def wind(clock: FakeClock, days: float) -> None:
    clock.seconds = timedelta(days=days).total_seconds()


def purge(store: Store, clock: FakeClock, keep: float) -> int:
    """A whole one, as it is made today. How many went."""
    wind(clock, TODAY)
    span = timedelta(days=keep)
    count = total = store.begin_purge(span)
    while count == BATCH:
        count = store.go_on_purging(span)
        total += count
    return total


def ids(store: Store, table: sa.Table = INTERACTIONS, column: str = "id") -> set[int]:
    return store.read(lambda c: set(c.execute(sa.select(table.c[column])).scalars()))


def dangling(store: Store) -> dict[str, int]:
    """Rows that refer to what is not there: by the database's own keys, and by ours."""

    def work(connection: Connection) -> dict[str, int]:
        found: Counter[str] = Counter()
        for table in METADATA.sorted_tables:
            for key in sa.inspect(connection).get_foreign_keys(table.name):
                (name,) = key["constrained_columns"]
                other = METADATA.tables[key["referred_table"]]
                found[f"{table.name}.{name}"] = _orphans(connection, table.c[name], other)
        for name, other in (("matched_pattern_id", PATTERNS), ("escalation_task_id", TASKS)):
            found[name] = _orphans(connection, INTERACTIONS.c[name], other)
        return dict(found)

    return store.read(work)


def _orphans(connection: Connection, column: "sa.Column[int]", other: sa.Table) -> int:
    there = sa.select(other.c.id)
    lost = column.is_not(None) & column.not_in(there)
    return connection.execute(
        sa.select(sa.func.count()).select_from(column.table).where(lost)
    ).scalar_one()
