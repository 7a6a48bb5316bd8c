"""Notices that a guardian was killed while what it guarded runs on.

A server dies with its guardian, but not what it has started: a sandbox goes on, holds the pipes
open, and would go on answering, with nobody to end it. Linux only.
"""

import os
import sys

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ironcurtain_proxy.downstream.orphans import kill_orphans
from ironcurtain_proxy.downstream.process import ServerProcess

_ORPHANS = 1.0
"""Seconds to look for what is left."""


async def end_if_bereaved(process: ServerProcess, limiter: CapacityLimiter) -> None:
    """Wait until the guardian has ended, then end what it has left if it was killed.

    With that its pipes close, as when a server ends.
    """
    if sys.platform != "linux":
        return
    try:
        guardian = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        await anyio.wait_readable(guardian)
    finally:
        os.close(guardian)
    status = process.exit_status
    if status is not None and status < 0:
        await run_sync(kill_orphans, _ORPHANS, limiter=limiter)
