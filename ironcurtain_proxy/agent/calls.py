"""The fast lane: `tools/call` requests, answered beside the SDK's dispatcher.

Everything else of the protocol is the SDK's. A call needs none of what its dispatcher sets up for
each request (a session, a context, typed results), which takes as long as deciding, recording and
forwarding the call. Knows ids, cancellation and how much is under way; not what a call means.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.agent.capacity import Room

if TYPE_CHECKING:
    from ironcurtain_proxy.jsonrpc.codec import MessageId
    from ironcurtain_proxy.model.json import Json

Answerer: TypeAlias = "Callable[[Mapping[str, Json]], Awaitable[Mapping[str, object]]]"
"""Turns `params` into `{"result": …}` or `{"error": …}`. Raises only when it is cancelled."""

Sender: TypeAlias = Callable[[Mapping[str, object]], None]
"""Sends one message to the agent without waiting; nothing happens if the agent has gone."""

DUPLICATE: Final = {"error": {"code": -32600, "message": "a request with this id is under way"}}

UNFINISHED: Final[Mapping[str, object]] = {
    "result": {
        "content": [
            {
                "type": "text",
                "text": "Error: the input was closed, and the call was not done in time. It may "
                "have been carried out.",
            }
        ],
        "isError": True,
    }
}
"""The answer to a call that is under way when the proxy does not wait any longer."""

_GIVE_UP: Final = 2.0
"""Seconds for calls that are given up to record how they ended."""


class CallLane:
    """The calls of one agent that are under way. Its tasks belong to the group it was given."""

    def __init__(
        self,
        tasks: TaskGroup,
        answer: Answerer,
        send: Sender,
        *,
        turn_away: "Answerer | None" = None,
        room: Room | None = None,
    ) -> None:
        """Nothing is under way yet.

        Args:
            tasks: where calls run.
            answer: answers a call.
            send: sends the answer.
            turn_away: answers a call for which there is no room.
            room: how many bytes of calls may be under way.
        """
        self._tasks = tasks
        self._answer = answer
        self._turn_away = turn_away or answer
        self._send = send
        self.room = room or Room()
        self._under_way: dict[MessageId, _Call] = {}
        self._given_up = False
        self._open = 0
        self._idle = anyio.Event()
        self._idle.set()

    def begin(self, request_id: "MessageId", params: "Mapping[str, Json]", size: int = 0) -> None:
        """Answer a call, side by side with all others.

        Args:
            request_id: the agent's own id.
            params: the call's.
            size: bytes of its message. Where there is no room for it, it is turned away.
        """
        if not self._open:
            self._idle = anyio.Event()
        self._open += 1
        if request_id in self._under_way:
            self._finish(request_id, DUPLICATE)
            return
        call = _Call(params, size, self.room.take(size))
        self._under_way[request_id] = call
        self._tasks.start_soon(self._run, request_id, call)

    def cancel(self, request_id: object) -> bool:
        """Withdraw a call, which is then never answered. False: no such call is under way."""
        call = self._under_way.get(request_id) if isinstance(request_id, int | str) else None
        if call is None:
            return False
        call.withdrawn = True
        call.scope.cancel()
        return True

    async def until_idle(self) -> None:
        """Wait until every call has its answer."""
        await self._idle.wait()

    async def give_up(self) -> None:
        """End what is under way; the agent is told of each call that it was not done in time."""
        self._given_up = True
        for call in self._under_way.values():
            call.scope.cancel()
        with anyio.move_on_after(_GIVE_UP):
            await self._idle.wait()

    async def _run(self, request_id: "MessageId", call: "_Call") -> None:
        answer: Mapping[str, object] | None = None
        try:
            with call.scope:
                answer = await (self._answer if call.has_room else self._turn_away)(call.params)
        finally:
            self.room.give_back(call.size, taken=call.has_room)
            del self._under_way[request_id]
            if answer is None and self._given_up:
                answer = UNFINISHED
            self._finish(request_id, None if call.withdrawn else answer)

    def _finish(self, request_id: "MessageId", answer: Mapping[str, object] | None) -> None:
        # Without waiting for the agent to read: while a task waited, it would keep the answer that
        # is in the pipe's buffer already.
        if answer is not None:
            self._send({"jsonrpc": "2.0", "id": request_id, **answer})
        self._open -= 1
        if not self._open:
            self._idle.set()


@dataclass(slots=True, eq=False)
class _Call:
    params: "Mapping[str, Json]"
    size: int
    has_room: bool
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    withdrawn: bool = False
    """By the agent, which expects no answer then."""
