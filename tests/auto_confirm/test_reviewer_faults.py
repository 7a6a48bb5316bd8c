"""The engine where its store fails, and where whoever asked is gone before it is written."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import ApproveRate
from ironcurtain_proxy.auto_confirm.engine_knowledge import LONGEST_TEXT, LazyStore
from ironcurtain_proxy.auto_confirm.engine_memory import StoreLedger
from ironcurtain_proxy.auto_confirm.reviewer import LIMIT, Findings, LedgerError
from ironcurtain_proxy.auto_confirm.session_files import (
    OwedLines,
    Windows,
    forget_unwritten,
    unwritten_questions,
)
from ironcurtain_proxy.auto_confirm.store.metrics import Ratio, compute, is_share_met
from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.model.decision import Engine
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, EscalationId
from ironcurtain_proxy.own_process import SystemClock
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine_session import (
    BY_MANAGER,
    DELETE,
    DENIED,
    ELSEWHERE,
    EXPIRED,
    READ,
    EngineSession,
    Traced,
    decider,
    engine_session,
)
from tests.auto_confirm.store.direct import open_task, record_interaction
from tests.auto_confirm.store.specimens import interaction, task
from tests.fakes import FakeClock
from tests.program import PATIENCE, until

pytestmark = pytest.mark.anyio

FAULTS = [StoreError("it is broken"), ValueError("what is that"), OSError("disk")]


class Broken(LazyStore):
    """A store that fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__(self.get)
        self.error = error
        self.asked = 0

    def get(self) -> Store:
        self.asked += 1
        raise self.error


class Slow(LazyStore):
    """A store that answers when the test says so."""

    def __init__(self, store: Store) -> None:
        super().__init__(lambda: store)
        self.entered = threading.Event()
        self.free = threading.Event()

    def get(self) -> Store:
        self.entered.set()
        self.free.wait(PATIENCE)
        return super().get()


@dataclass
class Guards:
    """Safeguards that hold nothing, or say so."""

    now: bool = True

    def can_hold(self, escalation: Escalation) -> bool:
        return True

    async def holds(self, escalation: Escalation) -> bool:
        return self.now


# --- the store fails


@pytest.mark.requirement("B-164", "X-16")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_without_its_store_the_engine_approves_nothing_and_asks_whom_it_would(
    tmp_path: Path, fault: Exception
) -> None:
    async with engine_session(tmp_path) as running:
        running.ledger.store = Broken(fault)
        running.manager.at_once = BY_MANAGER
        for call in (READ, DELETE):
            assert decider(await running.ask(call)) == "reviewer:architect_manager"
        assert len(running.manager.asked) == 2
        assert running.approved == []


@pytest.mark.requirement("X-17")
async def test_without_its_store_no_more_calls_wait_than_with_it(tmp_path: Path) -> None:
    async with engine_session(tmp_path) as running:
        running.ledger.store = Broken(FAULTS[0])
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(running.ask, READ)
            await until(lambda: len(running.manager.asked) == 4)
            refused = await running.ask(READ)
            assert isinstance(refused, Declined)
            assert (refused.kind, refused.reason) == ("limit", LIMIT)
            running.manager.decides_all(BY_MANAGER)


@pytest.mark.requirement("B-62")
@pytest.mark.parametrize("now", [True, False])
async def test_a_conditional_approval_holds_only_if_the_call_can_be_taken_back(
    tmp_path: Path, now: bool
) -> None:
    async with engine_session(tmp_path) as running:
        for _ in range(3):
            await running.carry_out(READ)
        running.engine.safeguards = Guards(now)
        running.manager.at_once = BY_MANAGER
        ruling = await running.ask(replace(running.question(ELSEWHERE), sandboxed=True))
        assert isinstance(ruling, Approved)
        assert isinstance(ruling.by, Engine) is now
        assert ruling.revocable is now


