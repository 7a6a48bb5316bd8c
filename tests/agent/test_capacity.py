"""How many bytes of calls may be under way at once."""

import anyio
import pytest

from ironcurtain_proxy.agent import requests
from ironcurtain_proxy.agent.requests import SMALL, RequestCapacity

pytestmark = pytest.mark.anyio

LARGE = 10 * SMALL


def test_one_call_has_room_however_large_it_is() -> None:
    assert RequestCapacity(LARGE).take(100 * LARGE)


def test_large_calls_have_room_up_to_their_sum_and_again_when_one_is_over() -> None:
    found = RequestCapacity(2 * LARGE)
    assert found.take(LARGE)
    assert found.take(LARGE)
    assert not found.take(LARGE)
    found.give_back(LARGE, taken=True)
    assert found.take(LARGE)


def test_a_large_call_that_waits_keeps_no_small_one_out() -> None:
    found = RequestCapacity(LARGE)
    assert found.take(LARGE)
    assert all(found.take(SMALL) for _ in range(100))


def test_small_calls_have_room_up_to_their_sum() -> None:
    found = RequestCapacity(LARGE)
    taken = sum(found.take(SMALL) for _ in range(10_000))
    assert taken * SMALL == 64 << 20


def test_calls_are_bounded_in_number_however_short_they_are() -> None:
    found = RequestCapacity(LARGE)
    taken = sum(found.take(1) for _ in range(100_000))
    assert taken == (64 << 20) // 4096
    found.give_back(1, taken=True)
    assert found.take(1)


async def test_a_large_call_waits_for_room_and_is_turned_away_if_none_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = RequestCapacity(LARGE)
    assert found.take(LARGE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.wait, LARGE)
        await anyio.wait_all_tasks_blocked()
        found.give_back(LARGE, taken=True)
    assert found.take(LARGE)
    monkeypatch.setattr(requests, "_PATIENCE", 0.01)
    await found.wait(LARGE)
    assert not found.take(LARGE)
