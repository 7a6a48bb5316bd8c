"""The last resort when a write to the audit log does not return.

The event loop hangs in the kernel and cannot answer. Nothing is forwarded, but nobody is told
either; so the process ends, and the agent and the servers see their pipes close. It is done from
another thread, and does not count on the process really going away: a thread that waits for a disk
may be beyond even SIGKILL, and would hold every descriptor open.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

EXIT_HUNG = 70
"""EX_SOFTWARE of sysexits.h."""


def end_process(why: str) -> NoReturn:
    """Say why on stderr, close every pipe and socket, and end this process at once."""
    with suppress(OSError):
        # stderr may be a pipe that nobody reads.
        os.set_blocking(2, False)
        os.write(2, f"ironcurtain-proxy: audit log: {why}; ending\n".encode())
    for descriptor in _descriptors():
        with suppress(OSError):
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                os.close(descriptor)
    os._exit(EXIT_HUNG)


def _descriptors() -> list[int]:
    try:
        return sorted([int(entry.name) for entry in Path("/proc/self/fd").iterdir()])
    except OSError:
        return [0, 1, 2]
