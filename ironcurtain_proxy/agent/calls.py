"""The fast lane: `tools/call` requests, answered beside the SDK's dispatcher.

Everything else of the protocol is the SDK's. A call needs none of what its dispatcher sets up for
each request (a session, a context, typed results), which takes as long as deciding, recording and
forwarding the call. Knows ids and cancellation; not what a call means.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

if TYPE_CHECKING:
    from ironcurtain_proxy.model.json import Json
    from ironcurtain_proxy.wire.codec import MessageId

Answerer: TypeAlias = "Callable[[Mapping[str, Json]], Awaitable[Mapping[str, object]]]"
"""Turns `params` into `{"result": …}` or `{"error": …}`. Raises only when it is cancelled."""

Sender: TypeAlias = Callable[[Mapping[str, object]], Awaitable[None]]
"""Sends one message to the agent; nothing happens if the agent has gone."""

DUPLICATE: Final = {"error": {"code": -32600, "message": "a request with this id is under way"}}


class CallLane:
    """The calls of one agent that are under way. Its tasks belong to the group it was given."""

    def __init__(self, tasks: TaskGroup, answer: Answerer, send: Sender) -> None:
        self._tasks = tasks
        self._answer = answer
        self._send = send
        self._under_way: dict[MessageId, anyio.CancelScope] = {}

    def begin(self, request_id: "MessageId", params: "Mapping[str, Json]") -> None:
        """Answer a call, side by side with all others."""
        if request_id in self._under_way:
            self._tasks.start_soon(self._reply, request_id, DUPLICATE)
            return
        scope = anyio.CancelScope()
        self._under_way[request_id] = scope
        self._tasks.start_soon(self._run, request_id, params, scope)

    def cancel(self, request_id: object) -> bool:
        """Withdraw a call, which is then never answered. False: no such call is under way."""
        scope = self._under_way.get(request_id) if isinstance(request_id, int | str) else None
        if scope is None:
            return False
        scope.cancel()
        return True

    async def _run(
        self, request_id: "MessageId", params: "Mapping[str, Json]", scope: anyio.CancelScope
    ) -> None:
        answer: Mapping[str, object] | None = None
        try:
            with scope:
                answer = await self._answer(params)
        finally:
            del self._under_way[request_id]
        if answer is not None and not scope.cancel_called:
            await self._reply(request_id, answer)

    async def _reply(self, request_id: "MessageId", answer: Mapping[str, object]) -> None:
        await self._send({"jsonrpc": "2.0", "id": request_id, **answer})
