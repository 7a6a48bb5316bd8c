"""The agent's requests in progress: read from lines, bounded, answered, cancelled or abandoned.

A line becomes a message, an answer or an error; only the JSON-RPC envelope is checked here.
Requests are answered concurrently, within a capacity in bytes. A call is in memory several times:
as received, as sent, as recorded. The size of one message is limited elsewhere; the capacity limits
the sum. Small calls have a separate capacity, so that large calls that wait for a reviewer do not
block them.
"""

import asyncio  # noqa: TID251  the tasks of lanes
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from msgspec import Struct

from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.jsonrpc.codec import (
    MARK,
    MessageId,
    decode,
    message_id,
    recover_id,
)
from ironcurtain_proxy.jsonrpc.pipes import Oversize
from ironcurtain_proxy.jsonrpc.sending import PromptFuture

if TYPE_CHECKING:
    from ironcurtain_proxy.model.values import Json


# --- messages


PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
_REJECTED: Final = -1
"""The code of a question that a user rejects."""
_LONGEST: Final = 1000
"""Characters of an error of the client that its server reads."""


class Message(Struct, frozen=True):
    """A request, or a notification."""

    method: str
    params: "Mapping[str, Json]"
    """The parameters; empty if there are none."""
    id: MessageId | None
    """The id of a request, or None if the message is a notification."""
    size: int
    """Bytes of its line."""


class RefusedQuestionError(AgentError):
    """The agent's client answered a question with an error."""

    def __init__(self, error: "Json") -> None:
        """Keep the client's code and words."""
        super().__init__("the agent answered with an error")
        said = error if isinstance(error, dict) else {}
        code, message = said.get("code"), said.get("message")
        self.code = code if type(code) is int else _REJECTED
        self.words = message[:_LONGEST] if isinstance(message, str) else ""


class EncodedResult(Struct, frozen=True):
    """A result that is JSON already."""

    text: bytes


class GivenAnswer(Struct, frozen=True):
    """The agent's answer to a request of ours."""

    message: "Mapping[str, Json]"


class ErrorReply(Struct, frozen=True):
    """The error that is sent back for an invalid message."""

    code: int
    text: str
    id: MessageId | None


ParsedMessage: TypeAlias = Message | GivenAnswer | ErrorReply


def read(line: bytes | Oversize) -> ParsedMessage:
    """Read one line. The agent gets an error for a fault, because it would wait for ever."""
    if not isinstance(line, bytes):
        found = recover_id(line.head, line.tail)
        return ErrorReply(
            INVALID_REQUEST, f"message of {line.size} bytes is larger than allowed", found
        )
    message = decode(line)
    if not isinstance(message, dict) and line.startswith(MARK):
        message = decode(line.removeprefix(MARK))  # .NET writes one before its first message
    if not isinstance(message, dict):
        code = INVALID_REQUEST if message.is_json else PARSE_ERROR
        return ErrorReply(code, f"invalid message: {message.reason}", message.id)
    method, params, given_id = message.get("method"), message.get("params"), message.get("id")
    if (
        type(method) is str
        and type(params) is dict
        and type(given_id) is int
        and message.get("jsonrpc") == "2.0"
    ):
        # The usual message, without further checks.
        return Message(method, params, given_id, len(line))
    return _shape(message, len(line))


def _shape(message: "dict[str, Json]", size: int) -> ParsedMessage:
    method, params, given_id = message.get("method"), message.get("params"), message.get("id")
    request_id = message_id(given_id)
    if message.get("jsonrpc") != "2.0":
        wrong = 'no "jsonrpc": "2.0"'
    elif "id" in message and request_id is None:
        wrong = "id must be a string or a number"
    elif "method" not in message and ("result" in message or "error" in message):
        return GivenAnswer(message)
    elif isinstance(method, str) and (params is None or isinstance(params, dict)):
        return Message(method, params or {}, request_id, size)
    else:
        wrong = "method must be a string and params an object"
    return ErrorReply(INVALID_REQUEST, f"invalid request: {wrong}", request_id)


# --- capacity


SMALL: Final = 64 * 1024
"""Bytes of a message that counts as small."""

_LEAST: Final = 4096
"""The least bytes that a call counts: its tasks and objects need memory, too."""

_SMALL_SUM: Final = 64 << 20
_LARGE_SUM: Final = 96 << 20
_PATIENCE: Final = 5.0
"""Seconds to wait for capacity. Nothing is read from the agent meanwhile."""


