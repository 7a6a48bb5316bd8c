"""What is removed from the store: old interactions with all that is theirs, and nothing else."""

from collections import Counter
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.auto_confirm.engine.interaction import ApproveRate
from ironcurtain_proxy.auto_confirm.store import interactions
from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.auto_confirm.store.tables import DECISIONS, INTERACTIONS, METADATA, UPKEEP
from tests.auto_confirm.store.aged_interactions import (
    KINDS,
    OPEN,
    TODAY,
    Kind,
    Past,
    add_pattern,
    dangling,
    ids,
    lived,
    purge,
    wind,
)
from tests.auto_confirm.store.direct import recorded
from tests.auto_confirm.store.specimens import auto_approved
from tests.examples import examples
from tests.fakes import FakeClock

KEEP = timedelta(days=90)


def emptied(store: Store) -> None:
    """As it was when it was new, with one pattern."""

    def work(connection: sa.Connection) -> None:
        for table in (*interactions.THEIRS, INTERACTIONS):
            connection.execute(sa.delete(table))
        connection.execute(sa.update(UPKEEP).values(done_at=None))

    store._database.write(work)
    if not store.patterns():
        add_pattern(store)


ages = st.one_of(st.integers(0, 24), st.integers(356, 376)).map(lambda number: number / 4)
pasts = st.builds(
    Past,
    kind=st.sampled_from(KINDS),
    age=ages,
    took=st.sampled_from([0.0, 0.5, 2.0]),
    scope=st.sampled_from(["/srv/a", "/srv/b"]),
)


@given(history=st.lists(pasts, max_size=12), keep=st.sampled_from([1, 2.5, 90]))
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_what_is_left_is_whole_and_is_all_that_the_engine_learns_from(
    store: Store, clock: FakeClock, history: list[Past], keep: float
) -> None:
    emptied(store)
    written = {lived(store, clock, past): past for past in history}
    kept = {identifier for identifier, past in written.items() if past.is_kept(keep)}
    assert purge(store, clock, keep) == len(history) - len(kept)
    assert ids(store) == kept
    assert set(dangling(store).values()) == {0}
    left = [written[identifier] for identifier in kept]
    decided = Counter(past.scope for past in left if past.kind in {"approved", "refused"})
    approved = Counter(past.scope for past in left if past.kind == "approved")
    assert store.learned().rates == {
        ("file_edit", scope): ApproveRate(approved[scope], count)
        for scope, count in decided.items()
    }
    assert len(store.patterns()) == 1
    assert len(store.learned().safe_paths) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_older_than_it_is_kept_goes_with_everything(
    store: Store, clock: FakeClock, kind: Kind
) -> None:
    emptied(store)
    old = lived(store, clock, Past(kind, age=90.5))
    young = lived(store, clock, Past(kind, age=90))
    assert purge(store, clock, 90) == 1
    assert ids(store) == {young}
    assert recorded(store, old) is None
    for table in interactions.THEIRS:
        assert old not in ids(store, table, "interaction_id")


@pytest.mark.parametrize("kind", OPEN)
def test_a_call_that_may_still_be_answered_stays_however_little_is_kept(
    store: Store, clock: FakeClock, kind: Kind
) -> None:
    waits = lived(store, clock, Past(kind, age=2))
    lived(store, clock, Past(kind, age=3.25))
    assert purge(store, clock, 1) == 1
    assert ids(store) == {waits}


def test_what_ended_lately_stays_though_it_began_long_ago(store: Store, clock: FakeClock) -> None:
    late = lived(store, clock, Past("approved", age=2, took=1.5))
    assert purge(store, clock, 1) == 0
    assert ids(store) == {late}


def test_every_table_that_refers_to_an_interaction_is_cleared() -> None:
    refer = {
        table
        for table in METADATA.tables.values()
        if any(key.column.table is INTERACTIONS for key in table.foreign_keys)
    }
    assert set(interactions.THEIRS) == refer


