"""Several proxies on one store when it is purged, and one that is killed in the middle."""

import signal
from pathlib import Path

import pytest
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.store.interactions import BATCH, THEIRS
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.auto_confirm.store.tables import (
    DECISIONS,
    HISTORY,
    INTERACTIONS,
    REVIEWER_DECISIONS,
)
from tests import program
from tests.auto_confirm.store.aged_interactions import (
    KINDS,
    TODAY,
    Past,
    add_pattern,
    dangling,
    ids,
    lived,
    wind,
)
from tests.auto_confirm.store.purging_process import KEEP
from tests.auto_confirm.store.specimens import reviewed
from tests.fakes import FakeClock
from tests.program import PATIENCE

OLD = 2 * BATCH + 100
SIZE = 4


def fill(store: Store, clock: FakeClock) -> set[int]:
    """Many old interactions, each with a trail; and one of each kind to stay: their ids."""

    def work(connection: sa.Connection) -> None:
        span = range(1, OLD + 1)
        moment = clock.now()
        rows = [
            {"id": i, "request_id": f"old-{i}", "status": "approved", "created_at": moment}
            for i in span
        ]
        connection.execute(sa.insert(INTERACTIONS), rows)
        mine = {"reason": "fine", "decided_by": "human"}
        for table, values in (
            (DECISIONS, {"decision": "approved", **mine}),
            (REVIEWER_DECISIONS, {"decision": "approved", **mine}),
            (HISTORY, {"to_target": "human"}),
        ):
            connection.execute(sa.insert(table), [{"interaction_id": i, **values} for i in span])
        if connection.dialect.name == "postgresql":
            sequence = sa.text("SELECT setval('claude_interactions_id_seq', 100000)")
            connection.execute(sequence)

    store._database.write(work)
    add_pattern(store)
    return {lived(store, clock, Past(kind, age=1)) for kind in KINDS}


def purging(url: str | None, state: Path, mode: str) -> program.Forked:
    return program.start_here(
        "tests.auto_confirm.store.purging_process", url or "", str(state), mode
    )


def together(url: str | None, state: Path, mode: str, store: Store) -> tuple[list[int], set[int]]:
    """What several processes removed in each batch, and what was written meanwhile."""
    members = [purging(url, state, mode) for _ in range(SIZE)]
    for member in members:
        assert member.stdout.readline() == b"ready\n"
    for member in members:
        member.stdin.write(b"go\n")
    written = {reviewed(store)}
    while any(member.poll() is None for member in members):
        written.add(reviewed(store))
    printed = [member.stdout.read().split() for member in members]
    assert [member.wait(PATIENCE) for member in members] == [0] * SIZE
    return [int(word) for words in printed for word in words], written


@pytest.mark.parametrize("mode", ["begin", "go"])
def test_many_processes_remove_each_once_and_nothing_that_is_written_meanwhile(
    url: str | None, tmp_path: Path, clock: FakeClock, mode: str
) -> None:
    state = tmp_path / "state"
    with open_store(url, state, clock, deadline_seconds=50) as store:
        kept = fill(store, clock)
        wind(clock, TODAY)
        removed, written = together(url, state, mode, store)
        assert all(count <= BATCH for count in removed)
        assert sum(removed) == OLD
        if mode == "begin":
            assert sorted(removed) == [*([0] * (SIZE - 1)), 100, BATCH, BATCH]
        assert ids(store) == kept | written
        assert set(dangling(store).values()) == {0}


@pytest.mark.parametrize("nth", range(1, len(THEIRS) + 2))
def test_a_process_killed_in_the_middle_leaves_no_half_of_an_interaction(
    url: str | None, tmp_path: Path, clock: FakeClock, nth: int
) -> None:
    state = tmp_path / "state"
    with open_store(url, state, clock, deadline_seconds=50) as store:
        kept = fill(store, clock)
        # In its second batch.
        killed = purging(url, state, str(len(THEIRS) + 1 + nth))
        assert killed.wait(PATIENCE) == -signal.SIGKILL
        assert [int(word) for word in killed.stdout.read().split()] == [BATCH]
        left = ids(store)
        assert len(left - kept) == OLD - BATCH
        for table in (DECISIONS, REVIEWER_DECISIONS, HISTORY):
            assert ids(store, table, "interaction_id") >= left - kept
        assert set(dangling(store).values()) == {0}
        # A server may need a moment to see that the process is gone, and lets go of its rows then.
        every = sa.select(INTERACTIONS.c.id).with_for_update()
        store._database.write(lambda connection: connection.execute(every).all())
        wind(clock, TODAY)
        assert store.go_on_purging(KEEP) == BATCH
        assert store.go_on_purging(KEEP) == OLD - 2 * BATCH
        assert ids(store) == kept
