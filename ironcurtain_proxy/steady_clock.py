"""Time that does not jump when somebody sets the clock, and how other processes are told of it.

Deadlines and grants are held to the seconds since the machine was started, those it slept included.
Other processes of the same boot read the same count; after another boot only the clock is left.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.values import BootMoment
from ironcurtain_proxy.ports import Clock

TOLERANCE: Final = timedelta(seconds=1)
"""Below this the clock was corrected, not set."""


_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
seconds_since_boot: Final = partial(time.clock_gettime, _CLOCK)
"""Gives the seconds since the boot, with those of sleep if the system counts them."""


@cache
def boot_id() -> str:
    """Return the id of this boot, or empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def seconds_left(moment: BootMoment) -> float | None:
    """Return the seconds until a moment, below 0 after it.

    It is None if the moment is of another boot.
    """
    if not moment.boot or moment.boot != boot_id():
        return None
    return moment.seconds - seconds_since_boot()


@contextmanager
def interrupted_after(seconds: float, kind: type[Exception]) -> Iterator[None]:
    """Raise an error where work with another machine takes longer. Only for the main thread.

    A timeout of the socket is not enough: it is for each piece, and a byte a second is none.
    """

    def interrupt(_number: int, _frame: object) -> None:
        raise kind(f"it took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_this_boot(moment: datetime, clock: Clock) -> BootMoment:
    """Return a moment of `clock.steady`, by the count of this boot."""
    left = (moment - clock.steady()).total_seconds()
    return BootMoment(boot_id(), round(seconds_since_boot() + left, 3))


def on_the_wall(moment: datetime, clock: Clock) -> datetime:
    """Return a moment of `clock.steady` as the machine's clock, which others read, has it now."""
    apart = clock.now() - clock.steady()
    return moment if abs(apart) < TOLERANCE else moment + apart
