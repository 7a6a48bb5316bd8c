"""An approval that nobody takes, and one of more than is asked about by now."""

from datetime import datetime, timedelta

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.approval.overlay import asked_before
from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Declined,
    Escalation,
    Held,
    Ruling,
    Superseded,
    Unreachable,
)
from ironcurtain_proxy.review import open_questions as desk_module
from ironcurtain_proxy.review.open_questions import OpenQuestions
from tests.fakes import FakeClock
from tests.program import until
from tests.review.open_questions_fixture import YES, Aftermath, Person, at_work, question, state_of

pytestmark = pytest.mark.anyio

NO = Declined(by=HUMAN, kind="denied")


def lacking(asked: Escalation, *names: str) -> Escalation:
    """The same question while these capabilities are missing."""
    return replace(asked, reasons=(asked_before("careful", names),))


@pytest.mark.requirement("X-8", "X-11")
async def test_an_approval_of_more_capabilities_than_are_missing_by_now_is_used() -> None:
    """Another call's approval may have granted one of them while this one was held."""
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        await desk.ask(lacking(question(1), "fs.delete", "fs.write"))
        await person.until_asked(1)
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        other = lacking(question(2), "net.egress")
        assert await desk.ask(other) == Held(question(2).id)
        ruling = await desk.ask(lacking(question(3), "fs.write"))
        assert ruling == replace(YES, question=question(1).id)


@pytest.mark.requirement("X-8", "X-11")
async def test_an_approval_of_fewer_capabilities_than_are_missing_by_now_is_not_used() -> None:
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        await desk.ask(lacking(question(1), "fs.write"))
        await person.until_asked(1)
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        both = lacking(question(2), "fs.delete", "fs.write")
        assert await desk.ask(both) == Held(question(2).id)


@pytest.mark.parametrize("fails", [False, True])
async def test_who_approved_is_told_that_nobody_came_back(*, fails: bool) -> None:
    person, aftermath = Person(), Aftermath(fails=fails)
    async with at_work(person, hold_after=0.01, aftermath=aftermath) as (desk, clock):
        clock.tick = 0.02
        await desk.ask(question(1))
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        clock.seconds += 301
        assert desk.open() == ()
        assert desk.open() == ()
        await anyio.wait_all_tasks_blocked()
        assert aftermath.told == [question(1).id]
        assert await desk.ask(question(2)) == Held(question(2).id)


async def test_who_approved_is_told_that_the_agent_gave_up_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_module, "PULSE", 0.001)
    person, aftermath, approved = Person(), Aftermath(), anyio.Event()
    async with at_work(person, aftermath=aftermath) as (desk, _):

        async def busy(_: float) -> None:
            person.answer(question(1), YES)
            await until(lambda: state_of(desk, question(1).id) == "approved")
            approved.set()
            await anyio.sleep_forever()

        async with anyio.create_task_group() as calls:
            calls.start_soon(desk.ask, question(1), busy)
            await approved.wait()
            calls.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert aftermath.told == [question(1).id]
        assert desk.open() == ()


async def test_who_approved_is_told_that_the_agent_gave_up_while_the_approval_was_on_its_way() -> (
    None
):
    asked, done = anyio.Event(), anyio.Event()

    class Slow:
        """Has approved, and writes that down before it says so."""

        async def ask(self, escalation: Escalation) -> Ruling:
            asked.set()
            with anyio.CancelScope(shield=True):
                await done.wait()
            return YES

    aftermath = Aftermath()
    async with at_work(Slow(), aftermath=aftermath) as (desk, _):
        async with anyio.create_task_group() as calls:
            calls.start_soon(desk.ask, question(1))
            await asked.wait()
            calls.cancel_scope.cancel()
        assert desk.open() == ()
        done.set()
        await anyio.wait_all_tasks_blocked()
        assert aftermath.told == [question(1).id]


@pytest.mark.requirement("X-8")
async def test_no_question_is_asked_again_under_a_number_that_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An identical call may wake first: the approval is still of the call that was asked about."""
    monkeypatch.setattr(desk_module, "PULSE", 0.001)
    person, rulings = Person(), dict[int, Ruling | Held | AlreadyUsed | Superseded]()
    waiting = anyio.Event()

    async def call(desk: OpenQuestions, number: int) -> None:
        rulings[number] = await desk.ask(question(number))

    async def answered(_: float) -> None:
        # The second call waits by now, and comes before the first, which has just looked.
        await waiting.wait()
        person.answer(question(1), YES)
        # None: the second call has used it.
        await until(lambda: state_of(desk, question(1).id) in {"approved", None})
        for _ in range(10):
            await anyio.lowlevel.checkpoint()

    async with at_work(person) as (desk, _), anyio.create_task_group() as calls:

        async def first() -> None:
            rulings[1] = await desk.ask(question(1), answered)

        calls.start_soon(first)
        await person.until_asked(1)
        calls.start_soon(call, desk, 2)
        await anyio.wait_all_tasks_blocked()
        waiting.set()
    assert person.asked == [question(1).id]
    assert rulings == {1: YES, 2: AlreadyUsed()}


async def test_an_approval_does_not_last_longer_because_the_clock_was_set_back() -> None:
    class Clock(FakeClock):
        def now(self) -> datetime:
            return super().now() - timedelta(seconds=2 * self.seconds)

    person, clock = Person(), Clock(tick=0.02)
    async with anyio.create_task_group() as tasks:
        desk = OpenQuestions(person, clock, hold_after=0.01)
        await tasks.start(desk.run)
        await desk.ask(question(1))
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        clock.seconds += 301
        assert desk.open() == ()
        tasks.cancel_scope.cancel()


async def test_who_approved_a_call_that_was_taken_is_told_nothing_by_the_desk() -> None:
    person, aftermath = Person(), Aftermath()
    person.answers[question(1).id] = YES
    async with at_work(person, aftermath=aftermath) as (desk, clock):
        assert await desk.ask(question(1)) == YES
        clock.seconds += 301
        assert desk.open() == ()
        await anyio.wait_all_tasks_blocked()
        assert aftermath.told == []


async def test_a_desk_that_has_closed_reaches_nobody() -> None:
    person = Person()
    async with at_work(person) as (desk, _):
        pass
    assert await desk.ask(question(1)) == Unreachable()
