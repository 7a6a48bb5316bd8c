"""What a killed proxy left open is ended by whoever sees that it is gone, and by nobody else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine_knowledge import LazyStore, is_gone, this_owner
from ironcurtain_proxy.auto_confirm.engine_memory import StoreLedger
from ironcurtain_proxy.auto_confirm.session_files import Windows
from ironcurtain_proxy.auto_confirm.store import interactions
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.auto_confirm.store.tables import TASKS
from tests import program
from tests.auto_confirm.store.direct import pending_of_others, record_interaction, recorded
from tests.auto_confirm.store.specimens import interaction, task
from tests.fakes import FakeClock

ROOT = Path(__file__).parents[3]
MODULE = "tests.auto_confirm.store.abandoning_process"


@contextmanager
def asking(url: str | None, place: Path) -> Iterator[tuple[program.Forked, int]]:
    """A process that waits for an answer, and the row of its question."""
    process = program.start_here(MODULE, url or "-", str(place))
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def status(store: Store, row: int) -> tuple[str, str | None]:
    found = recorded(store, row)
    assert found is not None
    return found.status, found.decided_by


def test_a_killed_process_leaves_no_question_open(
    url: str | None, tmp_path: Path, clock: FakeClock
) -> None:
    with open_store(url, tmp_path, clock) as store:
        with asking(url, tmp_path) as (process, row):
            assert store.end_abandoned(is_gone) == 0
            assert status(store, row)[0] == "held"
            assert pending_of_others(store, "other") == 1
            process.kill()
            process.wait()
            assert store.end_abandoned(is_gone) == 1
        assert status(store, row) == ("rejected", "engine:abandoned")
        assert store.end_abandoned(is_gone) == 0
        # It counts in nobody's queue, and says nothing of the session or of what is asked.
        assert pending_of_others(store, "other") == 0
        later = clock.now() + timedelta(minutes=20)
        assert store.session_state("killed", later).health == "unknown"
        assert store.learned().rates == {}
        tasks = store.read(lambda c: list(c.execute(sa.select(TASKS.c.status)).scalars()))
        assert tasks == ["withdrawn"]


@pytest.mark.anyio
async def test_a_session_ends_at_its_start_what_a_killed_one_left(
    tmp_path: Path, clock: FakeClock
) -> None:
    with open_store(None, tmp_path, clock) as store:
        with asking(None, tmp_path) as (_, row):
            assert status(store, row)[0] == "held"
        ledger = StoreLedger(
            store=LazyStore(lambda: open_store(None, tmp_path, clock)),
            clock=clock,
            windows=Windows(tmp_path / "windows"),
            timeout_minutes=5,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.run)
            while status(store, row)[0] == "held":
                await anyio.to_thread.run_sync(status, store, row)
            tasks.cancel_scope.cancel()
        await ledger.aclose()


def owners() -> dict[str, str | None]:
    ours = this_owner()
    assert ours is not None
    boot, namespace, pid, started = ours.split(" ")
    return {
        "our own": ours,
        "nobody's": None,
        "of another boot": f"other {namespace} 999999999 1",
        "of another container": f"{boot} pid:[1] 999999999 1",
        "without a start": f"{boot} {namespace} 999999999 ",
        "of no process": f"{boot} {namespace} -1 {started}",
        "of a number that is none": f"{boot} {namespace} {'9' * 400} {started}",
        "of more words": f"{ours} {pid}",
        "of another program": "x" * 1000,
        "empty": "",
    }


@pytest.mark.parametrize("whose", owners())
def test_a_question_whose_process_is_not_certainly_gone_stays_open(
    store: Store, whose: str
) -> None:
    row = store.record_call(replace(interaction(), owner=owners()[whose]), task())
    assert store.end_abandoned(is_gone) == 0
    assert status(store, row)[0] == "held"


def test_a_process_that_took_the_number_of_another_does_not_keep_its_questions(
    store: Store,
) -> None:
    ours = this_owner()
    assert ours is not None
    assert str(os.getpid()) in ours
    before = f"{ours.rpartition(' ')[0]} 1"
    row = store.record_call(replace(interaction(), owner=before), task())
    assert store.end_abandoned(is_gone) == 1
    assert status(store, row)[0] == "rejected"


def test_what_is_answered_already_stays_as_it_was_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactions, "BATCH", 2)
    gone = replace(interaction(), owner="gone")
    answered = record_interaction(store, replace(gone, request_id="a", status="auto_approved"))
    for number in range(5):
        store.record_call(replace(gone, request_id=f"{number}"), task())
    assert [store.end_abandoned(lambda _: True) for _ in range(4)] == [2, 2, 1, 0]
    assert status(store, answered)[0] == "auto_approved"
