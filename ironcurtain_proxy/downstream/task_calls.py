"""Calls of the tools that a server carries out as tasks alone (`taskSupport: required`).

The proxy asks for the task and waits for its end, so that for the agent and for the record this is
a call like any other: decided before, with one outcome after. No task outlives its call, because
nobody would see how it ended.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio

from ironcurtain_proxy.errors import (
    CallLostError,
    DownstreamError,
    ServerUnavailableError,
    UnansweredError,
)
from ironcurtain_proxy.model.server import ToolDefinition, ToolResult
from ironcurtain_proxy.model.values import Json

_LONGEST_ID: Final = 1024
_CANCEL: Final = 1.0
"""Seconds for a server to cancel a task."""

Ask = Callable[[str, Mapping[str, Json], float], Awaitable[ToolResult]]
"""Sends a request with a method and params, and waits so many seconds for its answer."""


def task_tools(tools: Sequence[ToolDefinition], capabilities: Mapping[str, Json]) -> frozenset[str]:
    """The names of the tools that are called as tasks."""
    if _at(capabilities, "tasks", "requests", "tools", "call") is None:
        return frozenset()
    return frozenset(
        [one.name for one in tools if _at(one.raw, "execution", "taskSupport") == "required"]
    )


async def call_as_task(
    server: str, ask: Ask, params: Mapping[str, Json], seconds: float
) -> ToolResult:
    """Call a tool as a task, and wait for the result of the task.

    Args:
        server: the server's name.
        ask: sends a request.
        params: of the call.
        seconds: for the task as a whole.

    Raises:
        DownstreamError: no answer, or none in time; the task is cancelled then.
    """
    end = anyio.current_time() + seconds
    asked: dict[str, Json] = {**params, "task": {"ttl": int(seconds * 1000)}}
    answer = await ask("tools/call", asked, seconds)
    if answer.result is None or "task" not in answer.result:
        return answer
    task = _at(answer.result, "task", "taskId")
    if not isinstance(task, str) or len(task) > _LONGEST_ID:
        raise UnansweredError(f'server "{server}" began a task without a name')
    try:
        return await ask("tasks/result", {"taskId": task}, max(0.0, end - anyio.current_time()))
    except CallLostError:
        raise
    except ServerUnavailableError:
        # The task has begun: nobody may take this for a call that was never sent.
        raise CallLostError(f'server "{server}" was gone before its task ended') from None
    except (DownstreamError, anyio.get_cancelled_exc_class()):
        with anyio.CancelScope(shield=True):
            await _cancel(ask, task)
        raise


async def _cancel(ask: Ask, task: str) -> None:
    with suppress(DownstreamError):  # it has gone, or does not answer: nothing more can be done
        await ask("tasks/cancel", {"taskId": task}, _CANCEL)


def _at(value: object, *way: str) -> object:
    """The value at the end of a way of keys, or None if there is none."""
    for key in way:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
