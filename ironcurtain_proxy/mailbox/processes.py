"""Identifying a process by pid and start time."""

import os
from pathlib import Path

from ironcurtain_proxy.mailbox.messages import Owner


def this_process() -> Owner:
    """The identity of this process."""
    pid = os.getpid()
    return Owner(pid, _start_time(pid))


def is_alive(owner: Owner) -> bool:
    """Whether the process still runs; if its start time is not known, the pid decides."""
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # The process exists, and belongs to somebody else.
        return True
    started = _start_time(owner.pid)
    return not owner.start_time or not started or started == owner.start_time


def _start_time(pid: int) -> str:
    """Clock ticks after boot, field 22 of /proc/PID/stat; empty where there is no such file."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    # The second field, the program's name, may hold blanks and parentheses.
    fields = line[line.rfind(b")") + 1 :].split()
    return fields[19].decode("ascii", "replace") if len(fields) > 19 else ""  # noqa: PLR2004
