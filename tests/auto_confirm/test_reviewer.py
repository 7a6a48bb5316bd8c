"""The engine on duty over a real store: what its decisions do to the session that asked."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.approval.engine.interaction import Interaction
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Ruling,
    Unreachable,
)
from ironcurtain_proxy.review.auto_confirm import LIMIT
from ironcurtain_proxy.store.rows import Settlement
from tests.approval.engine import calls
from tests.review.box import until
from tests.review.duty import (
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
    model,
    on_duty,
)
from tests.review.listening import HANGING, notifying

pytestmark = pytest.mark.anyio


# --- what it approves itself is counted ----------------------------------------------------------


@pytest.mark.requirement("B-48")
async def test_what_the_engine_approves_is_noted_and_nothing_else(tmp_path: Path) -> None:
    async with on_duty(tmp_path, LENIENT) as duty:
        assert isinstance(await duty.ask(READ), Approved)
        assert [decision.operation for decision in duty.approved] == ["read"]
        for ruling in (BY_MANAGER, DENIED, EXPIRED):
            duty.manager.at_once = ruling
            await duty.ask(DELETE)
        duty.engine.first = model(Approved(by="auto-approver"))
        assert decider(await duty.ask(ELSEWHERE)) == "auto-approver"
        assert len(duty.approved) == 1
        # The session is stuck by now: somebody should look, but nobody does.
        duty.engine.first = None
        assert decider(await duty.ask(EDIT)) == "engine:timeout"
        assert [decision.operation for decision in duty.approved] == ["read", "edit"]


@pytest.mark.requirement("B-48")
async def test_what_could_not_be_written_is_neither_approved_nor_noted(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as duty:
        question = duty.question(READ)
        assert isinstance(await duty.ask(question), Approved)
        duty.manager.at_once = DENIED
        # The store takes no request twice.
        assert await duty.ask(question) == DENIED
        assert len(duty.approved) == 1


@pytest.mark.requirement("B-139")
async def test_what_is_proposed_is_for_the_kind_of_session_that_was_approved(
    tmp_path: Path,
) -> None:
    async with on_duty(tmp_path, PLAIN_EDIT) as duty:
        duty.manager.at_once = BY_MANAGER
        for _ in range(4):
            await duty.ask(ELSEWHERE)
        (proposal,) = duty.store.propose_patterns(4)
        assert (proposal.session_type, proposal.directory) == ("worker", "/srv/other")


@pytest.mark.requirement("B-31")
async def test_a_deployment_that_has_just_begun_holds_the_very_next_call(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as duty:
        assert isinstance(await duty.ask(READ), Approved)
        duty.manager.at_once = DENIED
        question = duty.question(READ)
        assert not (await duty.ledger.knowledge("worker-1")).deployment
        duty.ledger.windows.open("deployment", duty.clock.now() + timedelta(hours=1))
        assert isinstance(await duty.ask(question), Declined)
        assert duty.manager.asked == [question.id]


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
    async with on_duty(tmp_path) as duty:
        duty.manager.at_once = answer
        question = duty.question(asked)
        await duty.ask(question)
        found = duty.found(question)
        assert (found.status, found.decided_by) == (status, by)
        assert duty.store.decisions(found.id)[-1].decided_by == by
        assert duty.open() == []
        # That nobody answered makes a session stuck for a while; what is decided, never.
        assert (duty.status() == "stuck") == (by == "timeout")
        duty.clock.seconds += 700
        assert duty.status() != "stuck"


@pytest.mark.requirement("B-65", "B-68", "B-172")
@pytest.mark.parametrize("who", ["auto-approver", "engine:timeout"])
async def test_what_was_held_and_is_approved_by_no_reviewer_is_held_no_longer(
    who: str, tmp_path: Path
) -> None:
    async with on_duty(tmp_path, LENIENT) as duty:
        duty.manager.at_once = EXPIRED
        await duty.ask(DELETE)
        assert duty.status() == "stuck"
        if who == "auto-approver":
            duty.engine.first = model(Approved(by=who))
        question = duty.question(EDIT)
        assert decider(await duty.ask(question)) == who
        found = duty.found(question)
        assert found.status == "auto_approved"
        line = duty.store.decisions(found.id)[-1]
        assert (line.decision, line.is_automatic) == ("approved", True)
        assert duty.open() == []


@pytest.mark.requirement("B-65", "B-66")
async def test_what_was_ended_elsewhere_is_not_approved_by_silence(tmp_path: Path) -> None:
    async with on_duty(tmp_path, LENIENT) as duty:
        duty.manager.at_once = EXPIRED
        await duty.ask(DELETE)
        end = Settlement(status="rejected", decided_by="human", reason="no")
        duty.manager.meanwhile = lambda question: duty.store.settle(duty.found(question).id, end)
        ruling = await duty.ask(EDIT)
        assert isinstance(ruling, Declined)
        assert ruling.kind == "expired"
        assert duty.approved == []


@pytest.mark.requirement("B-68", "B-170")
async def test_how_a_session_stands_follows_from_its_decisions_and_the_next_one_goes_by_it(
    tmp_path: Path,
) -> None:
    async with on_duty(tmp_path, PLAIN_EDIT) as duty:
        assert duty.status() == "unknown"
        for _ in range(3):
            await duty.carry_out(READ)
        assert duty.status() == "well"
        well = await duty.carry_out(EDIT)
        assert isinstance(well, Approved)
        assert (well.by, well.reasoning) == ("engine:health", "Session doing well")
        duty.manager.at_once = DENIED
        for _ in range(4):
            await duty.carry_out(DELETE)
        assert duty.status() == "failing"
        duty.manager.at_once = BY_MANAGER
        assert decider(await duty.carry_out(EDIT)) == "reviewer:architect_manager"
        duty.manager.at_once = EXPIRED
        await duty.ask(DELETE)
        assert duty.status() == "stuck"
        duty.manager.at_once = BY_MANAGER
        assert decider(await duty.carry_out(READ)) == "reviewer:architect_manager"
        duty.clock.seconds += 3700
        assert duty.status() == "unknown"
        assert decider(await duty.carry_out(READ)) == "engine:safety-rule"


@pytest.mark.requirement("B-90", "B-114", "B-170")
async def test_what_reviewers_said_of_a_scope_is_an_input_of_the_next_decision(
    tmp_path: Path,
) -> None:
    usual = {"name": "usually approved", "contribution": 0.2}
    async with on_duty(tmp_path) as duty:
        duty.manager.at_once = BY_MANAGER
        seen: list[bool] = []
        for _ in range(5):
            ruling = await duty.carry_out(ELSEWHERE)
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
    async with on_duty(tmp_path) as duty, anyio.create_task_group() as tasks:
        held = [duty.question(DELETE) for _ in range(4)]
        for question in held:
            tasks.start_soon(duty.ask, question)
        await until(lambda: len(duty.manager.asked) == 4)
        assert [duty.found(question).status for question in held] == ["held"] * 4
        assert decider(await duty.ask(READ)) == "engine:safety-rule"
        more = duty.question(DELETE)
        refused = await duty.ask(more)
        assert isinstance(refused, Declined)
        assert (refused.kind, refused.reason) == ("limit", LIMIT)
        assert more.id not in duty.manager.asked
        assert len(duty.open()) == 4
        duty.manager.decides(held[0].id)
        await until(lambda: held[0].id in duty.rulings)
        assert decider(duty.rulings[held[0].id]) == "reviewer:architect_manager"
        again = duty.question(DELETE)
        tasks.start_soon(duty.ask, again)
        await until(lambda: again.id in duty.manager.asked)
        duty.manager.decides_all(BY_MANAGER)


@pytest.mark.requirement("B-69", "X-17")
async def test_beside_a_critical_call_on_hold_only_what_needs_no_reviewer_goes(
    tmp_path: Path,
) -> None:
    async with on_duty(tmp_path) as duty, anyio.create_task_group() as tasks:
        tasks.start_soon(duty.ask, duty.question(calls.git("git_push", force=True)))
        await until(lambda: len(duty.manager.asked) == 1)
        assert decider(await duty.ask(READ)) == "engine:safety-rule"
        refused = await duty.ask(DELETE)
        assert isinstance(refused, Declined)
        assert refused.kind == "limit"
        duty.manager.decides_all(DENIED)


@pytest.mark.requirement("B-70")
async def test_after_each_decision_whoever_asked_has_it_and_the_next_one_may_come(
    tmp_path: Path,
) -> None:
    async with on_duty(tmp_path) as duty:
        answers: list[Ruling] = [BY_MANAGER, DENIED, EXPIRED, Unreachable()]
        for turn, ruling in enumerate(answers * 5, 1):
            duty.manager.at_once = ruling
            found = await duty.ask(DELETE)
            assert type(found) is type(ruling)
            assert len(duty.manager.asked) == turn
            assert duty.open() == []


@pytest.mark.requirement("B-70")
async def test_a_call_that_is_withdrawn_leaves_its_place_to_the_next(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as duty:
        for turn in range(1, 8):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(duty.ask, DELETE)
                await until(lambda turn=turn: len(duty.manager.asked) == turn)  # type: ignore[misc]
                tasks.cancel_scope.cancel()
            assert duty.open() == []


@pytest.mark.requirement("B-166", "B-103")
async def test_a_question_reaches_the_manager_before_anything_else_is_waited_for(
    tmp_path: Path,
) -> None:
    """How long it takes is measured, against the 100 ms, by `scripts/bench_engine.py`."""
    async with on_duty(tmp_path) as duty, notifying(HANGING) as notifier:
        happened: list[str] = []
        duty.engine.ledger = Traced(duty.ledger, happened)
        duty.manager.happened = happened
        duty.chain.notify = notifier.notify
        question = duty.question(DELETE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(duty.ask, question)
            await until(lambda: duty.manager.asked == [question.id])
            assert happened == ["knowledge", "opened", "asked"]
            assert (notifier.dropped, notifier.delivered + notifier.failed) == (0, 0)
            assert decider(await duty.ask(READ)) == "engine:safety-rule"
            assert question.id not in duty.rulings
            duty.manager.decides(question.id)
        assert decider(duty.rulings[question.id]) == "reviewer:architect_manager"
