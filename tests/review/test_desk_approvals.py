"""An approval that nobody takes, and one of more than is asked about by now."""

from dataclasses import replace

import anyio
import pytest

from ironcurtain_proxy.approval.overlay import asked_before
from ironcurtain_proxy.model.escalation import (
    Escalation,
    Held,
    Unreachable,
)
from ironcurtain_proxy.review import desk as desk_module
from tests.review.asking import YES, Aftermath, Person, at_work, question

pytestmark = pytest.mark.anyio


def lacking(asked: Escalation, *names: str) -> Escalation:
    """The same question while these capabilities are missing."""
    return replace(asked, reasons=(asked_before("careful", names),))


@pytest.mark.requirement("X-8", "X-11")
async def test_an_approval_of_more_capabilities_than_are_missing_by_now_is_used() -> None:
    """Another call's approval may have granted one of them while this one was held."""
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        await desk.settle(lacking(question(1), "fs.delete", "fs.write"))
        await person.until_asked(1)
        person.answer(question(1), YES)
        while desk.state_of(question(1).id) != "approved":
            await anyio.lowlevel.checkpoint()
        other = lacking(question(2), "net.egress")
        assert await desk.settle(other) == Held(question(2).id)
        ruling = await desk.settle(lacking(question(3), "fs.write"))
        assert ruling == replace(YES, question=question(1).id)


@pytest.mark.requirement("X-8", "X-11")
async def test_an_approval_of_fewer_capabilities_than_are_missing_by_now_is_not_used() -> None:
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        await desk.settle(lacking(question(1), "fs.write"))
        await person.until_asked(1)
        person.answer(question(1), YES)
        while desk.state_of(question(1).id) != "approved":
            await anyio.lowlevel.checkpoint()
        both = lacking(question(2), "fs.delete", "fs.write")
        assert await desk.settle(both) == Held(question(2).id)


@pytest.mark.parametrize("fails", [False, True])
async def test_who_approved_is_told_that_nobody_came_back(*, fails: bool) -> None:
    person, aftermath = Person(), Aftermath(fails=fails)
    async with at_work(person, hold_after=0.01, aftermath=aftermath) as (desk, clock):
        clock.tick = 0.02
        await desk.settle(question(1))
        person.answer(question(1), YES)
        while desk.state_of(question(1).id) != "approved":
            await anyio.lowlevel.checkpoint()
        clock.seconds += 301
        assert desk.open() == ()
        assert desk.open() == ()
        await anyio.wait_all_tasks_blocked()
        assert aftermath.told == [question(1).id]
        assert await desk.settle(question(2)) == Held(question(2).id)


async def test_who_approved_is_told_that_the_agent_gave_up_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_module, "PULSE", 0.001)
    person, aftermath, approved = Person(), Aftermath(), anyio.Event()
    async with at_work(person, aftermath=aftermath) as (desk, _):

        async def busy(_: float) -> None:
            person.answer(question(1), YES)
            while desk.state_of(question(1).id) != "approved":
                await anyio.lowlevel.checkpoint()
            approved.set()
            await anyio.sleep_forever()

        async with anyio.create_task_group() as calls:
            calls.start_soon(desk.settle, question(1), busy)
            await approved.wait()
            calls.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert aftermath.told == [question(1).id]
        assert desk.open() == ()


async def test_who_approved_a_call_that_was_taken_is_told_nothing_by_the_desk() -> None:
    person, aftermath = Person(), Aftermath()
    person.answers[question(1).id] = YES
    async with at_work(person, aftermath=aftermath) as (desk, clock):
        assert await desk.settle(question(1)) == YES
        clock.seconds += 301
        assert desk.open() == ()
        await anyio.wait_all_tasks_blocked()
        assert aftermath.told == []


async def test_a_desk_that_has_closed_reaches_nobody() -> None:
    person = Person()
    async with at_work(person) as (desk, _):
        pass
    assert await desk.settle(question(1)) == Unreachable()
