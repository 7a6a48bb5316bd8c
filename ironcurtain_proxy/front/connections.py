"""One connection to the front: the limit on the head of each request, and streams of messages.

An offer of another protocol (h2c, WebSocket) is not taken up, as HTTP allows: the parser would drop
the body of such a request, which Java's client makes of each `POST` by default.

Attacks that this stops: a program without a token opens connections and never ends a request, until
no descriptor or no memory is left for others; a body in chunks has trailers without end, or a
header behind it that its head did not have. uvicorn limits none of them.

A stream holds the messages for one client, numbered and in their order, sent as server-sent events.
Each has an id, by which a client asks for what it missed when its connection broke; so much is kept
for it. From 2025-11-25 on a stream begins with an event that says nothing, so that there is an id
from the start. Nothing here knows what a message says.
"""

import asyncio  # noqa: TID251  a protocol of uvicorn's
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ironcurtain_proxy.front.guard import JSON

# --- connections

WHOLE: Final = "ironcurtain.whole"
"""The extension of ASGI that a request has whose whole body is one message, which is there."""

_SLOWEST: Final = 10.0
"""Seconds for the head of a request, with a small body."""
_LARGEST: Final = 1 << 16
_SMALL: Final = 1 << 14
"""Bytes of a body that is there before its request is handed on: a turn of the event loop less."""
_DIGITS: Final = 10
_LONGEST: Final = 18
_END: Final = b"\r\n\r\n"
_INSIDE_END: Final = len(_END) - 1
_OFFER: Final = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_NOT_TAKEN_UP: Final = b"\r\nignored:"
"""In place of an offer."""


class JoinedWrites(asyncio.Transport):
    """A transport on which the head of an answer leaves with its body, in one packet.

    uvicorn writes them one after the other. Bytes that nothing follows leave at the end of the turn
    of the event loop.
    """

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._inner = inner
        self._loop = loop
        self._kept = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, together with what was kept."""
        kept, self._kept = self._kept, b""
        if kept:
            self._inner.write(kept + data)
        elif data:
            self._kept = bytes(data)
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send what was kept, and close."""
        self._flush()
        self._inner.close()

    def is_closing(self) -> bool:
        """Return whether it is closed, or about to be."""
        return self._inner.is_closing()

    def _flush(self) -> None:
        kept, self._kept = self._kept, b""
        if kept:
            self._inner.write(kept)


class FrontConnection(HttpToolsProtocol):
    """One connection."""

    _waiting: asyncio.TimerHandle | None = None
    """The timer for the head of a request, or None if no head is incomplete."""
    _size = 0
    """Bytes since the last ones that belong to a body: of a head, or of what a body in chunks has
    besides (lengths, extensions, trailers)."""
    _head = b""
    """The beginning of a head."""
    _left: int | None = None
    """Bytes of the body that are still to come; `None`: it comes in chunks."""
    _is_in_body = False
    _is_content = False
    """Whether the bytes that came last hold a part of a body."""
    _held: ASGI3Application | None = None
    """The application of a request whose small body is incomplete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head. Called by the event loop."""
        super().connection_made(transport)
        self.transport = JoinedWrites(transport, self.loop)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes; close the connection if a head is too long. Called by the event loop.

        The parser gets each head whole, and no byte of another request with it.
        """
        at, steps = 0, _INSIDE_END
        while at < len(data) and not self.transport.is_closing():
            if not self._is_in_body:
                at = self._take_head(data, at)
                continue
            if self._left is not None:
                end = min(len(data), at + self._left)
                self._left -= end - at
            elif steps:
                # The end of a body in chunks may have begun in the bytes before these.
                end, steps = at + 1, steps - 1
            else:
                found = data.find(_END, at)
                end = len(data) if found < 0 else found + len(_END)
            self._feed(data[at:end])
            at = end

    def _take_head(self, data: bytes, at: int) -> int:
        """Take the bytes of a head, and hand it on if it is whole. Returns where it ends."""
        before = max(0, len(self._head) - _INSIDE_END)
        room = _LARGEST + len(_END) - len(self._head)
        taken = self._head + data[at : at + room]
        found = taken.find(_END, before)
        if found < 0:
            self._wait()
            self._unset_keepalive_if_required()
            self._head = taken
            if len(taken) > _LARGEST:
                self.transport.close()
            return at + room
        end = found + len(_END)
        self._head, length = b"", len(self._head)
        self._feed(_OFFER.sub(_NOT_TAKEN_UP, taken[:end]))
        return at + end - length

    def _feed(self, data: bytes) -> None:
        self._is_content = False
        super().data_received(data)
        if self._is_content:
            self._size = 0
        elif self._is_in_body or self._waiting is not None:
            self._size += len(data)
            if self._size > _LARGEST:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer. Called by the event loop."""
        self._wait_no_more()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start the timer of a head. Called by the parser."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """Stop the timer, unless a small body follows. Called by the parser."""
        self._is_in_body = True
        said = dict(self.headers)
        length = said.get(b"content-length", b"")
        is_counted = b"transfer-encoding" not in said and length.isdigit()
        self._left = int(length) if is_counted and len(length) <= _LONGEST else None
        super().on_headers_complete()
        # What follows are trailers, which say nothing of the request.
        self.headers = []
        if self._held is None:
            self._wait_no_more()

    def on_body(self, body: bytes) -> None:
        """Note a part of the body. Called by the parser."""
        self._is_content = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a request. Called by the parser."""
        self._is_in_body = False
        super().on_message_complete()
        held, self._held = self._held, None
        if held is not None:
            self._wait_no_more()
            self.cycle.scope["extensions"] = {WHOLE: {}}
            super()._start_asgi_task(self.cycle, held)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Hand a request on, or hold it until its small body is there."""
        if (
            cycle.more_body
            and not cycle.waiting_for_100_continue
            and _is_small(cycle.scope["headers"])
        ):
            self._held = app
        else:
            super()._start_asgi_task(cycle, app)

    def _wait(self) -> None:
        if self._waiting is None:
            self._size = 0
            self._waiting = self.loop.call_later(_SLOWEST, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def _is_small(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a body of a known, small length follows."""
    said = next((value for name, value in headers if name == b"content-length"), b"")
    return said.isdigit() and len(said) < _DIGITS and int(said) <= _SMALL


