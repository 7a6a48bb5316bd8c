"""When a session removes what is old: in the background, after it was first asked, and no matter
what becomes of it.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.engine_knowledge import LazyStore
from ironcurtain_proxy.auto_confirm.engine_memory import StoreLedger
from ironcurtain_proxy.auto_confirm.reviewer import LedgerError
from ironcurtain_proxy.auto_confirm.session_files import Windows
from ironcurtain_proxy.auto_confirm.store.rows import StoreLostError
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from tests.auto_confirm.store.aged_interactions import TODAY, Past, ids, lived, wind
from tests.fakes import FakeClock

pytestmark = pytest.mark.anyio

LOGGER = "ironcurtain_proxy.auto_confirm.engine_knowledge"


@dataclass
class Heard(logging.Handler):
    """Waits for a line of the log that has certain words."""

    words: str
    event: anyio.Event = field(default_factory=anyio.Event)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if self.words in self.lines[-1]:
            self.event.set()

    __hash__ = logging.Handler.__hash__


@asynccontextmanager
async def hearing(words: str) -> AsyncIterator[Heard]:
    heard, logger = Heard(words), logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(heard)
    logger.setLevel(logging.INFO)
    try:
        yield heard
    finally:
        logger.removeHandler(heard)
        logger.setLevel(level)


@asynccontextmanager
async def session(
    url: str | None, state: Path, clock: FakeClock, keep: timedelta | None
) -> AsyncIterator[StoreLedger]:
    """A session's ledger at work."""
    ledger = StoreLedger(
        store=LazyStore(lambda: open_store(url, state, clock)),
        clock=clock,
        windows=Windows(state / "windows"),
        timeout_minutes=5,
        keep=keep,
        quiet=0,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield ledger
        tasks.cancel_scope.cancel()
    await ledger.aclose()


def filled(url: str | None, state: Path, clock: FakeClock) -> Store:
    """A store with one old interaction and one of yesterday."""
    store = open_store(url, state, clock)
    for age in (91, 1):
        lived(store, clock, Past("approved", age=age))
    wind(clock, TODAY)
    return store


async def settled(store: Store) -> int:
    """How many interactions there are, when all that is under way has had its turns."""
    for _ in range(20):
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(ids, store)
    return len(ids(store))


async def test_what_is_old_goes_after_the_first_question_and_not_before(
    url: str | None, tmp_path: Path, clock: FakeClock
) -> None:
    keep = timedelta(days=90)
    with filled(url, tmp_path, clock) as store:
        async with hearing("were removed") as heard, session(url, tmp_path, clock, keep) as ledger:
            assert await settled(store) == 2
            await ledger.knowledge("s1")
            await heard.event.wait()
            assert heard.lines == ["1 interactions older than 90 days were removed"]
        assert len(ids(store)) == 1


async def test_a_session_that_keeps_everything_removes_nothing(
    tmp_path: Path, clock: FakeClock
) -> None:
    with filled(None, tmp_path, clock) as store:
        async with hearing("removed") as heard, session(None, tmp_path, clock, None) as ledger:
            await ledger.knowledge("s1")
            assert await settled(store) == 2
        assert heard.lines == []


async def test_a_store_that_cannot_be_purged_is_a_line_in_the_log_and_no_more(
    url: str | None, tmp_path: Path, clock: FakeClock
) -> None:
    with filled(url, tmp_path, clock) as store:
        drop = sa.text("DROP TABLE escalation_history")
        store._database.write(lambda c: c.execute(drop))
        async with (
            hearing("old interactions are not removed") as heard,
            session(url, tmp_path, clock, timedelta(days=90)) as ledger,
        ):
            await ledger.knowledge("s1")
            await heard.event.wait()
            assert len(heard.lines) == 1
            # The engine goes on, with what it knows of both.
            wind(clock, TODAY + 1)
            found = await ledger.knowledge("s1")
            assert sum(rate.decided for rate in found.approve_rates.values()) == 2
        assert len(ids(store)) == 2


class LostMeanwhile(LazyStore):
    """Somebody else's statement fails on the lost store while the first question is read."""

    ledger: StoreLedger
    gets = 0

    def get(self) -> Store:
        self.gets += 1
        if self.gets == 2:
            with suppress(LedgerError):
                anyio.from_thread.run(self.ledger._in_thread, _lost)
        return super().get()


def _lost() -> None:
    raise StoreLostError("gone")


async def test_what_a_store_said_that_was_lost_meanwhile_is_asked_again(
    tmp_path: Path, clock: FakeClock
) -> None:
    with filled(None, tmp_path, clock):
        store = LostMeanwhile(lambda: open_store(None, tmp_path, clock))
        ledger = StoreLedger(
            store=store, clock=clock, windows=Windows(tmp_path / "windows"), timeout_minutes=5
        )
        store.ledger = ledger
        await ledger.knowledge("s1")
        first = store.gets
        await ledger.knowledge("s1")
        # Two for each reading.
        assert store.gets == first == 4
        await ledger.aclose()


async def test_a_session_that_ends_does_not_wait_for_the_rest(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ironcurtain_proxy.auto_confirm.store.interactions.BATCH", 1)
    monkeypatch.setattr("ironcurtain_proxy.auto_confirm.engine_knowledge.BATCH", 1)
    monkeypatch.setattr("ironcurtain_proxy.auto_confirm.engine_knowledge.PAUSE", 3600)
    with filled(None, tmp_path, clock) as store:
        lived(store, clock, Past("approved", age=92))
        wind(clock, TODAY)
        async with session(None, tmp_path, clock, timedelta(days=90)) as ledger:
            await ledger.knowledge("s1")
            while len(ids(store)) == 3:
                await anyio.to_thread.run_sync(ids, store)
        assert len(ids(store)) == 2
