"""Turns: the most urgent first, among these who waits longest; none is lost."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.auto_confirm.reviewers.json_lines import ReviewQueue

START = datetime(2026, 1, 1, tzinfo=UTC)
ASKING = st.lists(st.tuples(st.integers(8, 10), st.integers(0, 3), st.booleans()), max_size=12)
"""Priority, seconds since the start, whether it gives up."""


@pytest.mark.requirement("B-54", "B-101")
@given(ASKING, st.integers(1, 3))
def test_turns_go_by_priority_then_by_age_then_by_arrival(
    asking: list[tuple[int, int, bool]], at_once: int
) -> None:
    order = anyio.run(_turns, asking, at_once)
    staying = [number for number, (_, _, gives_up) in enumerate(asking) if not gives_up]
    assert order == sorted(staying, key=lambda n: (-asking[n][0], asking[n][1], n))


async def _turns(asking: list[tuple[int, int, bool]], at_once: int) -> list[int]:
    queue, order = ReviewQueue(at_once), []
    leave = anyio.Event()

    async def hold() -> None:
        async with queue.turn(10, START):
            await leave.wait()

    async def ask(number: int, scope: anyio.CancelScope) -> None:
        priority, seconds, _ = asking[number]
        with scope:
            async with queue.turn(priority, START + timedelta(seconds=seconds)):
                order.append(number)

    scopes = [anyio.CancelScope() for _ in asking]
    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(hold)
        await anyio.wait_all_tasks_blocked()
        for number, scope in enumerate(scopes):
            tasks.start_soon(ask, number, scope)
            await anyio.wait_all_tasks_blocked()
        assert len(queue) == len(asking)
        for (_, _, gives_up), scope in zip(asking, scopes, strict=True):
            if gives_up:
                scope.cancel()
        await anyio.wait_all_tasks_blocked()
        leave.set()
    assert len(queue) == 0
    for _ in range(at_once):
        async with queue.turn(8, START):
            pass
    return order


@pytest.mark.anyio
async def test_who_gives_up_as_its_turn_comes_passes_it_on() -> None:
    queue, served = ReviewQueue(1), []
    scope = anyio.CancelScope()

    async def ask(name: str, within: anyio.CancelScope) -> None:
        with within:
            async with queue.turn(9, START):
                served.append(name)

    async with anyio.create_task_group() as tasks, queue.turn(9, START):
        tasks.start_soon(ask, "gives up", scope)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask, "stays", anyio.CancelScope())
        await anyio.wait_all_tasks_blocked()
        # It does not run again before its turn has come.
        scope.cancel()
    assert served == ["stays"]


@pytest.mark.anyio
async def test_no_more_than_so_many_have_a_turn() -> None:
    queue, now, most = ReviewQueue(3), 0, 0

    async def ask() -> None:
        nonlocal now, most
        async with queue.turn(9, START):
            now += 1
            most = max(most, now)
            await anyio.lowlevel.checkpoint()
            now -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(ask)
    assert (now, most) == (0, 3)