# --- streams of messages

_KEPT: Final = 256 * 1024
_KEPT_EVENTS: Final = 256
"""The most sent events that are kept, for a connection that broke meanwhile."""


class Stream:
    """The messages of one request, or those of no request."""

    def __init__(self, name: str, on_taken: Callable[[], None]) -> None:
        """Begin without events.

        Args:
            name: the start of the ids of events, unique in the session.
            on_taken: called when a message was taken.
        """
        self.name = name
        self.is_over = False
        """Whether the last message has come."""
        self.unsent = 0
        """Bytes of messages that no connection has taken."""
        self._on_taken = on_taken
        self._lines: deque[bytes] = deque()
        self._first = 1
        """The number of the first kept line."""
        self._sent = 0
        self._kept = 0
        self._news = anyio.Event()
        self._follower: StreamReader | None = None

    @property
    def sent(self) -> int:
        """The number of the last message that was taken."""
        return self._sent

    @property
    def last(self) -> int:
        """The number of the last message that came."""
        return self._first + len(self._lines) - 1

    @property
    def is_followed(self) -> bool:
        """Whether a connection takes its messages."""
        return self._follower is not None

    def put(self, line: bytes, *, is_last: bool = False) -> None:
        """Add a message."""
        self._lines.append(line)
        self._kept += len(line)
        self.unsent += len(line)
        self.is_over = self.is_over or is_last
        self._wake()

    def end(self) -> None:
        """Note that no more messages come."""
        self.is_over = True
        self._wake()

    def shed(self) -> None:
        """Drop all messages, and end: nobody takes them."""
        self._first += len(self._lines)
        self._lines.clear()
        self._kept = self.unsent = 0
        self._sent = self._first - 1
        self.end()

    def follow(self, after: int = 0) -> "StreamReader":
        """Take messages from now on, in place of the previous follower.

        Args:
            after: the number of the last message that the client has. One that was never given out
                counts for nothing: what was not sent follows.
        """
        after = after if after <= self.last else self._sent
        self._follower = StreamReader(self, max(after + 1, self._first))
        self._wake()
        return self._follower

    def end_early(self) -> None:
        """Send the client away, which comes back for the rest. Not one that could not."""
        if self._follower is not None and self._follower.comes_back:
            self._follower = None
            self._wake()

    def leave(self, follower: "StreamReader") -> None:
        """Stop taking messages."""
        self._release(follower)
        if self._follower is follower:
            self._follower = None

    async def take(self, follower: "StreamReader") -> bytes | None:
        """Return the next message.

        It is None if there is no more, or another follower takes them now.
        """
        self._release(follower)
        while self._follower is follower:
            follower.number = max(follower.number, self._first)
            at = follower.number - self._first
            if at < len(self._lines):
                line = self._lines[at]
                follower.number += 1
                return line
            if self.is_over:
                return None
            self._news = anyio.Event()
            await self._news.wait()
        return None

    def _release(self, follower: "StreamReader") -> None:
        """Note that a message has gone out: who took it asks for the next, or for no more."""
        number = follower.number - 1
        if number <= self._sent:
            return
        for gone in range(self._sent + 1, number + 1):
            self.unsent -= len(self._lines[gone - self._first])
        self._sent = number
        while self._first <= self._sent and (self._kept > _KEPT or len(self._lines) > _KEPT_EVENTS):
            self._kept -= len(self._lines.popleft())
            self._first += 1
        self._on_taken()

    def _wake(self) -> None:
        self._news.set()


