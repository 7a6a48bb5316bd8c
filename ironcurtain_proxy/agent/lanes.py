"""Tasks that are reused for one call after another.

A new task and cancel scope for each call cost as much as its decision. An idle lane takes the next
call at once: the call runs where its line was read, until it first has to wait. A cancelled lane
ends, and the next call gets another one.
"""

import asyncio  # noqa: TID251  tasks, see above
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio

from ironcurtain_proxy.jsonrpc.batch import Prompt

Work: TypeAlias = Callable[["Lane"], Awaitable[None]]
"""Work for a lane. It raises nothing but a cancellation."""

_MOST_IDLE: Final = 64


class Lane:
    """One task with its cancel scope."""

    __slots__ = ("_next", "_task", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        """Cancels the lane's current work."""
        self._next: Prompt[Work | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Work, idle: "list[Lane]") -> None:
        """Do the first work, then what `take` brings.

        Args:
            work: the first work.
            idle: the list that the lane joins whenever it is idle.
        """
        # Kept here: the event loop holds tasks by weak references only.
        self._task = asyncio.get_running_loop().create_task(self._run(work, idle))

    def take(self, work: Work | None) -> None:
        """Give work to an idle lane. None: end."""
        if self._next is not None:
            self._next.set_result(work)

    async def _run(self, first: Work, idle: "list[Lane]") -> None:
        loop = asyncio.get_running_loop()
        work: Work | None = first
        with self.scope:
            while work is not None:
                await work(self)
                if self.scope.cancel_called or len(idle) >= _MOST_IDLE:
                    return
                self._next = Prompt(loop=loop)
                idle.append(self)
                work = await self._next


class Lanes:
    """The lanes of one agent. The owner of this object ends them."""

    def __init__(self) -> None:
        self._idle: list[Lane] = []

    def begin(self, work: Work) -> None:
        """Do work concurrently with all other work."""
        if self._idle:
            self._idle.pop().take(work)
        else:
            Lane().begin(work, self._idle)

    def end(self) -> None:
        """End the idle lanes."""
        while self._idle:
            self._idle.pop().take(None)