def test_what_another_program_wrote_is_not_ours_to_remove(store: Store, clock: FakeClock) -> None:
    insert = sa.text(
        "INSERT INTO claude_interactions (session_name, status, created_at) "
        "VALUES ('old', 'approved', '2001-01-01 00:00:00')"
    )
    store._database.write(lambda c: c.execute(insert))
    assert purge(store, clock, 1) == 0
    assert len(ids(store)) == 1


def test_the_oldest_go_first_and_no_more_than_a_batch(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactions, "BATCH", 2)
    by_age = {age: lived(store, clock, Past("approved", age=age)) for age in (91, 95, 93, 92, 94)}
    wind(clock, TODAY)
    assert store.begin_purge(KEEP) == 2
    assert ids(store) == {by_age[91], by_age[92], by_age[93]}
    assert store.go_on_purging(KEEP) == 2
    assert store.go_on_purging(KEEP) == 1
    assert store.go_on_purging(KEEP) == 0
    assert ids(store) == set()


def test_a_store_is_gone_through_once_a_day(store: Store, clock: FakeClock) -> None:
    for age in (95, 90, 89.5, 89):
        lived(store, clock, Past("approved", age=age))
    wind(clock, TODAY)
    assert store.begin_purge(KEEP) == 1
    wind(clock, TODAY + 0.75)
    assert store.begin_purge(KEEP) == 0
    wind(clock, TODAY + 1)
    assert store.begin_purge(KEEP) == 2


def test_a_clock_that_once_ran_ahead_does_not_put_it_off_for_ever(
    store: Store, clock: FakeClock
) -> None:
    wind(clock, TODAY + 5000)
    assert store.begin_purge(KEEP) == 0
    lived(store, clock, Past("approved", age=91))
    wind(clock, TODAY)
    assert store.begin_purge(KEEP) == 1


def test_a_database_that_fails_loses_nothing_and_is_tried_again(
    store: Store, clock: FakeClock
) -> None:
    lived(store, clock, Past("approved", age=91))
    renamed = "ALTER TABLE escalation_history RENAME TO {}"
    store._database.write(lambda c: c.execute(sa.text(renamed.format("elsewhere"))))
    wind(clock, TODAY)
    with pytest.raises(StoreError):
        store.begin_purge(KEEP)
    assert len(ids(store)) == 1
    assert len(ids(store, DECISIONS)) > 1
    back = "ALTER TABLE elsewhere RENAME TO escalation_history"
    store._database.write(lambda c: c.execute(sa.text(back)))
    # That it was begun was taken back with the rest.
    assert store.begin_purge(KEEP) == 1


MANY = {
    "sqlite": (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
        "INSERT INTO claude_interactions (request_id, status, created_at) "
        "SELECT 'many-' || i, 'approved', datetime('2026-01-01', '+' || i || ' minutes') FROM n"
    ),
    "postgresql": (
        "INSERT INTO claude_interactions (request_id, status, created_at) "
        "SELECT 'many-' || i, 'approved', timestamp '2026-01-01' + i * interval '1 minute' "
        "FROM generate_series(1, 20000) AS i"
    ),
}


def test_the_old_ones_are_found_by_an_index(store: Store, clock: FakeClock) -> None:
    dialect = store._database.dialect
    store._database.write(lambda c: c.execute(sa.text(MANY[dialect])))
    auto_approved(store)

    def plan(connection: sa.Connection) -> str:
        connection.execute(sa.text("ANALYZE"))
        asked = interactions.due(KEEP, clock.now() + timedelta(days=91))
        raw = asked.compile(connection, compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN QUERY PLAN" if dialect == "sqlite" else "EXPLAIN"
        rows = connection.exec_driver_sql(f"{explain} {raw}")
        return "\n".join(str(row) for row in rows)

    found = store._database.write(plan)
    assert "ix_interactions_created" in found
    assert "SCAN claude_interactions" not in found
    assert "Sort" not in found
    assert "TEMP B-TREE" not in found
