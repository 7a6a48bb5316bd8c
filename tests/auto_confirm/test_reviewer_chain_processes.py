"""The chain over real processes: they are started, fall silent, die, and are called off."""

import threading
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.reviewer_chain import ReviewerChain, Seat, without_briefing
from ironcurtain_proxy.auto_confirm.reviewers.process import ReviewerProcess, Start
from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling
from tests.auto_confirm.reviewers.reviewer_processes import Launcher, manager, reviewing
from tests.auto_confirm.test_reviewer_chain import DECISION, EXPIRED
from tests.mailbox.mailbox_fixture import APPROVED, CLOCK, a_box, escalation
from tests.program import PATIENCE, until

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("B-60", "B-172")
@pytest.mark.parametrize("answers", [True, False])
async def test_from_a_silent_process_to_a_persons_mailbox(answers: bool, tmp_path: Path) -> None:
    """The real ones: a process that never answers, then files in a directory."""
    async with reviewing(manager("tardy")) as process, a_box(tmp_path / "box") as person:
        chain = ReviewerChain(
            seats={
                "architect_manager": Seat(ask=process.ask, session="architect-1"),
                "human": Seat(
                    ask=without_briefing(person.mailbox), is_reachable=person.mailbox.is_reachable
                ),
            },
            clock=CLOCK,
            step_seconds=1.0,
        )
        question = escalation(tool="patience", seconds=20)
        rulings: list[Ruling] = []

        async def ask() -> None:
            rulings.append(await chain.ask(question, DECISION))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            if answers:
                await until(person.request(question).exists)
                person.answer(question, APPROVED)
        assert person.names() == []
    assert rulings == [Approved(by=HUMAN) if answers else EXPIRED]


@pytest.mark.requirement("B-67")
async def test_a_process_that_is_no_longer_asked_is_told_so() -> None:
    async with reviewing(manager("tardy")) as process:
        seat = Seat(ask=process.ask, session="architect-1")
        chain = ReviewerChain(seats={"architect_manager": seat}, clock=CLOCK)
        # It has to be there first: a question that it never read is not called off.
        await chain.ask(escalation(), DECISION)
        late, next_one = escalation(tool="patience", seconds=0.5), escalation()
        assert await chain.ask(late, DECISION) == EXPIRED
        ruling = await chain.ask(next_one, DECISION)
    assert isinstance(ruling, Approved)
    assert f"review:{late.id} cancel:{late.id} review:{next_one.id}" in ruling.note


@pytest.mark.requirement("B-69", "B-169")
async def test_a_process_that_is_being_started_is_there_for_the_next_question() -> None:
    starting, go = threading.Event(), threading.Event()

    class Slow(Launcher):
        def __call__(self, start: Start) -> ReviewerProcess:
            starting.set()
            go.wait(PATIENCE)
            return super().__call__(start)

    rulings: list[Ruling] = []
    async with reviewing(manager("deciding", "approve"), Slow()) as process:
        seat = Seat(ask=process.ask, is_reachable=process.is_reachable, session="architect-1")
        chain = ReviewerChain(seats={"architect_manager": seat}, clock=CLOCK)

        async def ask() -> None:
            rulings.append(await chain.ask(escalation(), DECISION))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await until(starting.is_set)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            go.set()
    assert [type(ruling) for ruling in rulings] == [Approved, Approved]


@pytest.mark.requirement("B-169", "B-165")
async def test_of_200_reviews_none_is_lost_and_none_is_done_twice_when_a_process_dies(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    dying = replace(manager("dying", 50, first), restarts=0)
    other = manager("deciding", "approve", second, name="claude_code_high_level")
    asked = [escalation(seconds=100) for _ in range(200)]
    rulings: dict[str, list[Ruling]] = {question.id: [] for question in asked}
    passed: list[str] = []

    async def note(question: Escalation, *_: str) -> None:
        passed.append(question.id)

    async with reviewing(dying) as target, reviewing(other) as fallback:
        chain = ReviewerChain(
            seats={
                "architect_manager": Seat(ask=target.ask, session="architect-1"),
                "claude_code_high_level": Seat(ask=fallback.ask, session="high-1"),
            },
            clock=CLOCK,
            on_step=note,
        )

        async def ask(question: Escalation) -> None:
            rulings[question.id].append(await chain.ask(question, DECISION))

        async with anyio.create_task_group() as tasks:
            for question in asked:
                tasks.start_soon(ask, question)
    by_first, by_second = first.read_text().split(), second.read_text().split()
    assert [len(found) for found in rulings.values()] == [1] * 200
    assert {type(found) for [found] in rulings.values()} == {Approved}
    assert len(by_first) == 50
    assert sorted(by_second) == sorted(passed)
    assert sorted(by_first + by_second) == sorted(rulings)