class RequestCapacity:
    """The bytes of calls in progress, counted separately for small and large calls."""

    def __init__(
        self, largest: int = _LARGE_SUM, *, on_large: Callable[[], None] = lambda: None
    ) -> None:
        """Begin empty.

        Args:
            largest: bytes of all large calls together. One alone always fits.
            on_large: called when a large call is over.
        """
        self._on_large = on_large
        self._sums = {True: _SMALL_SUM, False: largest}
        self._used = {True: 0, False: 0}
        self._turned_away = 0
        self._given_back: anyio.Event | None = None
        """Made by whoever waits for it."""

    def take(self, size: int) -> bool:
        """Reserve capacity for a call. False: there is none, and the call must be refused."""
        size = max(size, _LEAST)
        is_small = size <= SMALL
        used = self._used[is_small]
        if used and used + size > self._sums[is_small]:
            self._turned_away += size
            return False
        self._used[is_small] = used + size
        return True

    def give_back(self, size: int, *, taken: bool) -> None:
        """Release the capacity of a call."""
        size = max(size, _LEAST)
        if taken:
            self._used[size <= SMALL] -= size
        else:
            self._turned_away -= size
        if self._given_back is not None:
            self._given_back.set()
            self._given_back = None
        if size > SMALL:
            self._on_large()

    async def wait(self, size: int) -> None:
        """Wait, up to a deadline, until a large call has room in memory.

        Calls that were refused take room until they are recorded. For these there is no deadline.
        """
        with anyio.move_on_after(_PATIENCE):
            while size > SMALL and not self._fits(size):
                await self._until_given_back()
        while self._turned_away > SMALL and self._turned_away + size > self._sums[False]:
            await self._until_given_back()

    def _fits(self, size: int) -> bool:
        is_small = size <= SMALL
        used = self._used[is_small]
        return not used or used + size <= self._sums[is_small]

    async def _until_given_back(self) -> None:
        self._given_back = self._given_back or anyio.Event()
        await self._given_back.wait()


# --- requests


Work: TypeAlias = Callable[["Lane"], Awaitable[None]]
"""Work for a lane. It raises nothing but a cancellation."""

_MOST_IDLE: Final = 64


class Lane:
    """A task with its cancel scope, reused for one call after another.

    A new task and cancel scope for each call cost as much as its decision. An idle lane takes the
    next call at once: the call runs where its line was read, until it first has to wait. A
    cancelled lane ends, and the next call gets another one.
    """

    __slots__ = ("_task", "scope")

    def __init__(self, work: Work, idle: "list[PromptFuture[Work | None]]") -> None:
        """Do the first work, then what is given to the future in `idle` whenever it is idle."""
        self.scope = anyio.CancelScope()
        """Cancels the lane's current work."""
        # Kept here: the event loop holds tasks by weak references only.
        self._task = asyncio.get_running_loop().create_task(self._run(work, idle))

    async def _run(self, first: Work, idle: "list[PromptFuture[Work | None]]") -> None:
        loop = asyncio.get_running_loop()
        work: Work | None = first
        with self.scope:
            while work is not None:
                await work(self)
                if self.scope.cancel_called or len(idle) >= _MOST_IDLE:
                    return
                following: PromptFuture[Work | None] = PromptFuture(loop=loop)
                idle.append(following)
                work = await following


class Lanes:
    """The lanes of one agent. The owner of this object ends them."""

    def __init__(self) -> None:
        self._idle: list[PromptFuture[Work | None]] = []
        """What the idle lanes wait for."""

    def begin(self, work: Work) -> None:
        """Do work concurrently with all other work."""
        if self._idle:
            self._idle.pop().set_result(work)
        else:
            Lane(work, self._idle)

    def end(self) -> None:
        """End the idle lanes."""
        while self._idle:
            self._idle.pop().set_result(None)


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

    def __init__(
        self, send: Sender, capacity: RequestCapacity, note_twice: Callable[[], Awaitable[None]]
    ) -> None:
        """Begin without requests.

        Args:
            send: sends answers.
            capacity: the limit on the bytes of requests in progress.
            note_twice: records a request whose id is under way.
        """
        self._send = send
        self._capacity = capacity
        self._note_twice = note_twice
        self._under_way: dict[MessageId, _Request] = {}
        self._lanes = Lanes()
        self._given_up = False
        self._idle: anyio.Event | None = None
        """Created by the task that waits for it, once the agent has left."""

    def begin(
        self, service: Service, request_id: MessageId, params: "Mapping[str, Json]", size: int = 0
    ) -> None:
        """Answer a request concurrently with all others.

        Args:
            service: how.
            request_id: the agent's own id.
            params: the request's.
            size: bytes of its message. Without capacity for it, the request is refused.
        """
        if request_id in self._under_way:
            self._lanes.begin(partial(self._refuse_twice, request_id))
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
        self.cancel_all()
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

    async def _refuse_twice(self, request_id: MessageId, _lane: Lane) -> None:
        try:
            await self._note_twice()
        finally:
            self._send(request_id, _DUPLICATE)

    async def _run(self, request_id: MessageId, request: "_Request", lane: Lane) -> None:
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
    """The cancel scope, or None if the request has not begun."""
    cancelled: bool = False
    withdrawn: bool = False
    """Cancelled by the agent, which then expects no answer."""

    def cancel(self) -> None:
        self.cancelled = True
        if self.lane is not None:
            self.lane.scope.cancel()
