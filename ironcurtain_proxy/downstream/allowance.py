"""How much of what a server says of its own accord is kept or passed on; the rest is counted.

Knows amounts and time; does not know what was said. A flood is cut to a steady rate instead of
being refused: what a server says after it is heard again.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import anyio

_NOTICES: Final = 100.0
_NOTICES_AT_ONCE: Final = 1000.0
_NOTICE_BYTES: Final = 1 << 20
_NOTICE_BYTES_AT_ONCE: Final = 8 << 20
"""Of notifications of one kind, each second and at once. A larger one is never passed on."""

_PRINTED: Final = 128 << 10
_PRINTED_AT_ONCE: Final = 4 << 20
"""Bytes of standard error, each second and at once."""

_MOST_PRINTED: Final = 32 << 20
"""Bytes kept of one server in a session: it must not fill the disk that the audit log needs."""


class Allowance:
    """A token bucket."""

    def __init__(
        self,
        rate: float,
        at_once: float,
        *,
        resume: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with a full bucket.

        Args:
            rate: what comes back each second.
            at_once: what the bucket holds.
            resume: what must have come back after a refusal before anything is taken again.
            clock: seconds.
        """
        self._rate = rate
        self._at_once = at_once
        self._resume = resume
        self._clock = clock
        self._left = at_once
        self._since = clock()
        self._needed = 0.0

    def has(self, amount: float) -> bool:
        """Whether so much may be taken now."""
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < max(amount, self._needed):
            self._needed = self._resume
            return False
        self._needed = 0.0
        return True

    def spend(self, amount: float) -> None:
        """Take so much, even if it is not there: it is missing later."""
        self._left -= amount

    def take(self, amount: float) -> bool:
        """Take so much, or nothing."""
        if not self.has(amount):
            return False
        self.spend(amount)
        return True


class Notices:
    """The notifications of one server, across all its processes."""

    def __init__(self) -> None:
        self._allowed: dict[str, tuple[Allowance, Allowance]] = {}
        self._left_out = 0
        self._some = anyio.Event()

    def admits(self, kind: str, size: int) -> bool:
        """Whether one more is passed on. Each kind has its share: logs leave room for progress.

        Args:
            kind: `progress` or `message`.
            size: bytes.
        """
        if kind not in self._allowed:
            number = Allowance(_NOTICES, _NOTICES_AT_ONCE)
            self._allowed[kind] = number, Allowance(_NOTICE_BYTES, _NOTICE_BYTES_AT_ONCE)
        number, volume = self._allowed[kind]
        if number.has(1) and volume.has(size):
            number.spend(1)
            volume.spend(size)
            return True
        self._left_out += 1
        self._some.set()
        return False

    async def until_some_are_left_out(self) -> None:
        """Wait for the first that is not passed on since the last count."""
        await self._some.wait()

    def count(self) -> int:
        """How many were left out since the last count."""
        left_out, self._left_out = self._left_out, 0
        if self._some.is_set():
            self._some = anyio.Event()
        return left_out


class Ration:
    """What one server may print, across all its processes. Any thread may ask."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._allowed = Allowance(_PRINTED, _PRINTED_AT_ONCE, resume=_PRINTED, clock=clock)
        self._most = _MOST_PRINTED
        self._kept = 0
        self._has_said_end = False
        self._left_out = 0

    def admit(self, size: int, lines: int) -> tuple[bool, str]:
        """Whether so much is kept, and what is to be said before it."""
        with self._lock:
            if self._kept < self._most and self._allowed.has(size):
                return True, self._count()
            self._left_out += lines
            if self._kept < self._most or self._has_said_end:
                return False, ""
            self._has_said_end = True
            return False, f"(more than {self._most >> 20} MiB in this session: no more is kept)"

    def spend(self, size: int) -> None:
        """Take note of what was written."""
        with self._lock:
            self._kept += size
            self._allowed.spend(size)

    def finish(self) -> str:
        """What is to be said at the end of a process; empty: nothing."""
        with self._lock:
            return self._count()

    def _count(self) -> str:
        left_out, self._left_out = self._left_out, 0
        return f"({counted(left_out, 'line')} left out)" if left_out else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 line`, `2 lines`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
