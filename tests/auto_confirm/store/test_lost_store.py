"""The store is taken away, replaced or damaged under a running session, and comes back."""

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import anyio.lowlevel
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from ironcurtain_proxy.auto_confirm.reviewer import LedgerError
from ironcurtain_proxy.auto_confirm.store.database import Database
from ironcurtain_proxy.auto_confirm.store.rows import StoreError, StoreLostError
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.auto_confirm.store.tables import inspect_store
from ironcurtain_proxy.model.escalation import Approved
from tests.auto_confirm.engine_session import (
    BY_MANAGER,
    DELETE,
    READ,
    EngineSession,
    decider,
    engine_session,
)
from tests.auto_confirm.store.direct import recorded, trail
from tests.auto_confirm.store.specimens import auto_approved, ends, interaction, task
from tests.fakes import FakeClock
from tests.program import until

pytestmark = pytest.mark.anyio

ENGINE = "engine:safety-rule"
MANAGER = "reviewer:architect_manager"


@asynccontextmanager
async def at_work(state: Path, url: str | None = None) -> AsyncIterator[EngineSession]:
    """A session whose manager approves all it is asked."""
    async with engine_session(state, url=url) as duty:
        duty.manager.at_once = BY_MANAGER
        assert decider(await duty.ask(READ)) == ENGINE
        yield duty


def database(state: Path) -> Path:
    return state / "interactions.db"


def copy_of(state: Path) -> Path:
    """A backup, as SQLite makes one."""
    backup = state.parent / "backup.db"
    with (
        closing(sqlite3.connect(database(state))) as source,
        closing(sqlite3.connect(backup)) as target,
    ):
        source.backup(target)
    return backup


