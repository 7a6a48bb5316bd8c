"""Requests that wait for their answer, by id, and digests of long results.

One timer serves all requests: a cancel scope for each deadline would cost ten times as much as the
look-up, and a timer for each as much again.

A record names the SHA-256 of a result as the proxy writes it. Most servers write the same bytes, so
the bytes that came are hashed on that guess, in a thread, while the result is read and written
again. Where the proxy writes other bytes, the guess is worth nothing.
"""

import asyncio  # noqa: TID251  futures and timers, see above
import math
import re
import threading
from collections.abc import Awaitable
from hashlib import sha256
from typing import Final, Generic, TypeVar

from ironcurtain_proxy.jsonrpc.batch import PromptFuture

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
_BEFORE: Final = re.compile(rb'\{(?:(?:%b),)*"result":' % _ENVELOPE)
_AFTER: Final = re.compile(rb"(?:,(?:%b))*\}\s*\Z" % _ENVELOPE)


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
