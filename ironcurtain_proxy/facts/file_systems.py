"""What kind of file system a directory is on, by the number that the kernel gives it.

Python has no `statfs`; the C library does. This file does not know which kinds matter.
"""

import ctypes
import os
import sys
from typing import Final

PROCFS: Final = 0x9FA0
"""`PROC_SUPER_MAGIC` of statfs(2)."""
NO_NUMBER: Final = 0
"""Where there are no such numbers (not Linux), and so no procfs."""

_BUFFER: Final = 256
"""Bytes: the structure has 120, of which the number is the first word."""


def file_system_type(directory: str) -> int | None:
    """The number of the file system that holds a directory; None: it cannot be found out."""
    if _LIBRARY is None:
        return NO_NUMBER
    buffer = ctypes.create_string_buffer(_BUFFER)
    try:
        failed = _LIBRARY.statfs(os.fsencode(directory), buffer)
    except (ValueError, ctypes.ArgumentError):
        return None
    return None if failed else ctypes.c_uint32.from_buffer(buffer, _LOW_WORD).value


_LIBRARY: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_LOW_WORD: Final = 0 if sys.byteorder == "little" else ctypes.sizeof(ctypes.c_long) - 4
