"""Batches: the lines of one read of a pipe, handled together.

Their records go to the disk in one write, and their answers in one write to each pipe. A batch
begins and ends within one callback of the event loop, so nothing waits for it.
"""

import asyncio  # noqa: TID251  a future, see `PromptFuture`
import logging
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Final, Self, TypeVar

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
