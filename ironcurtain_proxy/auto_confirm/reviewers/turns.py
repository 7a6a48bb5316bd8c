"""A priority queue for reviewers with a limited number of concurrent reviews.

The highest priority is next, and within it the longest wait.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush

import anyio


@dataclass(slots=True, order=True)
class _Waiting:
    urgency: int
    """The negative of the priority: the heap's first is its least."""
    since: datetime
    number: int
    its_turn: anyio.Event = field(default_factory=anyio.Event, compare=False)


class ReviewQueue:
    """Admits a limited number, in order."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: list[_Waiting] = []
        self._count = 0

    def __len__(self) -> int:
        """Return the number of waiting questions."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, priority: int, since: datetime) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block ends.

        Args:
            priority: higher is sooner.
            since: when it was asked, aware.
        """
        await self._take(priority, since)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, priority: int, since: datetime) -> None:
        if self._free > 0:
            # Nobody waits while a turn is free.
            self._free -= 1
            return
        self._count += 1
        waiting = _Waiting(-priority, since, self._count)
        heappush(self._waiting, waiting)
        try:
            await waiting.its_turn.wait()
        except BaseException:
            if waiting.its_turn.is_set():
                self._give_back()
            else:
                self._waiting = [one for one in self._waiting if one is not waiting]
                heapify(self._waiting)
            raise

    def _give_back(self) -> None:
        if self._waiting:
            heappop(self._waiting).its_turn.set()
        else:
            self._free += 1
