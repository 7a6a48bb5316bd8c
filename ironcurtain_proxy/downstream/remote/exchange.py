"""The messages of one session over HTTP: what is sent, and what has arrived.

`Inbound` holds received messages as the lines that a conversation reads. It knows how many bytes
may wait, and not the meaning of a line: the reader of a stream waits in `put` while the
conversation does not keep up, so the stream is not read meanwhile. `Sending` sends each message as
an HTTP request of its own. A stream is read until it has brought the answer (`is_answer_to`); a
server may number its own requests as we do.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from ironcurtain_proxy.downstream.remote.requests import Requester
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.jsonrpc.codec import Malformed, MessageId, answer_id, decode, recover_id
from ironcurtain_proxy.jsonrpc.pipes import Lost, Oversize, StreamEnded

_QUEUED: Final = 256
_QUEUED_BYTES: Final = 8 << 20


class Inbound:
    """Implements `jsonrpc.wire.LineSource`."""

    def __init__(self) -> None:
        self.why = "its connection was closed"
        """The reason why no more messages can come, in words."""
        self._lines: deque[bytes | Lost | StreamEnded] = deque()
        self._bytes = 0
        self._taker: Callable[[bytes], bool] | None = None
        self._is_waiting = False
        self._ended = False
        self._arrived = anyio.Event()
        self._taken = anyio.Event()

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each line to a function first, while `receive` waits and none is queued."""
        self._taker = taker

    async def receive(self) -> bytes | Oversize | Lost | StreamEnded | None:
        """The next line, or None when no more can come."""
        while not self._lines:
            if self._ended:
                return None
            self._arrived = anyio.Event()
            self._is_waiting = True
            try:
                await self._arrived.wait()
            finally:
                self._is_waiting = False
        line = self._lines.popleft()
        self._bytes -= len(line) if isinstance(line, bytes) else 0
        self._taken.set()
        return line

    def close(self) -> None:
        """Take in no more."""
        self._ended = True
        self._taken.set()

    async def put(self, line: bytes) -> None:
        """A line has arrived."""
        if self._is_waiting and not self._lines and self._taker is not None and self._taker(line):
            return
        self._append(line)
        while not self._ended and (len(self._lines) > _QUEUED or self._bytes > _QUEUED_BYTES):
            self._taken = anyio.Event()
            await self._taken.wait()

    def lose(self, request_id: MessageId, error: DownstreamError) -> None:
        """A request gets no answer. Nothing happens if it has got one."""
        self._append(Lost(request_id, error))

    def note_stream_ended(self) -> None:
        """The stream of a request was ended before its answer."""
        self._append(StreamEnded())

    def end(self, why: str) -> None:
        """No more can come."""
        if not self._ended:
            self.why, self._ended = why, True
        self._arrived.set()
        self._taken.set()

    def _append(self, line: bytes | Lost | StreamEnded) -> None:
        self._lines.append(line)
        self._bytes += len(line) if isinstance(line, bytes) else 0
        self._arrived.set()


REPLIES_AT_ONCE: Final = 16
"""The most answers to the server's own requests that are sent at a time."""

REQUESTS_AT_ONCE: Final = 160
"""The most requests of ours that a server works on at a time. The others wait for their turn, and
leave connections for cancellations and answers."""

_METHOD: Final = b'"method":'
_HEAD: Final = 128
"""Bytes of a line in which the proxy writes the method, if there is one."""


class Sending(ABC):
    """Implements `jsonrpc.wire.LineSink`; received lines are in `inbound`."""

    def __init__(self, requester: Requester, url: str, inbound: Inbound) -> None:
        self._requester = requester
        self._url = url
        self._inbound = inbound
        self._unsent: list[bytes] = []
        self._replies: deque[bytes] = deque()
        self._replying = 0
        self._backlog = 0
        self._group: TaskGroup | None = None
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed

    @property
    def backlog(self) -> int:
        """Bytes of messages that the server has not begun to answer."""
        return self._backlog

    def write(self, line: bytes) -> None:
        """Send a message concurrently with all others."""
        if self._closed:
            raise BrokenPipeError("the session is over")
        self._backlog += len(line)
        if self._group is None:
            self._unsent.append(line)
        elif _METHOD in line[:_HEAD]:
            self._group.start_soon(self._deliver, line)
        else:
            self._reply(line, self._group)

    def _reply(self, line: bytes, group: TaskGroup) -> None:
        # Attack: a server that asks thousands of things at once, each of which would be a request
        # that waits for a connection.
        self._replies.append(line)
        if self._replying < REPLIES_AT_ONCE:
            self._replying += 1
            group.start_soon(self._deliver_replies)

    async def _deliver_replies(self) -> None:
        try:
            while self._replies:
                await self._deliver(self._replies.popleft())
        finally:
            self._replying -= 1

    def abort(self) -> None:
        """Stop sending."""
        self._closed = True

    async def run(self) -> None:
        """Send messages until cancelled, or until the greeting needs the older transport."""
        async with anyio.create_task_group() as self._group:
            for line in self._unsent:
                self._group.start_soon(self._deliver, line)
            self._unsent = []
            await self._receive()

    async def _receive(self) -> None:
        await anyio.sleep_forever()

    @abstractmethod
    async def _deliver(self, line: bytes) -> None:
        """Send one message, and subtract it from the backlog."""


_SHORT: Final = 64 * 1024
_START: Final = 128
_EDGE: Final = 4096


class _Envelope(Struct):
    id: int | str | float | None = None
    method: Raw | None = None


_envelope: Final = Decoder(_Envelope).decode


def is_answer_to(line: bytes, request_id: MessageId) -> bool:
    """Whether a line answers this request. A long one is looked at from both ends."""
    if len(line) > _SHORT:
        # Of a request or notification; a result holds the methods of the questions in it.
        is_request = b'"method"' in line[:_START].partition(b'"result"')[0]
        return not is_request and answer_id(recover_id(line[:_EDGE], line[-_EDGE:])) == request_id
    try:
        found = _envelope(line)
    except (MsgspecError, ValueError, RecursionError):
        return _is_odd_answer(line, request_id)
    return found.method is None and answer_id(found.id) == request_id


def _is_odd_answer(line: bytes, request_id: MessageId) -> bool:
    message = decode(line)
    if isinstance(message, Malformed):
        return answer_id(message.id) == request_id
    return "method" not in message and answer_id(message.get("id")) == request_id
