"""The return of the memory of large messages to the system."""

import ctypes
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

_QUIET: Final = 0.25
"""Seconds without a large message after which memory is returned."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""The numbers of glibc's parameters, from `malloc.h`."""
_LARGEST_REUSED: Final = 32 << 20
"""Bytes of a block, which glibc otherwise takes from the system each time and returns at once. It
accepts no more."""
_MOST_KEPT: Final = 64 << 20
"""Free bytes at the end of the heap."""


class MemoryTrimmer:
    """Returns free memory when no large message has come for a while.

    glibc keeps freed memory: three copies of a 10 MiB result stayed resident for as long as the
    proxy ran. Returning each at once costs a third of the time of a large result, because the
    next copy needs fresh pages: so glibc keeps them until here. Other allocators are left alone.
    """

    def __init__(self) -> None:
        """Begin with no large message seen."""
        self._large = anyio.Event()
        libc = ctypes.CDLL(None)
        self._trim: Callable[[int], object] | None = getattr(libc, "malloc_trim", None)
        set_option: Callable[[int, int], object] | None = getattr(libc, "mallopt", None)
        if self._trim is not None and set_option is not None:
            set_option(_MMAP_THRESHOLD, _LARGEST_REUSED)
            set_option(_TRIM_THRESHOLD, _MOST_KEPT)

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