async def test_a_conditional_approval_that_could_not_be_written_is_none(tmp_path: Path) -> None:
    class Full(Traced):
        async def opened(
            self, escalation: Escalation, decision: EngineDecision, found: Findings
        ) -> None:
            self.happened.append(decision.action)
            raise LedgerError("the disk is full")

    async with engine_session(tmp_path) as running:
        for _ in range(3):
            await running.carry_out(READ)
        running.engine.safeguards = Guards()
        happened: list[str] = []
        running.engine.ledger = Full(running.ledger, happened)
        running.manager.at_once = DENIED
        question = replace(running.question(ELSEWHERE), sandboxed=True)
        assert await running.ask(question) == DENIED
        assert happened == ["knowledge", "conditional", "missed", "settled"]


async def test_a_store_that_fails_strangely_does_not_end_who_keeps_it_fresh(tmp_path: Path) -> None:
    broken = Broken(ValueError("what is that"))
    clock = FakeClock()
    ledger = StoreLedger(
        store=broken, clock=clock, windows=Windows(tmp_path / "windows"), timeout_minutes=5
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        for _ in range(3):
            with pytest.raises(LedgerError, match="ValueError"):
                await ledger.knowledge("worker-1")
        await until(lambda: broken.asked >= 4)
        tasks.cancel_scope.cancel()


async def test_what_another_program_wrote_into_the_store_stops_nothing(tmp_path: Path) -> None:
    async with engine_session(tmp_path) as running:
        assert isinstance(await running.ask(READ), Approved)
        with sqlite3.connect(tmp_path / "interactions.db") as connection:
            connection.execute("UPDATE claude_interactions SET scope = x'fffe', operation = x'fe'")
        connection.close()
        assert decider(await running.ask(READ)) == "engine:safety-rule"
        assert running.store.propose_patterns(1) == []


@pytest.mark.requirement("B-35")
async def test_a_session_is_not_stuck_by_what_it_left_when_it_was_killed(tmp_path: Path) -> None:
    earlier = FakeClock()
    earlier.seconds = -700
    with open_store(None, tmp_path, earlier) as store:
        left = record_interaction(store, interaction(session="worker-1", band="HIGH"))
        open_task(store, left, task())
    async with engine_session(tmp_path) as running:
        assert running.status() == "stuck"
        assert (await running.ledger.knowledge("worker-1")).health == "normal"


# --- what is written is bounded


async def test_an_agent_that_names_very_much_does_not_fill_what_is_read_again(
    tmp_path: Path,
) -> None:
    long = "/srv/project" + "/directory" * LONGEST_TEXT
    async with engine_session(tmp_path) as running:
        question = running.question(calls.read(long))
        assert isinstance(await running.ask(question), Approved)
        assert running.found(question).scope is None
        assert running.store.learned().history.directories == frozenset()
        running.manager.at_once = BY_MANAGER
        await running.ask(calls.delete(long))
        assert running.store.learned().rates == {("delete", ""): ApproveRate(1, 1)}
    with sqlite3.connect(tmp_path / "interactions.db") as connection:
        ((content,),) = connection.execute("SELECT content FROM escalation_tasks")
    connection.close()
    assert len(content) < 2 * LONGEST_TEXT


# --- whoever asked is gone


async def _withdrawn_while_written(running: EngineSession, question: Escalation) -> None:
    await running.ledger.knowledge("worker-1")
    slow = running.ledger.store = Slow(running.store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running.ask, question)
        await until(slow.entered.is_set)
        tasks.cancel_scope.cancel()
        slow.free.set()


@pytest.mark.requirement("B-35")
async def test_a_call_that_is_withdrawn_while_it_is_written_down_is_not_left_open(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path) as running:
        question = running.question(DELETE)
        await _withdrawn_while_written(running, question)
        assert running.found(question).status == "rejected"
        assert running.open() == []
        running.clock.seconds += 11 * 60
        assert running.status() == "unknown"
        assert running.manager.asked == []


@pytest.mark.requirement("B-35")
async def test_a_call_that_is_withdrawn_while_its_end_is_written_down_is_not_left_open(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path) as running:
        question = running.question(DELETE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.ask, question)
            await until(lambda: running.manager.asked == [question.id])
            # The threads are busy: whoever wants one has to wait.
            limiter = anyio.CapacityLimiter(1)
            running.ledger._limiter = limiter
            async with limiter:
                running.manager.decides(question.id)
                await until(lambda: limiter.statistics().tasks_waiting == 1)
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()
        assert running.found(question).status == "approved"


async def test_an_approval_that_is_withdrawn_while_it_is_written_down_approves_nothing(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path) as running:
        question = running.question(READ)
        await _withdrawn_while_written(running, question)
        assert running.approved == []
        assert running.rulings == {}


# --- what the figures say of it


async def test_what_was_asked_while_the_store_failed_is_written_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path) as running:
        store = running.ledger.store
        running.ledger.store = Broken(FAULTS[0])
        answers = (BY_MANAGER, DENIED, EXPIRED)

        def think(_: Escalation) -> None:
            running.clock.seconds += len(running.manager.asked)

        running.manager.meanwhile = think
        for answer in answers:
            running.manager.at_once = answer
            await running.carry_out(DELETE)
        asked = unwritten_questions(tmp_path)
        assert len(asked) == 3
        found = compute(running.store, running.clock.now(), None, [*asked])
        assert (found.missing, found.audited) == (3, Ratio(0, 3))

        running.ledger.store = store
        running.clock.seconds += 500
        await running.ledger._owed.pay()
        found = compute(running.store, running.clock.now(), None, [*asked])
        assert (found.missing, found.audited, found.escalated) == (0, Ratio(3, 3), Ratio(3, 3))
        assert found.answered == Ratio(2, 3)
        assert found.statuses == {"approved": 1, "rejected": 2}
        # As they were: not by the time at which they were written.
        assert (found.response_seconds.p50, found.response_seconds.p99) == (1, 2)
        assert unwritten_questions(tmp_path) == {}


