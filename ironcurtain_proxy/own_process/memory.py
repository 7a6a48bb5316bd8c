"""How the allocator treats the memory of large messages."""

from typing import Final

LARGE: Final = 1 << 20
"""Bytes."""

_M_MMAP_THRESHOLD: Final = -3


def give_large_blocks_back() -> None:
    """Have blocks of `LARGE` bytes or more returned to the system as soon as they are free.

    glibc raises its own limit with every large block that is freed, and then keeps them: three
    copies of one result of 10 MiB stayed resident for as long as the proxy ran, 30 MiB of 110.
    Other allocators have no such setting and are left alone.
    """
    import ctypes  # noqa: PLC0415  slow to load, and loaded by then

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE)
