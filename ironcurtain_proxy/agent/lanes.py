"""Tasks that do one piece of work after another.

A task and a scope for each call cost as much as its decision. A lane that is idle takes the next
call at once: the call runs where its line was read, up to where it first has to wait. What has been
cancelled is done with, scope and all; the next piece of work has another lane.
"""

import asyncio  # noqa: TID251  tasks, see above
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio

from ironcurtain_proxy.jsonrpc.batch import Prompt

Work: TypeAlias = Callable[["Lane"], Awaitable[None]]
"""Must not raise, but for a cancellation."""

_MOST_IDLE: Final = 64


class Lane:
    """One task, and the scope that all it does is in."""

    __slots__ = ("_next", "_task", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        """Cancels what the lane is doing."""
        self._next: Prompt[Work | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Work, idle: "list[Lane]") -> None:
        """Do something, and then what `take` brings.

        Args:
            work: what comes first.
            idle: where the lane puts itself whenever it has nothing to do.
        """
        # Kept here, for the event loop keeps no task alive.
        self._task = asyncio.get_running_loop().create_task(self._run(work, idle))

    def take(self, work: Work | None) -> None:
        """Do something, where the lane is idle. None: end."""
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
                self._next = Prompt(loop)
                idle.append(self)
                work = await self._next


class Lanes:
    """The lanes of one agent. Whoever makes this ends them."""

    def __init__(self) -> None:
        self._idle: list[Lane] = []

    def begin(self, work: Work) -> None:
        """Do something, beside all else."""
        if self._idle:
            self._idle.pop().take(work)
        else:
            Lane().begin(work, self._idle)

    def end(self) -> None:
        """End those that have nothing to do."""
        while self._idle:
            self._idle.pop().take(None)
