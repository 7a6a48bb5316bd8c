"""A reviewer who takes a while, before clients that give up: over hours of an injected clock."""

import asyncio  # noqa: TID251  a loop with a clock of its own
import selectors
from collections.abc import Mapping
from typing import Final, cast

import anyio
import pytest

from ironcurtain_proxy.agent import rounds
from ironcurtain_proxy.agent.requests import ServerAnswer
from ironcurtain_proxy.agent.rounds import Rounds
from ironcurtain_proxy.agent.sealing import Sealing
from ironcurtain_proxy.agent.transport import AgentTransport
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.values import Json

ROUNDS: Final = 10
"""The requests after which the clients of the SDKs give up, if none has a result."""

PATIENCE: Final = 60.0
"""Seconds that the shortest-tempered of them waits for one answer."""

CALL: Final[Mapping[str, Json]] = {"name": "push", "arguments": {"to": "main"}}


class Hurried(selectors.DefaultSelector):
    """Waits for nothing: where only timers are left, their time has come."""

    ahead = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.ahead += timeout or 0.0
        return super().select(timeout and 0)


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes as fast as it can."""

    def __init__(self) -> None:
        self.clock = Hurried()
        super().__init__(self.clock)

    def time(self) -> float:
        return super().time() + self.clock.ahead


async def answered_after(seconds: float) -> tuple[list[float], ServerAnswer, list[ServerAnswer]]:
    """Make a call that a person approves so much later, as the clients of the SDKs make it.

    Returns how long each of its requests took, the last answer, and what a hundred copies of each
    request were answered meanwhile.
    """
    runs: list[Caller] = []
    held = Rounds(cast("AgentTransport", None), Sealing())

    async def work() -> ServerAnswer:
        with held.waiting(caller, is_sent=False):
            await anyio.sleep(seconds)
        runs.append(caller)
        return {"result": {"content": []}}

    legs: list[float] = []
    copies: list[ServerAnswer] = []
    answer: ServerAnswer = {}
    params = CALL
    async with anyio.create_task_group() as tasks:
        held.run_in(tasks)
        for number in range(ROUNDS):
            caller = Caller(version="2026-07-28", capabilities={}, info={}, number=number)
            began = anyio.current_time()
            async with anyio.create_task_group() as copying:
                if "requestState" in params:

                    async def copy(
                        caller: Caller = caller, given: Mapping[str, Json] = params
                    ) -> None:
                        copies.append(await held.carry(caller, "tools/call", 0, given, work))

                    for _ in range(100):
                        copying.start_soon(copy)
                answer = await held.carry(caller, "tools/call", number, params, work)
            legs.append(anyio.current_time() - began)
            result = answer.get("result")
            if not isinstance(result, dict) or result.get("resultType") != "input_required":
                break
            params = {**CALL, "requestState": result["requestState"]}
        tasks.cancel_scope.cancel()
    assert len(runs) == 1
    return legs, answer, copies


@pytest.mark.requirement("T-21")
@pytest.mark.requirement("T-17")
@pytest.mark.parametrize("seconds", [1, 45, 300, 360, 3600])
def test_no_client_gives_up_a_call_whose_reviewer_takes_a_while(seconds: float) -> None:
    legs, answer, copies = anyio.run(
        answered_after, seconds, backend_options={"loop_factory": HurriedLoop}
    )
    outcomes = [answer, *[one for one in copies if one != rounds._LOST]]
    done = [one for one in outcomes if "resultType" not in str(one)]
    assert done == [{"result": {"content": []}}], "the call has one end, whoever fetches it"
    # The last request alone may last longer: what waits so long is held by then.
    assert max(legs[: ROUNDS - 1]) < PATIENCE
