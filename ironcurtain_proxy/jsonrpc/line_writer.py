"""Lines sent through one pipe, each whole and in order."""

import asyncio  # noqa: TID251  protocols and transports, as in `pipes`
import contextlib
from collections import deque
from typing import Final

from ironcurtain_proxy.jsonrpc.batch import Batch

_KEPT: Final = 1 << 14
"""Bytes of a line that waits for the end of its batch."""

_PIECE: Final = 1 << 20
"""The bytes that a pipe takes at once. A transport copies the rest again and again, so it never
gets more."""

_CLOSED: Final = "the pipe is closed"

_LOOK_AGAIN: Final = 0.01
"""Seconds. asyncio reports space in a pipe before the rest is written."""


class LineWriter(asyncio.Protocol):
    """Lines sent through one pipe, each whole and in the order of the calls.

    Made by `pipes.open_writer`.
    """

    def __init__(self, batch: Batch | None = None) -> None:
        self._batch = batch
        self._transport: asyncio.WriteTransport | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._congested = False
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._left: deque[memoryview] = deque()
        """The parts that follow those given to the transport."""
        self._left_bytes = 0
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet taken by the other side."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + self._kept_bytes + self._left_bytes

    def write(self, line: bytes) -> None:
        """Accept a line (with its newline) without waiting; the caller watches `backlog`.

        Raises:
            BrokenPipeError: the other side has closed the pipe, or we have.
        """
        batch, transport, size = self._batch, self._transport, len(line)
        if transport is None or transport.is_closing():
            raise BrokenPipeError(_CLOSED)
        if size >= _KEPT:
            self.write_parts(line)
        elif batch is not None and batch.is_open:
            if not self._kept:
                batch.send_at_end(self._send_kept)
            self._kept.append(line)
            self._kept_bytes += size
        elif self._kept or self._left:
            self.write_parts(line)
        else:
            transport.write(line)

    def write_parts(self, *parts: bytes) -> None:
        """Accept a line, in as many parts as it was made of, and send it before the batch ends.

        Raises:
            BrokenPipeError: the other side has closed the pipe, or we have.
        """
        if self._transport is None or self._transport.is_closing():
            raise BrokenPipeError(_CLOSED)
        if self._kept:
            self._send_kept()
        for part in parts:
            self._pass_on(part)

    async def send(self, line: bytes) -> None:
        """Accept a line (with its newline) and wait until the next can be accepted.

        The line goes out whole even if the wait is cancelled.

        Raises:
            BrokenPipeError: the other side has closed the pipe, or we have.
        """
        self.write(line)
        await self.until_uncongested()

    async def until_uncongested(self) -> None:
        """Wait until the next line can be accepted.

        Raises:
            BrokenPipeError: the pipe was closed meanwhile.
        """
        if self._congested:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)

    async def flush(self) -> None:
        """Wait until all accepted lines are in the pipe, or the pipe is closed."""
        while self.backlog and not self.is_closed:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(_LOOK_AGAIN)

    async def until_closed(self) -> None:
        """Wait until the pipe is closed, for example because the other side has gone."""
        await self._closed.wait()

    async def drain_and_close(self) -> None:
        """Send all accepted lines, then close. Waits while the other side does not read."""
        self._send_kept()
        with contextlib.suppress(BrokenPipeError):
            while self._left and not self.is_closed:
                await self.until_uncongested()
        if self._transport is not None:
            self._transport.close()
        await self._closed.wait()

    def abort(self) -> None:
        """Close now; unsent lines are lost."""
        # A transport that is closing already, with nothing left to send, must not be aborted: it
        # would close its pipe twice, and fail.
        if not self.is_closed or self.backlog:
            self._abort()

    def _send_kept(self) -> None:
        """Send the lines that a batch kept back."""
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        if kept and self._transport is not None and not self._transport.is_closing():
            self._pass_on(b"".join(kept))

    def _pass_on(self, data: bytes) -> None:
        """Give the transport as many bytes as it can write soon."""
        if self._transport is None or not (self._left or len(data) > _PIECE):
            if self._transport is not None:
                self._transport.write(data)
            return
        view = memoryview(data)
        self._left += [view[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        self._left_bytes += len(data)
        self._go_on()

    def _go_on(self) -> None:
        """Give the rest to the transport, as far as the other side reads."""
        while self._left and not self._congested and not self.is_closed:
            piece = self._left.popleft()
            self._left_bytes -= len(piece)
            if self._transport is not None:
                self._transport.write(piece)

    def _forget_left(self) -> None:
        self._left.clear()
        self._left_bytes = 0

    def _abort(self) -> None:
        self._forget_left()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the pipe. Called by the event loop."""
        if not isinstance(transport, asyncio.WriteTransport):
            raise TypeError("a LineWriter writes")
        self._transport = transport

    def pause_writing(self) -> None:
        """Stop writing while the other side reads too slowly. Called by the event loop."""
        self._congested = True

    def resume_writing(self) -> None:
        """Write again. Called by the event loop."""
        self._congested = False
        self._go_on()
        if self._congested:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """Note the end of the pipe. Called by the event loop."""
        self._transport = None
        self._forget_left()
        self._closed.set()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(BrokenPipeError(_CLOSED))
