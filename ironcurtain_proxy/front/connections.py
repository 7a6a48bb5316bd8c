"""One connection to the front, with a limit on the head of each request.

An offer of another protocol (h2c, WebSocket) is not taken up, as HTTP allows: the parser would drop
the body of such a request, which Java's client makes of each `POST` by default.

Attacks that this stops: a program without a token opens connections and never ends a request, until
no descriptor or no memory is left for others; a body in chunks has trailers without end, or a
header behind it that its head did not have. uvicorn limits none of them.
"""

import asyncio  # noqa: TID251  a protocol of uvicorn's
import re
from collections.abc import Iterable
from typing import Final

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

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
