"""Time that does not jump when somebody sets the clock, and how other processes are told of it.

Deadlines and grants are held to the seconds since the machine was started, those it slept included.
Other processes of the same boot read the same count; after another boot only the clock is left.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.ports import Clock

TOLERANCE: Final = timedelta(seconds=1)
"""Below this the clock was corrected, not set."""


def seconds_since_boot() -> float:
    """Those the machine slept included, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@cache
def boot_id() -> str:
    """Which boot this is; empty: the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True, slots=True)
class BootMoment:
    """A moment by the count of one boot."""

    boot: str
    seconds: float

    def seconds_left(self) -> float | None:
        """How long it is until then, below 0 if it is over; None: it was another boot's."""
        if not self.boot or self.boot != boot_id():
            return None
        return self.seconds - seconds_since_boot()

    def as_json(self) -> dict[str, Json]:
        """For a file."""
        return {"boot": self.boot, "seconds": self.seconds}


def boot_moment(value: object) -> BootMoment | None:
    """What a file says; None: it says nothing of the kind."""
    if not isinstance(value, dict) or value.keys() != {"boot", "seconds"}:
        return None
    boot, seconds = value["boot"], value["seconds"]
    if not isinstance(boot, str) or isinstance(seconds, bool):
        return None
    return BootMoment(boot, float(seconds)) if isinstance(seconds, int | float) else None


def in_this_boot(moment: datetime, clock: Clock) -> BootMoment:
    """A moment of `clock.steady`, by the count of this boot."""
    left = (moment - clock.steady()).total_seconds()
    return BootMoment(boot_id(), round(seconds_since_boot() + left, 3))


def on_the_wall(moment: datetime, clock: Clock) -> datetime:
    """A moment of `clock.steady` as the machine's clock, which others read, has it now."""
    apart = clock.now() - clock.steady()
    return moment if abs(apart) < TOLERANCE else moment + apart
