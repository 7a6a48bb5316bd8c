"""What `metrics` calls sent to a reviewer, by what really became of held calls."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.briefing import PassedOn
from ironcurtain_proxy.auto_confirm.reviewer_chain import Seat
from ironcurtain_proxy.auto_confirm.store.metrics import (
    Metrics,
    Ratio,
    as_lines,
    as_prometheus,
    compute,
    is_none,
    is_share_met,
    is_without_people,
)
from ironcurtain_proxy.model.decision import AUTO_APPROVER
from ironcurtain_proxy.model.escalation import Approved, Ruling, Unreachable
from tests.auto_confirm.engine_session import (
    BY_MANAGER,
    DELETE,
    DENIED,
    EDIT,
    EXPIRED,
    LENIENT,
    PLAIN_EDIT,
    EngineSession,
    engine_session,
    model,
)
from tests.program import until

pytestmark = pytest.mark.anyio

Course: TypeAlias = Callable[[EngineSession], Awaitable[None]]


def answered(*rulings: Ruling) -> Course:
    async def course(running: EngineSession) -> None:
        for ruling in rulings:
            running.manager.at_once = ruling
            await running.ask(DELETE)

    return course


async def nobody(running: EngineSession) -> None:
    running.chain.seats = {}
    for _ in range(7):
        assert isinstance(await running.ask(DELETE), Unreachable)


async def nobody_there(running: EngineSession) -> None:
    seats = running.chain.seats
    running.chain.seats = {n: replace(s, is_reachable=lambda: False) for n, s in seats.items()}
    await running.ask(DELETE)


async def only_the_fallback(running: EngineSession) -> None:
    running.manager.at_once = BY_MANAGER
    running.chain.seats = {
        "architect_manager": Seat(ask=running.manager.ask, is_reachable=lambda: False),
        "claude_code_high_level": Seat(ask=running.manager.ask),
    }
    await running.ask(DELETE)


async def too_many(running: EngineSession) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(running.ask, EDIT)
        await until(lambda: len(running.manager.asked) == 4)
        await running.ask(EDIT)
        running.manager.decides_all(BY_MANAGER)


async def withdrawn(running: EngineSession) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running.ask, DELETE)
        await until(lambda: bool(running.manager.asked))
        tasks.cancel_scope.cancel()


async def a_model_approves(running: EngineSession) -> None:
    running.engine.first = model(Approved(by=AUTO_APPROVER))
    await running.ask(EDIT)


FIGURES: dict[str, tuple[Course, Ratio, Ratio, Ratio]] = {
    # what happens: sent of all, refused unasked of held, answered of asked
    "no reviewer exists": (nobody, Ratio(0, 7), Ratio(7, 7), Ratio(0, 0)),
    "no reviewer is there": (nobody_there, Ratio(0, 1), Ratio(1, 1), Ratio(0, 0)),
    "reviewers that could not be started": (
        answered(PassedOn("its process could not be started", asked=False), Unreachable()),
        Ratio(0, 2),
        Ratio(2, 2),
        Ratio(0, 0),
    ),
    "the fallback alone is there": (only_the_fallback, Ratio(1, 1), Ratio(0, 1), Ratio(1, 1)),
    "too many wait": (too_many, Ratio(4, 5), Ratio(1, 5), Ratio(4, 4)),
    "withdrawn": (withdrawn, Ratio(1, 1), Ratio(0, 1), Ratio(0, 0)),
    "a model approves": (a_model_approves, Ratio(0, 1), Ratio(0, 1), Ratio(0, 0)),
    "answers": (answered(BY_MANAGER, DENIED), Ratio(2, 2), Ratio(0, 2), Ratio(2, 2)),
    "silence": (answered(EXPIRED), Ratio(1, 1), Ratio(0, 1), Ratio(0, 1)),
    "no answer that counts": (
        answered(PassedOn("its model passed")),
        Ratio(1, 1),
        Ratio(0, 1),
        Ratio(0, 1),
    ),
}


@pytest.mark.parametrize("case", FIGURES)
async def test_sent_to_a_reviewer_is_only_what_one_saw(tmp_path: Path, case: str) -> None:
    course, sent, unasked, decided = FIGURES[case]
    async with engine_session(tmp_path, PLAIN_EDIT) as running:
        await course(running)
        found = figures(running)
        assert (found.escalated, found.unasked, found.answered) == (sent, unasked, decided)
        assert found.audited.value == 1.0
        if unasked.part:
            assert not is_none(found, found.unasked.part)
            assert is_without_people(found) is None, "nobody was there to decide"
        if found.high_risk_escalated.whole and not sent.part:
            assert is_share_met(found, found.high_risk_escalated, 1.0) is False


async def test_refusals_without_a_reviewer_are_no_refusals_by_one(tmp_path: Path) -> None:
    async with engine_session(tmp_path, LENIENT) as running:
        await nobody(running)
        found = figures(running)
        assert "timed_out" not in {word for word, _ in found.decisions}
        assert found.passed_on == 0
        text = as_prometheus(found)
        assert "ironcurtain_high_risk_escalated_ratio 0.0\n" in text
        assert "ironcurtain_unasked_ratio 1.0\n" in text
        lines = "\n".join(as_lines(found))
        assert "7 of 7 (100.0%) held calls that ended" in lines
        assert not is_share_met(found, found.high_risk_escalated, 1.0)


def figures(running: EngineSession) -> Metrics:
    return compute(running.store, running.clock.now())
