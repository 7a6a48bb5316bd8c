"""Memory of large messages goes back to the system once they are gone."""

import ctypes
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

_QUIET: Final = 0.25
"""Seconds without a large message."""


class Trimming:
    """Gives back what is free when no large message has come for a while.

    glibc keeps what is freed: three copies of one result of 10 MiB stayed resident for as long as
    the proxy ran. To have each returned at once costs a fifth of the time of a large result, for
    its next one is made of fresh pages. Other allocators are left alone.
    """

    def __init__(self) -> None:
        """Nothing large has come."""
        self._large = anyio.Event()
        self._trim: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def note_large(self) -> None:
        """A large message has come."""
        self._large.set()

    async def run(self) -> None:
        """Trim until cancelled."""
        while self._trim is not None:
            await self._large.wait()
            while self._large.is_set():
                self._large = anyio.Event()
                with anyio.move_on_after(_QUIET):
                    await self._large.wait()
            await anyio.to_thread.run_sync(self._trim, 0)