class StreamReader:
    """One connection that takes the messages of a stream."""

    def __init__(self, stream: Stream, number: int) -> None:
        self._stream = stream
        self.number = number
        """The number of the next message."""
        self.comes_back = False
        """Whether its client asks for the rest of a stream that ends before the answer."""

    async def next(self) -> bytes | None:
        """Return the next message, or None if there is no more."""
        return await self._stream.take(self)

    def leave(self) -> None:
        """Stop taking messages."""
        self._stream.leave(self)


# --- events


MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
BEAT: Final = b": still here\n\n"
"""A comment, which shows that the connection is alive."""
_BEAT: Final = 15.0
"""Seconds after which it is sent."""
_PIECE: Final = 1 << 16
_RETRY: Final = 1000
_PRIMED: Final = "2025-11-25"
"""The version from which clients take an event without data."""
_ID: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)


def event_place(text: str) -> tuple[str, int] | None:
    """Return the stream and the number in the id of an event.

    It is None if the id is none of the front's.
    """
    found = _ID.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def joined(headers: Headers, name: str) -> str:
    """Return what all headers of a name say: they are one list (RFC 9110, 5.3)."""
    return ",".join(headers.getlist(name)).lower()


def accepts(headers: Headers, kind: str) -> bool:
    """Return whether a client takes answers of a kind."""
    said = joined(headers, "accept") or "*/*"
    kinds = {one.partition(";")[0].strip() for one in said.split(",")}
    return bool(kinds & {kind, f"{kind.partition('/')[0]}/*", "*/*"})


def prefers_events(headers: Headers) -> bool:
    """Return whether a client names event streams before JSON.

    Without a preference it gets JSON.
    """
    said = joined(headers, "accept")
    return -1 < said.find(MEDIA_TYPE) < said.find(JSON)


def event_stream(
    stream: Stream,
    follower: StreamReader,
    version: str,
    headers: dict[str, str],
    first: bytes | None = None,
) -> StreamingResponse:
    """Return the response that carries the messages of a stream.

    Args:
        stream: the stream.
        follower: who takes them.
        version: of the protocol, as it was agreed.
        headers: further ones of the answer.
        first: a message that was taken already.
    """
    follower.comes_back = version >= _PRIMED
    return StreamingResponse(
        _events(stream, follower, first, is_primed=follower.comes_back),
        media_type=MEDIA_TYPE,
        headers={**HEADERS, **headers},
    )


def whole_answer(line: bytes, follower: StreamReader) -> Response:
    """Return the response of one message, as JSON."""
    if len(line) <= _PIECE:
        follower.leave()
        return Response(line, media_type=JSON)

    async def send() -> AsyncIterator[bytes]:
        try:
            for part in _parts(line):
                yield part
        finally:
            follower.leave()

    return StreamingResponse(send(), media_type=JSON, headers={"Content-Length": str(len(line))})


def _parts(line: bytes) -> Iterator[bytes]:
    """Yield a message in pieces, each of which waits for the client.

    A whole one would be kept twice.
    """
    for at in range(0, len(line), _PIECE):
        yield line[at : at + _PIECE]


async def _events(
    stream: Stream, follower: StreamReader, first: bytes | None, *, is_primed: bool
) -> AsyncIterator[bytes]:
    last = follower.number - 1 - (first is not None)
    try:
        if is_primed:
            yield f"id: {stream.name}/{last}\nretry: {_RETRY}\ndata: \n\n".encode()
        async for line in lines_of(follower, first):
            if line is None:
                yield BEAT
                continue
            head = f"id: {stream.name}/{follower.number - 1}\nevent: message\ndata: ".encode()
            for part in _parts(head + line + b"\n\n"):
                yield part
    finally:
        follower.leave()


async def lines_of(follower: StreamReader, first: bytes | None) -> AsyncIterator[bytes | None]:
    """Yield the messages of a stream; `None` where none has come for a while.

    Args:
        follower: who takes them.
        first: a message that was taken already.
    """
    line = first
    while True:
        if line is None:
            with anyio.move_on_after(_BEAT) as waited:
                line = await follower.next()
            if waited.cancelled_caught:
                yield None
                continue
            if line is None:
                return
        yield line
        line = None
