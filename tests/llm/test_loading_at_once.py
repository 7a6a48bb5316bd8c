"""A load that meets another, and one after a load that failed."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import anyio
import pytest

from ironcurtain_proxy.llm import litellm_model
from ironcurtain_proxy.llm.litellm_model import LitellmModel, parse_model_id
from tests.program import PATIENCE, ROOT


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


LIBRARY: Final = {
    "__init__.py": (
        "import pathlib, litellm.utils\n"
        "if not (mark := pathlib.Path(__file__).with_name('failed')).exists():\n"
        "    mark.touch(); raise OSError(24, 'Too many open files')\n"
        "completion = acompletion = litellm.utils.complete\n"
    ),
    "utils.py": "def complete(**_): return {}\n",
    "llms/custom_httpx/http_handler.py": (
        "class AsyncHTTPHandler:\n"
        "    def __init__(self, **_): pass\n"
        "    async def close(self): pass\n"
    ),
}
"""A library like litellm, whose parts find each other in the package, and which fails once."""

LOADING: Final = """
import anyio
from ironcurtain_proxy.llm.litellm_model import LitellmModel, parse_model_id

async def main():
    model = LitellmModel(model_id=parse_model_id("anthropic:local"), answer_schema={})
    for _ in range(2):
        try:
            await model.warm()
            print("loaded")
        except Exception as error:
            print(error)

anyio.run(main)
"""


def test_a_library_that_could_not_be_loaded_once_is_loaded_by_the_next_question(
    tmp_path: Path,
) -> None:
    for name, text in LIBRARY.items():
        file = tmp_path / "litellm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    ran = subprocess.run(
        [sys.executable, "-c", LOADING],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "[Errno 24] Too many open files\nloaded\n"
