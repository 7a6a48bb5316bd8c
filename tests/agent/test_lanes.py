"""Tasks that do one piece of work after another."""

import asyncio  # noqa: TID251  callbacks of the loop, and its tasks

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ironcurtain_proxy.agent.requests import Lane, Lanes

pytestmark = pytest.mark.anyio


async def some_turns() -> None:
    for _ in range(5):
        await checkpoint()


async def test_a_lane_that_is_idle_begins_where_it_is_told_to() -> None:
    lanes, done = Lanes(), list[int]()

    async def work(_: Lane) -> None:
        done.append(len(done))

    lanes.begin(work)
    await some_turns()
    seen: list[list[int]] = []

    def read() -> None:
        lanes.begin(work)
        seen.append(list(done))

    asyncio.get_running_loop().call_soon(read)
    await some_turns()
    assert seen == [[0, 1]]
    lanes.end()


async def test_work_that_outlives_its_cancellation_leaves_no_cancelled_lane_behind() -> None:
    lanes, done = Lanes(), list[str]()

    async def stubborn(lane: Lane) -> None:
        lane.scope.cancel()
        with anyio.CancelScope(shield=True):
            await checkpoint()
        done.append("stubborn")

    async def next_one(_: Lane) -> None:
        await checkpoint()
        done.append("next")

    lanes.begin(stubborn)
    await some_turns()
    lanes.begin(next_one)
    await some_turns()
    assert done == ["stubborn", "next"]
    lanes.end()


async def test_many_at_once_leave_a_bounded_number_of_idle_lanes_which_end() -> None:
    before, lanes, gate = len(asyncio.all_tasks()), Lanes(), anyio.Event()

    async def work(_: Lane) -> None:
        await gate.wait()

    for _ in range(500):
        lanes.begin(work)
    await some_turns()
    gate.set()
    await some_turns()
    assert before < len(asyncio.all_tasks()) <= before + 64
    lanes.end()
    await some_turns()
    assert len(asyncio.all_tasks()) == before
