"""The end of the process when a write to the audit log does not return.

The event loop then hangs in the kernel: it forwards nothing, and it answers nothing. Another thread
ends the process, so that the agent and the servers see their pipes close. The thread first closes
all descriptors itself, because a process with a thread that waits for a disk may survive SIGKILL.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

EXIT_HUNG = 70
"""EX_SOFTWARE of sysexits.h."""


def end_process(why: str) -> NoReturn:
    """Report the reason on stderr, close every pipe and socket, and end this process at once."""
    with suppress(OSError):
        # stderr can be a pipe without a reader.
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
