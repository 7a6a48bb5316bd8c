"""Services that go on beside the calls: a defect in one ends neither the others nor the session.

An exception that leaves a task ends its whole group, and so every call of the session.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

_FIRST: Final = 0.5
_LONGEST: Final = 60.0
"""Seconds between two beginnings of a service that never works."""
_log: Final = logging.getLogger(__name__)


async def lasting(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run a service until it ends or is cancelled, and begin it again after each defect.

    Args:
        what: its name for the log.
        work: the service. Whatever it lets through while it does not work has to be refused by
            others: it may begin again as late as after a minute.
    """
    pause = _FIRST
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001  see above
            _log.exception("%s met a defect, and begins again", what)
        else:
            return
        await anyio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
