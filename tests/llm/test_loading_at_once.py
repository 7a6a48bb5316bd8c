"""Two models that load at once: one thread imports at a time."""

import threading

import anyio
import pytest

from ironcurtain_proxy.llm import litellm_model
from ironcurtain_proxy.llm.litellm_model import LitellmModel, parse_model_id
from tests.program import PATIENCE


def a_model() -> LitellmModel:
    return LitellmModel(model_id=parse_model_id("openai:local"), answer_schema={})


@pytest.mark.anyio
async def test_a_load_waits_for_one_that_was_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, may_end = threading.Semaphore(0), threading.Event()
    together: list[int] = []
    inside = 0

    async def ask(system: str, prompt: str) -> object:
        return system + prompt

    async def close() -> None:
        pass

    def load(_: LitellmModel) -> object:
        nonlocal inside
        inside += 1
        together.append(inside)
        entered.release()
        may_end.wait(PATIENCE)
        inside -= 1
        return ask, close

    monkeypatch.setattr(litellm_model.LitellmModel, "_load", load)
    first, second = a_model(), a_model()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_cancelled_once_loading, scope, entered)
            await first.warm()
        assert scope.cancelled_caught, "the load goes on without its task"
        tasks.start_soon(second.warm)
        await anyio.wait_all_tasks_blocked()
        may_end.set()
    assert together == [1, 1]


async def _cancelled_once_loading(scope: anyio.CancelScope, entered: threading.Semaphore) -> None:
    await anyio.to_thread.run_sync(entered.acquire)
    scope.cancel()
