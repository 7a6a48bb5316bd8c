"""The engine on duty over a real store: what its decisions do to the session that asked."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction
from ironcurtain_proxy.auto_confirm.reviewer import LIMIT
from ironcurtain_proxy.auto_confirm.store.rows import Ending
from ironcurtain_proxy.model.decision import AUTO_APPROVER, HUMAN, Engine, in_record
from ironcurtain_proxy.model.escalation import Approved, Declined, Ruling, Unreachable
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine_session import (
    BY_MANAGER,
    DELETE,
    DENIED,
    EDIT,
    ELSEWHERE,
    EXPIRED,
    LENIENT,
    PLAIN_EDIT,
    READ,
    Traced,
    decider,
    engine_session,
    model,
)
from tests.auto_confirm.listeners import HANGING, notifying
from tests.auto_confirm.store.direct import trail
from tests.auto_confirm.store.specimens import auto_approved
from tests.program import until

pytestmark = pytest.mark.anyio


# --- what it approves itself is counted ----------------------------------------------------------


@pytest.mark.requirement("B-48")
async def test_what_the_engine_approves_is_noted_and_nothing_else(tmp_path: Path) -> None:
    async with engine_session(tmp_path, LENIENT) as running:
        assert isinstance(await running.ask(READ), Approved)
        assert [decision.operation for decision in running.approved] == ["read"]
        for ruling in (BY_MANAGER, DENIED, EXPIRED):
            running.manager.at_once = ruling
            await running.ask(DELETE)
        running.engine.first = model(Approved(by=AUTO_APPROVER))
        assert decider(await running.ask(ELSEWHERE)) == "auto-approver"
        assert len(running.approved) == 1
        # The session is stuck by now: somebody should look, but nobody does.
        running.engine.first = None
        assert decider(await running.ask(EDIT)) == "engine:timeout"
        assert [decision.operation for decision in running.approved] == ["read", "edit"]


@pytest.mark.requirement("B-48")
async def test_what_could_not_be_written_is_neither_approved_nor_noted(tmp_path: Path) -> None:
    async with engine_session(tmp_path) as running:
        question = running.question(READ)
        assert isinstance(await running.ask(question), Approved)
        running.manager.at_once = DENIED
        # The store takes no request twice.
        assert await running.ask(question) == DENIED
        assert len(running.approved) == 1


@pytest.mark.requirement("B-139")
async def test_what_is_proposed_is_for_the_kind_of_session_that_was_approved(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path, PLAIN_EDIT) as running:
        running.manager.at_once = BY_MANAGER
        for _ in range(4):
            await running.ask(ELSEWHERE)
        (proposal,) = running.store.propose_patterns(4)
        assert (proposal.session_type, proposal.directory) == ("worker", "/srv/other")


@pytest.mark.requirement("B-31")
async def test_a_deployment_that_has_just_begun_holds_the_very_next_call(tmp_path: Path) -> None:
    async with engine_session(tmp_path) as running:
        assert isinstance(await running.ask(READ), Approved)
        running.manager.at_once = DENIED
        question = running.question(READ)
        assert not (await running.ledger.knowledge("worker-1")).deployment
        running.ledger.windows.open("deployment", running.clock.now() + timedelta(hours=1))
        assert isinstance(await running.ask(question), Declined)
        assert running.manager.asked == [question.id]


# --- what a decision does to the session ---------------------------------------------------------

DECIDED: dict[str, tuple[Interaction, Ruling | None, str, str]] = {
    "by the engine": (READ, None, "auto_approved", "engine:safety-rule"),
    "by a reviewer": (DELETE, BY_MANAGER, "approved", "reviewer:architect_manager"),
    "against, by a reviewer": (DELETE, DENIED, "rejected", "reviewer:architect_manager"),
    "against, by the clock": (DELETE, EXPIRED, "rejected", "timeout"),
    "for want of a reviewer": (DELETE, Unreachable(), "rejected", "engine:unreachable"),
}


@pytest.mark.requirement("B-65", "B-66", "B-68")
@pytest.mark.parametrize(("asked", "answer", "status", "by"), DECIDED.values(), ids=DECIDED)
async def test_every_decision_ends_what_was_open(
    asked: Interaction, answer: Ruling | None, status: str, by: str, tmp_path: Path
) -> None:
    async with engine_session(tmp_path) as running:
        running.manager.at_once = answer
        question = running.question(asked)
        await running.ask(question)
        found = running.found(question)
        assert (found.status, found.decided_by) == (status, by)
        assert trail(running.store, found.id)[-1].decided_by == by
        assert running.open() == []
        # That nobody answered makes a session stuck for a while; what is decided, never.
        assert (running.status() == "stuck") == (by == "timeout")
        running.clock.seconds += 700
        assert running.status() != "stuck"


@pytest.mark.requirement("B-65", "B-68", "B-172")
@pytest.mark.parametrize("who", ["auto-approver", "engine:timeout"])
async def test_what_was_held_and_is_approved_by_no_reviewer_is_held_no_longer(
    who: str, tmp_path: Path
) -> None:
    async with engine_session(tmp_path, LENIENT) as running:
        running.manager.at_once = EXPIRED
        await running.ask(DELETE)
        assert running.status() == "stuck"
        if who == "auto-approver":
            running.engine.first = model(Approved(by=AUTO_APPROVER))
        question = running.question(EDIT)
        assert decider(await running.ask(question)) == who
        found = running.found(question)
        assert found.status == "auto_approved"
        line = trail(running.store, found.id)[-1]
        assert (line.decision, line.is_automatic) == ("approved", True)
        assert running.open() == []


@pytest.mark.requirement("B-65", "B-66")
async def test_what_was_ended_elsewhere_is_not_approved_by_silence(tmp_path: Path) -> None:
    async with engine_session(tmp_path, LENIENT) as running:
        running.manager.at_once = EXPIRED
        await running.ask(DELETE)
        end = Ending(status="rejected", decided_by=in_record(HUMAN), reason="no")
        running.manager.meanwhile = lambda question: running.store.end(
            running.found(question).id, end
        )
        ruling = await running.ask(EDIT)
        assert isinstance(ruling, Declined)
        assert ruling.kind == "expired"
        assert running.approved == []


@pytest.mark.requirement("B-68", "B-170")
async def test_how_a_session_stands_follows_from_its_decisions_and_the_next_one_goes_by_it(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path, PLAIN_EDIT) as running:
        assert running.status() == "unknown"
        for _ in range(3):
            await running.carry_out(READ)
        assert running.status() == "well"
        well = await running.carry_out(EDIT)
        assert isinstance(well, Approved)
        assert (well.by, well.reasoning) == (Engine("health"), "Session doing well")
        running.manager.at_once = DENIED
        for _ in range(4):
            await running.carry_out(DELETE)
        assert running.status() == "failing"
        running.manager.at_once = BY_MANAGER
        assert decider(await running.carry_out(EDIT)) == "reviewer:architect_manager"
        running.manager.at_once = EXPIRED
        await running.ask(DELETE)
        assert running.status() == "stuck"
        running.manager.at_once = BY_MANAGER
        assert decider(await running.carry_out(READ)) == "reviewer:architect_manager"
        running.clock.seconds += 3700
        assert running.status() == "unknown"
        assert decider(await running.carry_out(READ)) == "engine:safety-rule"


@pytest.mark.requirement("B-90", "B-114", "B-170")
async def test_what_reviewers_said_of_a_scope_is_an_input_of_the_next_decision(
    tmp_path: Path,
) -> None:
    usual = {"name": "usually approved", "contribution": 0.2}
    async with engine_session(tmp_path) as running:
        running.manager.at_once = BY_MANAGER
        seen: list[bool] = []
        for _ in range(5):
            ruling = await running.carry_out(ELSEWHERE)
            assert isinstance(ruling, Approved)
            engine = dict(ruling.details)["engine"]
            assert isinstance(engine, dict)
            factors = engine["confidenceFactors"]
            assert isinstance(factors, list)
            seen.append(usual in factors)
    assert seen == [False, False, False, False, True]


# --- what waits, and what goes on ----------------------------------------------------------------


@pytest.mark.requirement("B-69", "B-59", "X-17")
async def test_a_session_with_calls_on_hold_goes_on_up_to_its_limit(tmp_path: Path) -> None:
    async with engine_session(tmp_path) as running, anyio.create_task_group() as tasks:
        held = [running.question(DELETE) for _ in range(4)]
        for question in held:
            tasks.start_soon(running.ask, question)
        await until(lambda: len(running.manager.asked) == 4)
        assert [running.found(question).status for question in held] == ["held"] * 4
        assert decider(await running.ask(READ)) == "engine:safety-rule"
        more = running.question(DELETE)
        refused = await running.ask(more)
        assert isinstance(refused, Declined)
        assert (refused.kind, refused.reason) == ("limit", LIMIT)
        assert more.id not in running.manager.asked
        assert len(running.open()) == 4
        running.manager.decides(held[0].id)
        await until(lambda: held[0].id in running.rulings)
        assert decider(running.rulings[held[0].id]) == "reviewer:architect_manager"
        again = running.question(DELETE)
        tasks.start_soon(running.ask, again)
        await until(lambda: again.id in running.manager.asked)
        running.manager.decides_all(BY_MANAGER)


@pytest.mark.requirement("B-69", "X-17")
async def test_beside_a_critical_call_on_hold_only_what_needs_no_reviewer_goes(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path) as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.ask, running.question(calls.git("git_push", force=True)))
        await until(lambda: len(running.manager.asked) == 1)
        assert decider(await running.ask(READ)) == "engine:safety-rule"
        refused = await running.ask(DELETE)
        assert isinstance(refused, Declined)
        assert refused.kind == "limit"
        running.manager.decides_all(DENIED)


@pytest.mark.requirement("B-70")
async def test_after_each_decision_whoever_asked_has_it_and_the_next_one_may_come(
    tmp_path: Path,
) -> None:
    async with engine_session(tmp_path) as running:
        answers: list[Ruling] = [BY_MANAGER, DENIED, EXPIRED, Unreachable()]
        for turn, ruling in enumerate(answers * 5, 1):
            running.manager.at_once = ruling
            found = await running.ask(DELETE)
            assert type(found) is type(ruling)
            assert len(running.manager.asked) == turn
            assert running.open() == []


@pytest.mark.requirement("B-70")
async def test_a_call_that_is_withdrawn_leaves_its_place_to_the_next(tmp_path: Path) -> None:
    async with engine_session(tmp_path) as running:
        for turn in range(1, 8):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(running.ask, DELETE)
                await until(lambda turn=turn: len(running.manager.asked) == turn)  # type: ignore[misc]
                tasks.cancel_scope.cancel()
            assert running.open() == []


@pytest.mark.requirement("B-166", "B-103")
async def test_a_question_reaches_the_manager_before_anything_else_is_waited_for(
    tmp_path: Path,
) -> None:
    """How long it takes is measured, against the 100 ms, by `scripts/bench_engine.py`."""
    async with engine_session(tmp_path) as running, notifying(HANGING) as notifier:
        happened: list[str] = []
        running.engine.ledger = Traced(running.ledger, happened)
        running.manager.happened = happened
        running.chain.notify = notifier.notify
        question = running.question(DELETE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.ask, question)
            await until(lambda: running.manager.asked == [question.id])
            assert happened == ["knowledge", "opened", "asked"]
            assert (notifier.dropped, notifier.delivered + notifier.failed) == (0, 0)
            assert decider(await running.ask(READ)) == "engine:safety-rule"
            assert question.id not in running.rulings
            running.manager.decides(question.id)
        assert decider(running.rulings[question.id]) == "reviewer:architect_manager"


@pytest.mark.requirement("B-166")
async def test_what_is_done_before_the_manager_is_asked_does_not_grow_with_what_is_remembered(
    tmp_path: Path,
) -> None:
    statements: list[str] = []
    counts: list[int] = []
    async with engine_session(tmp_path) as running:
        running.manager.at_once = BY_MANAGER
        running.manager.meanwhile = lambda _: counts.append(len(statements))
        sa.event.listen(
            running.store._database._engine,
            "before_cursor_execute",
            lambda *given: statements.append(str(given[2])),
        )

        async def most() -> int:
            counts.clear()
            # As many as take all that is kept for a while to be read anew.
            for _ in range(12):
                statements.clear()
                await running.ask(DELETE)
            return max(counts)

        few = await most()
        for _ in range(400):
            auto_approved(running.store)
        assert await most() == few
