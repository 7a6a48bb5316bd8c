"""Lines sent through one pipe, each whole, and the requests that wait for their answer.

One timer serves all requests: a cancel scope for each deadline would cost ten times as much as the
look-up, and a timer for each as much again.

A record names the SHA-256 of a result as the proxy writes it. Most servers write the same bytes, so
the bytes that came are hashed on that guess, in a thread, while the result is read and written
again. Where the proxy writes other bytes, the guess is worth nothing.

The lines of one read of a pipe are a batch: their records go to the disk in one write, and their
answers in one write to each pipe. A batch begins and ends within one callback of the event loop, so
nothing waits for it.
"""

import asyncio  # noqa: TID251  futures and timers, see above
import contextlib
import logging
import math
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from hashlib import sha256
from typing import Final, Generic, Self, TypeVar

from ironcurtain_proxy.model.values import lazy

_log: Final = logging.getLogger(__name__)

_Value = TypeVar("_Value")

_set_result: Final = asyncio.Future.set_result
# Before Python 3.12, `asyncio.current_task` is a function of Python's around the other.
_OLD: Final = sys.version_info < (3, 12)
_current_task: Final = vars(asyncio.tasks)["_current_tasks"].get if _OLD else asyncio.current_task
# In C, while `loop.is_running()` is a function of Python's; `asyncio` exports it.
_running_loop: Final = asyncio._get_running_loop  # noqa: SLF001


