"""The agent's requests in progress: answered concurrently, cancelled or abandoned."""

import asyncio  # noqa: TID251  the tasks of lanes
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from msgspec import Struct

from ironcurtain_proxy.agent.capacity import RequestCapacity
from ironcurtain_proxy.agent.messages import INTERNAL_ERROR, INVALID_REQUEST
from ironcurtain_proxy.jsonrpc.batch import PromptFuture

Work: TypeAlias = Callable[["Lane"], Awaitable[None]]
"""Work for a lane. It raises nothing but a cancellation."""

_MOST_IDLE: Final = 64


class Lane:
    """A task with its cancel scope, reused for one call after another.

    A new task and cancel scope for each call cost as much as its decision. An idle lane takes the
    next call at once: the call runs where its line was read, until it first has to wait. A
    cancelled lane ends, and the next call gets another one.
    """

    __slots__ = ("_next", "_task", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        """Cancels the lane's current work."""
        self._next: PromptFuture[Work | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Work, idle: "list[Lane]") -> None:
        """Do the first work, then the work that `take` hands over.

        Args:
            work: the first work.
            idle: the list that the lane joins whenever it is idle.
        """
        # Kept here: the event loop holds tasks by weak references only.
        self._task = asyncio.get_running_loop().create_task(self._run(work, idle))

    def take(self, work: Work | None) -> None:
        """Give work to an idle lane. None: end."""
        if self._next is not None:
            self._next.set_result(work)

    async def _run(self, first: Work, idle: "list[Lane]") -> None:
        loop = asyncio.get_running_loop()
        work: Work | None = first
        with self.scope:
            while work is not None:
                await work(self)
                if self.scope.cancel_called or len(idle) >= _MOST_IDLE:
                    return
                self._next = PromptFuture(loop=loop)
                idle.append(self)
                work = await self._next


class Lanes:
    """The lanes of one agent. The owner of this object ends them."""

    def __init__(self) -> None:
        self._idle: list[Lane] = []

    def begin(self, work: Work) -> None:
        """Do work concurrently with all other work."""
        if self._idle:
            self._idle.pop().take(work)
        else:
            Lane().begin(work, self._idle)

    def end(self) -> None:
        """End the idle lanes."""
        while self._idle:
            self._idle.pop().take(None)


if TYPE_CHECKING:
    from ironcurtain_proxy.jsonrpc.codec import MessageId
    from ironcurtain_proxy.model.json import Json

_log = logging.getLogger(__name__)

ServerAnswer: TypeAlias = Mapping[str, object]
"""`{"result": …}` or `{"error": …}`."""

Answerer: TypeAlias = "Callable[[Mapping[str, Json]], Awaitable[ServerAnswer]]"
"""Answers a request with these `params`."""

Sender: TypeAlias = "Callable[[MessageId, ServerAnswer], None]"
"""Sends the answer to a request without waiting; nothing happens if the agent has gone."""

_DUPLICATE: Final = {
    "error": {"code": INVALID_REQUEST, "message": "a request with this id is under way"}
}
_DEFECT: Final = {"error": {"code": INTERNAL_ERROR, "message": "Internal error"}}

_GIVE_UP: Final = 2.0
"""Seconds that abandoned requests have to record their end."""


class Service(Struct, frozen=True):
    """The functions that answer requests of one kind."""

    answer: Answerer
    turn_away: Answerer
    """Answers a request for which there is no capacity."""
    unfinished: ServerAnswer
    """The answer to a request that the proxy no longer waits for."""


class Requests:
    """The requests of one agent in progress. The owner of this object ends them."""

    def __init__(self, send: Sender, capacity: RequestCapacity) -> None:
        """Begin without requests.

        Args:
            send: sends answers.
            capacity: the limit on the bytes of requests in progress.
        """
        self._send = send
        self._capacity = capacity
        self._under_way: dict[MessageId, _Request] = {}
        self._lanes = Lanes()
        self._given_up = False
        self._idle: anyio.Event | None = None
        """Created by the task that waits for it, once the agent has left."""

    def begin(
        self,
        service: Service,
        request_id: "MessageId",
        params: "Mapping[str, Json]",
        size: int = 0,
    ) -> None:
        """Answer a request concurrently with all others.

        Args:
            service: how.
            request_id: the agent's own id.
            params: the request's.
            size: bytes of its message. Without capacity for it, the request is refused.
        """
        if request_id in self._under_way:
            self._send(request_id, _DUPLICATE)
            return
        request = _Request(service, params, size, self._capacity.take(size))
        self._under_way[request_id] = request
        self._lanes.begin(partial(self._run, request_id, request))

    def cancel(self, request_id: "MessageId | None") -> None:
        """Cancel a request, which is then never answered; harmless for an unknown id."""
        request = None if request_id is None else self._under_way.get(request_id)
        if request is not None:
            request.withdrawn = True
            request.cancel()

    async def until_idle(self) -> None:
        """Wait until every request has its answer."""
        while self._under_way:
            self._idle = self._idle or anyio.Event()
            await self._idle.wait()

    async def give_up(self) -> None:
        """End all requests in progress, and tell the agent of each that it was not done in time."""
        self._given_up = True
        for request in self._under_way.values():
            request.cancel()
        with anyio.move_on_after(_GIVE_UP):
            await self.until_idle()

    def cancel_all(self) -> None:
        """End all requests in progress, without an answer."""
        for request in self._under_way.values():
            request.cancel()

    async def until_ended(self) -> None:
        """Wait until all ended requests are finished, even if the wait is cancelled."""
        with anyio.CancelScope(shield=True):
            await self.until_idle()
        self._lanes.end()

    async def _run(self, request_id: "MessageId", request: "_Request", lane: Lane) -> None:
        request.lane = lane
        service = request.service
        answer: ServerAnswer | None = None
        try:
            if request.cancelled:
                lane.scope.cancel()
            answer = await (service.answer if request.has_room else service.turn_away)(
                request.params
            )
        except Exception:  # noqa: BLE001  one request's defect must not end the others
            _log.exception("a request could not be answered")
            answer = _DEFECT
        finally:
            self._capacity.give_back(request.size, taken=request.has_room)
            del self._under_way[request_id]
            if answer is None and self._given_up:
                answer = service.unfinished
            # Does not wait until the agent reads: a waiting task would hold a second copy of the
            # answer.
            if answer is not None and not request.withdrawn:
                self._send(request_id, answer)
            if self._idle is not None and not self._under_way:
                self._idle.set()
                self._idle = None


class _Request(Struct, eq=False):
    service: Service
    params: "Mapping[str, Json]"
    size: int
    has_room: bool
    lane: Lane | None = None
    """The cancel scope; None: the request has not begun."""
    cancelled: bool = False
    withdrawn: bool = False
    """Cancelled by the agent, which then expects no answer."""

    def cancel(self) -> None:
        self.cancelled = True
        if self.lane is not None:
            self.lane.scope.cancel()
