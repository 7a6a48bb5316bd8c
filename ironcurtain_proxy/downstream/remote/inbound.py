"""The messages that arrive over HTTP, as the lines that a conversation reads.

Knows how many bytes may wait; does not know the meaning of a line. The reader of a stream waits in
`put` while the conversation does not keep up, so the stream is not read meanwhile.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.jsonrpc.codec import MessageId
from ironcurtain_proxy.jsonrpc.pipes import Oversize
from ironcurtain_proxy.jsonrpc.wire import Lost, StreamEnded

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
