"""The capacity for calls in progress, in bytes.

A call is in memory several times: as received, as sent, as recorded. The size of one message is
limited elsewhere; this limits the sum. Small calls have a separate capacity, so that large calls
that wait for a reviewer do not block them.
"""

from collections.abc import Callable
from typing import Final

import anyio

SMALL: Final = 64 * 1024
"""Bytes of a message that counts as small."""

_LEAST: Final = 4096
"""The least bytes that a call counts: its tasks and objects need memory, too."""

_SMALL_SUM: Final = 64 << 20
_LARGE_SUM: Final = 96 << 20
_PATIENCE: Final = 5.0
"""Seconds to wait for capacity. Nothing is read from the agent meanwhile."""


class RequestCapacity:
    """The bytes of calls in progress, counted separately for small and large calls."""

    def __init__(
        self, largest: int = _LARGE_SUM, *, on_large: Callable[[], None] = lambda: None
    ) -> None:
        """Begin empty.

        Args:
            largest: bytes of all large calls together. One alone always fits.
            on_large: called when a large call is over.
        """
        self._on_large = on_large
        self._sums = {True: _SMALL_SUM, False: largest}
        self._used = {True: 0, False: 0}
        self._turned_away = 0
        self._given_back: anyio.Event | None = None
        """Made by whoever waits for it."""

    def take(self, size: int) -> bool:
        """Reserve capacity for a call. False: there is none, and the call must be refused."""
        size = max(size, _LEAST)
        is_small = size <= SMALL
        used = self._used[is_small]
        if used and used + size > self._sums[is_small]:
            self._turned_away += size
            return False
        self._used[is_small] = used + size
        return True

    def give_back(self, size: int, *, taken: bool) -> None:
        """Release the capacity of a call."""
        size = max(size, _LEAST)
        if taken:
            self._used[size <= SMALL] -= size
        else:
            self._turned_away -= size
        if self._given_back is not None:
            self._given_back.set()
            self._given_back = None
        if size > SMALL:
            self._on_large()

    async def wait(self, size: int) -> None:
        """Wait, up to a deadline, for capacity for a large call.

        Refused calls count until they are recorded: they are in memory until then.
        """
        with anyio.move_on_after(_PATIENCE):
            while size > SMALL and not self._fits(size):
                await self._until_given_back()
        while self._turned_away > SMALL and self._turned_away + size > self._sums[False]:
            await self._until_given_back()

    def _fits(self, size: int) -> bool:
        is_small = size <= SMALL
        used = self._used[is_small]
        return not used or used + size <= self._sums[is_small]

    async def _until_given_back(self) -> None:
        self._given_back = self._given_back or anyio.Event()
        await self._given_back.wait()