class Batch:
    """Whether a batch is open, and the work for its end."""

    __slots__ = ("_depth", "_first", "_last", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._depth = 0
        self._first: list[Callable[[], None]] = []
        self._last: list[Callable[[], None]] = []

    def at_end(self, finish: Callable[[], None]) -> None:
        """Do work at the end of the batch, once for all calls with the same function.

        Tasks that it wakes still belong to the batch.
        """
        self._first.append(finish)

    def send_at_end(self, send: Callable[[], None]) -> None:
        """Send something after all other work of the batch."""
        self._last.append(send)

    def __enter__(self) -> None:
        """Begin a batch; an inner batch is part of the outer one."""
        self.is_open = True
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """Finish the batch, even after a failure: other tasks wait for its work."""
        while self._depth == 1 and (self._first or self._last):
            try:
                (self._first or self._last).pop(0)()
            except Exception:  # noqa: BLE001  what others have begun is finished all the same
                _log.exception("a batch could not be finished")
        self._depth -= 1
        self.is_open = self._depth > 0


class PromptFuture(asyncio.Future[_Value]):
    """A future whose task continues within `set_result`, not in the next turn of the loop.

    For callbacks of pipes, where no task is running: a task never runs inside another. A
    cancellation arrives as with any future.
    """

    _tell: Callable[..., object] | None = None
    """Continues the task that waits, in its context. Further tasks wait as for any future."""
    _context: Context

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        """Register the task that begins to wait."""
        if context is None or self._tell is not None or self.done():
            super().add_done_callback(fn, context=context)
        else:
            self._tell, self._context = fn, context

    def set_result(self, result: _Value) -> None:
        """Give the task its value, and run it until it waits again."""
        # Called for each step of each call: `super()` takes three times as long.
        _set_result(self, result)
        if self._tell is not None:
            self._go_on(self._tell)

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        """Raise in the task, and run it until it waits again."""
        super().set_exception(exception)
        if self._tell is not None:
            self._go_on(self._tell)

    def cancel(self, msg: object = None) -> bool:
        """Raise a cancellation in the task, in the next turn."""
        if not super().cancel(msg):
            return False
        tell, self._tell = self._tell, None
        if tell is not None:
            self.get_loop().call_soon(tell, self, context=self._context)
        return True

    def _go_on(self, tell: Callable[..., object]) -> None:
        self._tell = None
        loop = self.get_loop()
        if _running_loop() is loop and _current_task(loop) is None:
            # This is a callback of the loop.
            self._context.run(tell, self)
        else:
            loop.call_soon(tell, self, context=self._context)


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


# --- requests that wait for their answer

_Answer = TypeVar("_Answer")

_NOBODY: Final = (None, 0.0)


class Answers(Generic[_Answer]):
    """The unanswered requests."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[PromptFuture[_Answer], float]] = {}
        """The wait for each answer, and the time of its deadline."""
        self._last_id = 0
        self._looks_at = math.inf
        """The time of the next check for passed deadlines."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._waiting

    @property
    def only(self) -> int | None:
        """The id of the only waiting request; None if there are several or none."""
        return next(iter(self._waiting)) if len(self._waiting) == 1 else None

    def expect(self, seconds: float) -> tuple[int, Awaitable[_Answer]]:
        """Register a request.

        Returns:
            A fresh id, and its answer. Awaited, the answer raises `TimeoutError` if none came
            within `seconds`, or the error given to `fail` or `fail_all`. Whoever does not await
            it to the end calls `forget`.
        """
        loop = asyncio.get_running_loop()
        self._last_id = request_id = self._last_id + 1
        waiter: PromptFuture[_Answer] = PromptFuture(loop=loop)
        deadline = loop.time() + seconds
        self._waiting[request_id] = waiter, deadline
        if deadline < self._looks_at:
            self._look_again(loop, deadline)
        return request_id, waiter

    def forget(self, request_id: int) -> None:
        """Remove a request that could not be sent, or whose wait was cancelled."""
        self._waiting.pop(request_id, None)

    def resolve(self, request_id: int, answer: _Answer) -> bool:
        """Give an answer to its waiting task. False: no task waits for it."""
        waiter, _ = self._waiting.pop(request_id, _NOBODY)
        if waiter is None or waiter.done():
            return False
        waiter.set_result(answer)
        return True

    def fail(self, request_id: object, error: Exception) -> bool:
        """End one wait with an error. False: no task waits for it."""
        if not isinstance(request_id, int):
            return False
        waiter, _ = self._waiting.pop(request_id, _NOBODY)
        if waiter is None or waiter.done():
            return False
        waiter.set_exception(error)
        return True

    def fail_all(self, error: Exception) -> None:
        """End every wait with an error: no answer can come any more."""
        for request_id in list(self._waiting):
            self.fail(request_id, error)

    def _look_again(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._looks_at = when
        loop.call_at(when, self._look, loop, when)

    def _look(self, loop: asyncio.AbstractEventLoop, planned: float) -> None:
        """End the waits whose deadline has passed, unless an earlier check replaced this one."""
        if planned != self._looks_at:
            return
        now = max(loop.time(), planned)
        passed = [one for one, (_, deadline) in self._waiting.items() if deadline <= now]
        for request_id in passed:
            self.fail(request_id, TimeoutError())
        left = [deadline for _, deadline in self._waiting.values() if deadline > now]
        self._looks_at = math.inf
        if left:
            self._look_again(loop, min(left))


# --- guessed digests


LONG_RESULT: Final = 1 << 20
"""Bytes of a line from which on a thread is worth its cost."""

_EDGE: Final = 128
_ENVELOPE: Final = rb'"jsonrpc":"2\.0"|"id":(?:[0-9]{1,18}|"[^"\\]{0,40}")'
_BEFORE: Final = lazy(rb'\{(?:(?:%b),)*"result":' % _ENVELOPE)
_AFTER: Final = lazy(rb"(?:,(?:%b))*\}\s*\Z" % _ENVELOPE)


class GuessedDigest:
    """The digest of the bytes between the envelope's members, on its way."""

    def __init__(self, line: bytes, start: int, end: int) -> None:
        """Begin to hash a part of a line."""
        self._line, self._start, self._end = line, start, end
        self._digest = ""
        self._thread = threading.Thread(target=self._hash, name="digest", daemon=True)
        self._thread.start()

    def of(self, written: bytes) -> str | None:
        """Return the digest in hexadecimal, if these are the bytes that were hashed; else None.

        Blocks for some milliseconds.
        """
        self._thread.join()
        is_it = len(written) == self._end - self._start
        return self._digest if is_it and self._line.startswith(written, self._start) else None

    def _hash(self) -> None:
        # Without the lock of the interpreter, which the other thread needs meanwhile.
        self._digest = sha256(memoryview(self._line)[self._start : self._end]).hexdigest()


def guess_digest(line: bytes) -> GuessedDigest | None:
    """Begin to hash the result in a long line; None: it is short, or does not look like an answer.

    Args:
        line: as its server wrote it, without its newline.
    """
    if len(line) < LONG_RESULT:
        return None
    before = _BEFORE.match(line, 0, _EDGE)
    after = _AFTER.search(line, len(line) - _EDGE)
    if before is None or after is None:
        return None
    return GuessedDigest(line, before.end(), after.start())
