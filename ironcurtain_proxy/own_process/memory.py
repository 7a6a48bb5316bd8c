"""Returning the memory of large messages to the system."""

import ctypes
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

_QUIET: Final = 0.25
"""Seconds without a large message after which memory is returned."""


class Trimming:
    """Returns free memory when no large message has come for a while.

    glibc keeps freed memory: three copies of a 10 MiB result stayed resident for as long as the
    proxy ran. Returning each at once costs a fifth of the time of a large result, because the
    next one needs fresh pages. Other allocators are left alone.
    """

    def __init__(self) -> None:
        """Begin with no large message seen."""
        self._large = anyio.Event()
        self._trim: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def note_large(self) -> None:
        """Note that a large message has come."""
        self._large.set()

    async def run(self) -> None:
        """Return free memory until cancelled."""
        while self._trim is not None:
            await self._large.wait()
            while self._large.is_set():
                self._large = anyio.Event()
                with anyio.move_on_after(_QUIET):
                    await self._large.wait()
            await anyio.to_thread.run_sync(self._trim, 0)
