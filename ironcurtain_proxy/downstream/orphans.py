"""What is left when a guardian itself is killed.

Knows whose child a process is; does not know servers. On Linux the proxy makes itself a subreaper:
then whatever lost its guardian becomes a child of the proxy, which kills it. Elsewhere it is lost.
"""

import contextlib
import os
import sys
import time
from typing import Final

from ironcurtain_proxy.downstream import guardian

GUARDIANS: Final[set[int]] = set()
"""The living guardians. Of the whole process, as its children are, whoever started them."""


def become_subreaper() -> None:
    """Let processes whose guardian was killed become children of this process."""
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)


def kill_orphans(seconds: float) -> bool:
    """Kill and collect what a killed guardian has left; False if some is left after `seconds`."""
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
    """Our children that are neither guardians nor of our session, as git is.

    A server begins a session of its own, and what it starts cannot come back into ours.
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