async def test_a_session_that_is_killed_in_an_outage_leaves_the_number_of_what_is_missing(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path) as running:
        running.manager.at_once = BY_MANAGER
        await running.carry_out(DELETE)
        running.ledger.store = Broken(FAULTS[0])
        for _ in range(4):
            await running.carry_out(DELETE)
        (file,) = (tmp_path / "unwritten").iterdir()
        assert file.stat().st_mode & 0o077 == 0
        with file.open("a") as torn:
            torn.write("2026-01-01T00:00:00+00:00 half")
        (tmp_path / "unwritten" / "x.txt").write_bytes(b"\xff\n\nno time\n" + b"y" * 9000)
        asked = unwritten_questions(tmp_path)
        found = compute(running.store, running.clock.now(), None, [*asked])
        assert (found.interactions, found.missing, found.audited) == (1, 4, Ratio(1, 5))
        assert is_share_met(found, found.high_risk_escalated, 1.0) is None
        later = running.clock.now() + timedelta(days=1)
        assert unwritten_questions(tmp_path, later) == {}
        forget_unwritten(tmp_path, timedelta(days=90), SystemClock().now() + timedelta(days=91))
        assert list((tmp_path / "unwritten").iterdir()) == []


async def test_lines_of_one_question_keep_their_order_when_writing_fails_again() -> None:
    written: list[str] = []
    fails = {"a1", "b1"}

    def line(name: str) -> Callable[[], None]:
        def write() -> None:
            if name in fails:
                fails.remove(name)
                raise LedgerError(name)
            written.append(name)

        return write

    async def in_thread(write: Callable[[], object]) -> None:
        write()

    owed = OwedLines(in_thread)
    for name in ("a1", "a2", "b1", "b2", "a3"):
        owed.add(EscalationId(name[0]), line(name))
    for _ in range(3):
        await owed.pay()
    assert [name for name in written if name[0] == "a"] == ["a1", "a2", "a3"]
    assert [name for name in written if name[0] == "b"] == ["b1", "b2"]
    assert not owed
