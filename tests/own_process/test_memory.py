"""When free memory is given back."""

import anyio
import pytest

from ironcurtain_proxy import own_process
from ironcurtain_proxy.own_process import MemoryTrimmer
from tests.program import until


@pytest.mark.anyio
async def test_memory_is_given_back_only_after_the_last_large_message_has_left_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_process, "_QUIET", 0.001)
    held, happened = [10 << 20], list[str]()

    def used() -> int:
        happened.append("looked")
        return sum(held)

    trimmer = MemoryTrimmer(used)
    trimmer._trim = lambda _: happened.append("trimmed")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trimmer.run)
        trimmer.note_large()
        await until(lambda: len(happened) >= 5)
        assert "trimmed" not in happened
        held.clear()
        await until(lambda: "trimmed" in happened)
        tasks.cancel_scope.cancel()
    assert happened.count("trimmed") == 1
