"""Requests that wait for their answer, by id.

One timer for all: a cancel scope for each deadline would cost ten times as much as the look-up, and
a timer for each as much again.
"""

import asyncio  # noqa: TID251  futures and timers, see above
import math
from typing import Generic, TypeVar

from ironcurtain_proxy.jsonrpc.batch import PromptFuture

_Answer = TypeVar("_Answer")


class Answers(Generic[_Answer]):
    """The unanswered requests."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[_Answer]] = {}
        self._last_id = 0
        self._deadlines: dict[int, float] = {}
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

    def expect(self) -> int:
        """Register a fresh id. The caller must call `wait` afterwards."""
        self._last_id += 1
        self._waiting[self._last_id] = PromptFuture(loop=asyncio.get_running_loop())
        return self._last_id

    async def wait(self, request_id: int, seconds: float) -> _Answer:
        """Wait for the answer. The id is removed afterwards in any case.

        Raises:
            TimeoutError: no answer came within `seconds`.
            Exception: the error given to `fail` or `fail_all`.
        """
        waiter = self._waiting[request_id]
        loop = waiter.get_loop()
        self._deadlines[request_id] = deadline = loop.time() + seconds
        if deadline < self._looks_at:
            self._look_again(loop, deadline)
        try:
            return await waiter
        finally:
            del self._waiting[request_id], self._deadlines[request_id]

    def forget(self, request_id: int) -> None:
        """Remove a request that could not be sent."""
        del self._waiting[request_id]

    def settle(self, request_id: int, answer: _Answer) -> bool:
        """Give an answer to its waiting task. False: no task waits for it."""
        waiter = self._waiting.get(request_id)
        if waiter is None or waiter.done():
            return False
        waiter.set_result(answer)
        return True

    def fail(self, request_id: object, error: Exception) -> bool:
        """End one wait with an error. False: no task waits for it."""
        if not isinstance(request_id, int):
            return False
        waiter = self._waiting.get(request_id)
        if waiter is None or waiter.done():
            return False
        waiter.set_exception(error)
        return True

    def fail_all(self, error: Exception) -> None:
        """End every wait with an error: no answer can come any more."""
        for waiter in list(self._waiting.values()):
            if not waiter.done():
                waiter.set_exception(error)

    def _look_again(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._looks_at = when
        loop.call_at(when, self._look, loop, when)

    def _look(self, loop: asyncio.AbstractEventLoop, planned: float) -> None:
        """End the waits whose deadline has passed, unless an earlier check replaced this one."""
        if planned != self._looks_at:
            return
        now = max(loop.time(), planned)
        passed = [one for one, deadline in self._deadlines.items() if deadline <= now]
        for request_id in passed:
            self.fail(request_id, TimeoutError())
        left = [deadline for deadline in self._deadlines.values() if deadline > now]
        self._looks_at = math.inf
        if left:
            self._look_again(loop, min(left))
