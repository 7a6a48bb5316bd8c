"""What the engine knows, read before it is asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest

from ironcurtain_proxy.auto_confirm.engine_knowledge import STALE, CachedKnowledge, LazyStore
from ironcurtain_proxy.auto_confirm.store.store import open_store
from tests.fakes import FakeClock

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Readings:
    """Counts what is read."""

    def __init__(self) -> None:
        self.count = 0
        self.first = anyio.Event()

    async def __call__(self, work: Callable[[], T]) -> T:
        found = await anyio.to_thread.run_sync(work)
        self.count += 1
        self.first.set()
        return found


async def test_the_first_question_of_the_session_waits_for_no_reading(tmp_path: Path) -> None:
    clock, readings = FakeClock(), Readings()
    store = LazyStore(lambda: open_store(None, tmp_path, clock))
    cached = CachedKnowledge(store=store, clock=clock, began=clock.now(), in_thread=readings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cached.keep_fresh, "mine")
        await readings.first.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    clock.seconds += STALE
    assert (await cached.of("mine")).health == "normal"
    assert readings.count == 1
    clock.seconds += 0.1
    await cached.of("mine")
    assert readings.count == 2
    await cached.of("another")
    assert readings.count == 3
    store.close()
