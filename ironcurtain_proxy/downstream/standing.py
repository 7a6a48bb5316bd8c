"""When the sandbox of a server stands still, and when it goes on.

From the answer of a contained call on, which may have left processes behind, the sandbox stands
still whenever nothing is under way: `sandbox.standstill`. Each message to the server lets it go on
first. After an answer it is stopped again, at once where somebody waits for that, and a moment
after a message that has no answer.

    require() ── nothing under way ──▶ stands ── a message is sent ──▶ goes on
                                          ▲                                │
                                          └── a moment after the last answer, or the last message

A person's approval of a call lifts it (`release`), until the next contained call.
"""

from typing import Final

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ironcurtain_proxy.sandbox.standstill import Standstill

_MOMENT: Final = 0.1
"""Seconds in which a server deals with a message that has no answer, such as a cancellation."""


class Standing:
    """The standstill of one process of a server, beside its conversation."""

    def __init__(self, still: Standstill | None) -> None:
        """Begin with a server that runs, or None if its processes are never stopped."""
        self._still = still
        self._is_required = False
        self._under_way = 0
        self._noticed = 0.0
        """The loop's time of the last message without an answer."""
        self._moved = anyio.Event()
        self._limiter = CapacityLimiter(1)

    def let_go_on(self) -> None:
        """Let the server go on, before something is sent to it."""
        if self._still is not None and self._is_required:
            self._still.go_on()
            self._moved.set()

    def note_notice(self) -> None:
        """Give the server a moment for what was sent and has no answer."""
        if self._is_required:
            self._noticed = anyio.current_time()

    def begin(self) -> None:
        """Begin something that the server has to run for."""
        self._under_way += 1

    def end(self) -> None:
        """End what was begun."""
        self._under_way -= 1
        if self._is_required:
            self._moved.set()

    async def require(self) -> None:
        """Stop the server now if nothing is under way, and from now on whenever nothing is."""
        if self._still is not None:
            self._is_required = True
            await self._stop()

    def release(self) -> None:
        """Let the server run between calls, until `require`."""
        self.let_go_on()
        self._is_required = False

    async def run(self) -> None:
        """Stop the server again after each message, until cancelled."""
        while self._still is not None:
            await self._moved.wait()
            self._moved = anyio.Event()
            await anyio.sleep(_MOMENT)
            await self._stop()

    async def _stop(self) -> None:
        if (left := self._noticed + _MOMENT - anyio.current_time()) > 0:
            await anyio.sleep(left)
        if self._still is None or not self._is_required or self._under_way:
            return
        # Before the thread begins: a message that is sent meanwhile takes it back.
        self._still.want()
        await run_sync(self._still.stop, limiter=self._limiter)