async def test_a_store_that_was_removed_approves_nothing_until_it_is_back(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with at_work(state) as duty:
        backup = copy_of(state)
        database(state).unlink()
        for _ in range(3):
            assert decider(await duty.ask(READ)) == MANAGER
        # An empty one in its place would know nothing of what was switched off.
        assert not database(state).exists()
        shutil.copy(backup, database(state))
        assert decider(await duty.ask(READ)) == ENGINE
    with open_store(None, state, FakeClock()) as store:
        store._database.look_for_damage()
        assert recorded(store, 2) is not None


async def test_a_removal_is_noticed_although_all_that_is_known_is_fresh(tmp_path: Path) -> None:
    async with at_work(tmp_path / "state") as duty:
        duty.clock.seconds -= 6
        database(tmp_path / "state").unlink()
        assert decider(await duty.ask(READ)) == MANAGER


async def test_a_backup_that_was_put_in_place_is_the_store_from_the_next_question_on(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with at_work(state) as duty:
        backup = copy_of(state)
        for _ in range(20):
            await duty.ask(READ)
        backup.replace(database(state))
        await duty.ask(READ)
        question = duty.question(READ)
        assert decider(await duty.ask(question)) == ENGINE
        with open_store(None, state, FakeClock()) as store:
            store._database.look_for_damage()
            found = recorded(store, 2)
            assert found is not None
            assert found.request_id == question.id


async def test_a_removed_log_is_noticed_too(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with at_work(state) as duty:
        for suffix in ("-wal", "-shm"):
            (state / f"interactions.db{suffix}").unlink()
        assert decider(await duty.ask(READ)) == MANAGER
        assert decider(await duty.ask(READ)) == ENGINE


async def test_a_store_that_is_damaged_approves_nothing_until_a_good_one_is_there(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with at_work(state) as duty:
        backup = copy_of(state)
        for suffix in ("", "-wal"):
            path = state / f"interactions.db{suffix}"
            path.write_bytes(os.urandom(path.stat().st_size))
        for _ in range(3):
            assert decider(await duty.ask(READ)) == MANAGER
        with pytest.raises(StoreError):
            inspect_store(None, state)
        shutil.copy(backup, state / "good.db")
        (state / "good.db").replace(database(state))
        assert decider(await duty.ask(READ)) == ENGINE


@pytest.mark.parametrize("more", [0, 400], ids=["in its log", "in the file"])
async def test_a_backup_that_is_written_over_the_store_does_not_damage_it(
    tmp_path: Path, more: int
) -> None:
    state = tmp_path / "state"
    async with at_work(state) as duty:
        backup = copy_of(state)
        for _ in range(more):
            auto_approved(duty.store)
        database(state).write_bytes(backup.read_bytes())
        for _ in range(3):
            await duty.ask(READ)
        assert decider(await duty.ask(READ)) == ENGINE
    with open_store(None, state, FakeClock()) as store:
        store._database.look_for_damage()


def test_a_time_that_was_set_loses_nothing(tmp_path: Path) -> None:
    with open_store(None, tmp_path, FakeClock()) as store:
        first = auto_approved(store)
        os.utime(database(tmp_path), (1, 1))
        second = auto_approved(store)
        assert recorded(store, first) is not None
        assert recorded(store, second) is not None
        assert not (tmp_path / "interactions.db-wal.replaced").exists()


def test_what_sqlite_copies_into_its_file_is_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr(Database, "_look_through", lambda *given: looked.append(given))
    with (
        open_store(None, tmp_path, FakeClock()) as one,
        open_store(None, tmp_path, FakeClock()) as two,
    ):
        size = database(tmp_path).stat().st_size
        for number in range(300):
            auto_approved(one)
            auto_approved(two)
            (one if number % 2 else two).copy_log()
        assert database(tmp_path).stat().st_size > size
    assert looked == []


async def test_a_store_that_is_damaged_inside_is_not_taken_for_a_good_one(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with at_work(state) as duty:
        bad = copy_of(state)
        with bad.open("r+b") as file:
            size = bad.stat().st_size
            file.seek(8192)
            file.write(os.urandom(size - 8192))
        bad.replace(database(state))
        for _ in range(3):
            assert decider(await duty.ask(READ)) == MANAGER


async def test_a_database_that_is_dropped_and_made_again_is_used_again(
    postgres_url: str, postgres_server: str, tmp_path: Path
) -> None:
    name = make_url(postgres_url).database
    async with at_work(tmp_path, postgres_url) as duty:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            assert decider(await duty.ask(READ)) == MANAGER
            connection.execute(f"CREATE DATABASE {name}".encode())
        await duty.ask(READ)
        assert decider(await duty.ask(READ)) == ENGINE


async def test_tables_that_were_dropped_are_a_reason_to_ask(
    postgres_url: str, tmp_path: Path
) -> None:
    async with at_work(tmp_path, postgres_url) as duty:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        assert decider(await duty.ask(READ)) == MANAGER
        assert decider(await duty.ask(READ)) == ENGINE


# --- what is owed


async def test_how_a_question_ended_is_written_when_the_store_is_back(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with engine_session(state) as duty, anyio.create_task_group() as tasks:
        question = duty.question(DELETE)
        tasks.start_soon(duty.ask, question)
        await until(lambda: duty.manager.asked == [question.id])
        database(state).rename(state / "away.db")
        duty.manager.decides(question.id)
        await until(lambda: question.id in duty.rulings)
        assert isinstance(duty.rulings[question.id], Approved)
        # The ruling does not wait until the line that is owed is noted.
        await until(lambda: len(duty.ledger._owed) == 1)
        (state / "away.db").rename(database(state))
        # Not before: its refresh could make a new store while this one is away.
        tasks.start_soon(duty.ledger.run)
        await until(lambda: not duty.ledger._owed)
        tasks.cancel_scope.cancel()
    with open_store(None, state, FakeClock()) as store:
        found = recorded(store, 1)
        assert found is not None
        assert (found.status, found.decided_by) == ("approved", MANAGER)


async def test_a_session_that_ends_writes_what_it_owes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with engine_session(state) as duty, anyio.create_task_group() as tasks:
        question = duty.question(DELETE)
        tasks.start_soon(duty.ask, question)
        await until(lambda: duty.manager.asked == [question.id])
        database(state).rename(state / "away.db")
        duty.manager.decides(question.id)
        await until(lambda: question.id in duty.rulings)
        (state / "away.db").rename(database(state))
        await duty.ledger.aclose()
    with open_store(None, state, FakeClock()) as store:
        found = recorded(store, 1)
        assert found is not None
        assert found.status == "approved"


async def test_what_was_written_too_late_to_count_does_not_wait_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    async with engine_session(state) as duty:
        question = duty.question(DELETE)
        await duty.ledger.knowledge("worker-1")
        with closing(sqlite3.connect(database(state), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            monkeypatch.setattr("ironcurtain_proxy.auto_confirm.engine_memory.DEADLINE", 0.2)
            duty.manager.at_once = BY_MANAGER
            assert decider(await duty.ask(question)) == MANAGER
            other.execute("COMMIT")
        monkeypatch.setattr("ironcurtain_proxy.auto_confirm.engine_memory.DEADLINE", 10)
        # The thread that nobody waits for writes it now, and it is taken back.
        await until(duty.ledger._owed.pay)
        assert duty.open() == []


def test_the_ids_of_another_store_are_nobodys_here(store: Store) -> None:
    mine = store.record_call(interaction(request="mine"), task())
    assert not store.end(mine, ends(), "another's")
    assert not store.record_escalation(mine, "a", "b", "late", "another's")
    store.record_outcome(mine, succeeded=True, request="another's")
    found = recorded(store, mine)
    assert found is not None
    assert found.status == "held"
    assert store.end(mine, ends(), "mine")


def test_a_call_whose_task_cannot_be_written_is_not_written_either(store: Store) -> None:
    store._database.write(lambda c: c.execute(sa.text("DROP TABLE escalation_tasks")))
    with pytest.raises(StoreError):
        store.record_call(interaction(), task())
    assert recorded(store, 1) is None


def test_an_interaction_is_forgotten_with_all_that_is_its(store: Store) -> None:
    identifier = store.record_call(interaction(request="gone"), task())
    assert store.forget_request("gone")
    assert recorded(store, identifier) is None
    assert trail(store, identifier) == ()
    assert not store.forget_request("gone")


def test_a_log_of_a_replaced_file_is_not_replayed_into_the_other(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with open_store(None, state, FakeClock()) as store:
        backup = copy_of(state)
        for _ in range(30):
            auto_approved(store)
        backup.replace(database(state))
        with pytest.raises(StoreLostError, match="removed or replaced"):
            auto_approved(store)
        with store.reopened() as again:
            again._database.look_for_damage()
            assert recorded(again, 1) is None


async def test_what_is_wrong_with_the_store_names_its_file(tmp_path: Path) -> None:
    async with at_work(tmp_path / "state") as duty:
        database(tmp_path / "state").unlink()
        duty.clock.seconds += 100
        with pytest.raises(LedgerError, match=r"interactions\.db"):
            await duty.ledger.knowledge("worker-1")
