"""Rate limits on a server's notifications and output; the excess is counted.

A flood is cut to a steady rate, so that later messages still pass.
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
"""Bytes of notifications of one kind, each second and in a burst; larger ones never pass."""

_PRINTED: Final = 128 << 10
_PRINTED_AT_ONCE: Final = 4 << 20
"""Bytes of standard error, each second and in a burst."""

_MOST_PRINTED: Final = 32 << 20
"""Bytes kept of one server in a session, so that it cannot fill the audit log's disk."""


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
            rate: the refill each second.
            at_once: the size of the bucket.
            resume: the refill that must follow a refusal before anything is taken again.
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
        """Whether this amount may be taken now."""
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < max(amount, self._needed):
            self._needed = self._resume
            return False
        self._needed = 0.0
        return True

    def spend(self, amount: float) -> None:
        """Take this amount, even below zero."""
        self._left -= amount

    def take(self, amount: float) -> bool:
        """Take this amount, or nothing."""
        if not self.has(amount):
            return False
        self.spend(amount)
        return True


class NotificationLimits:
    """The notifications of one server, across all its processes."""

    def __init__(self) -> None:
        self._allowed: dict[str, tuple[Allowance, Allowance]] = {}
        self._left_out = 0
        self._some = anyio.Event()

    def admits(self, kind: str, size: int) -> bool:
        """Whether one more passes. Each kind has its own limit, so that logs do not block progress.

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
        """Wait for the first dropped notification since the last count."""
        await self._some.wait()

    def count(self) -> int:
        """The number dropped since the last count."""
        left_out, self._left_out = self._left_out, 0
        if self._some.is_set():
            self._some = anyio.Event()
        return left_out


class OutputLimit:
    """The output limit of one server, across all its processes. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._allowed = Allowance(_PRINTED, _PRINTED_AT_ONCE, resume=_PRINTED, clock=clock)
        self._most = _MOST_PRINTED
        self._kept = 0
        self._has_said_end = False
        self._left_out = 0

    def admit(self, size: int, lines: int) -> tuple[bool, str]:
        """Whether this amount is kept, and a note to write before it."""
        with self._lock:
            if self._kept < self._most and self._allowed.has(size):
                return True, self._count()
            self._left_out += lines
            if self._kept < self._most or self._has_said_end:
                return False, ""
            self._has_said_end = True
            return False, f"(more than {self._most >> 20} MiB in this session: no more is kept)"

    def spend(self, size: int) -> None:
        """Count bytes that the server wrote."""
        with self._lock:
            self._kept += size
            self._allowed.spend(size)

    def finish(self) -> str:
        """A note for the end of a process; empty: none."""
        with self._lock:
            return self._count()

    def _count(self) -> str:
        left_out, self._left_out = self._left_out, 0
        return f"({counted(left_out, 'line')} left out)" if left_out else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 line`, `2 lines`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
