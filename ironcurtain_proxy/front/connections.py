"""One connection to the front, as uvicorn has it, with a limit on the head of each request.

An offer of another protocol (h2c, WebSocket) is not taken up, as HTTP allows: the parser would drop
the body of such a request, which Java's client makes of each `POST` by default.

Attack that this stops: a program without a token that opens connections and never comes to the
point, until no descriptor or no memory is left for others. uvicorn limits neither.
"""

import asyncio  # noqa: TID251  a protocol of uvicorn's
import re
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_SLOWEST: Final = 10.0
"""Seconds for the head of a request."""
_LARGEST: Final = 1 << 16
_OFFER: Final = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class FrontConnection(HttpToolsProtocol):
    """One connection."""

    _waiting: asyncio.TimerHandle | None = None
    """There while the head of a request is not complete."""
    _size = 0
    _is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From the event loop: it is connected."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """From the event loop: bytes have arrived."""
        if not self._is_in_body:
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(b"\r\nx-not-taken-up:", head) + end + rest
        super().data_received(data)
        if self._waiting is not None:
            self._size += len(data)
            if self._size > _LARGEST:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """From the event loop: it is gone."""
        self._wait_no_more()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """From the parser: a request begins."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """From the parser: its head is complete."""
        self._wait_no_more()
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """From the parser: a request is whole."""
        self._is_in_body = False
        super().on_message_complete()

    def _wait(self) -> None:
        if self._waiting is None:
            self._size = 0
            self._waiting = self.loop.call_later(_SLOWEST, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
