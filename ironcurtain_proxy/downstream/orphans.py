"""Orphaned processes of killed guardians.

On Linux the proxy is a subreaper: processes that lose their guardian become children of the proxy,
which kills them. On other systems they are lost.
"""

import contextlib
import os
import sys
import time
from typing import Final

from ironcurtain_proxy.downstream import guardian

GUARDIANS: Final[set[int]] = set()
"""The living guardians of this process."""


def become_subreaper() -> None:
    """Let processes whose guardian was killed become children of this process."""
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)


def kill_orphans(seconds: float) -> bool:
    """Kill and collect orphans; False if some remain after `seconds`."""
    deadline = time.monotonic() + seconds
    while orphans := _orphans():
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def _orphans() -> list[int]:
    """Our children that are neither guardians nor in our session (as git is).

    A server begins its own session, and its processes cannot return to ours.
    """
    if sys.platform != "linux":
        return []
    children = guardian.children().get(os.getpid(), [])
    ours = os.getsid(0)
    return [pid for pid in children if pid not in GUARDIANS and _session(pid) not in (ours, None)]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
