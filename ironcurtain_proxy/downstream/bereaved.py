"""The end of processes whose guardian was killed.

A server dies with its guardian, but the processes that it started do not: a sandbox keeps the
pipes open and would continue to answer. Linux only.
"""

import os
import sys

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ironcurtain_proxy.downstream.orphans import kill_orphans
from ironcurtain_proxy.downstream.process import ServerProcess

_ORPHANS = 1.0
"""Seconds to look for remaining processes."""


async def end_if_bereaved(process: ServerProcess, limiter: CapacityLimiter) -> None:
    """Wait for the guardian's end, then end the remaining processes if it was killed.

    Their pipes then close, as at the end of a server.
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
