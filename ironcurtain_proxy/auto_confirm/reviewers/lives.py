"""The restarts of a reviewer process, and when it is abandoned.

Restarts are limited. The count begins anew after a while of readiness, so that a session of weeks
does not lose its reviewer to six accidents.
"""

from dataclasses import dataclass
from typing import Final

PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds until the next start; the last value repeats."""

WELL_AFTER: Final = 5.0
"""Seconds of readiness after which the count begins anew."""


@dataclass(slots=True)
class ProcessStarts:
    """The starts of one process. All times are monotonic seconds."""

    restarts: int
    """The number of restarts after the process has ended."""
    _starts: int = 0
    _not_before: float = 0.0
    _well_since: float | None = None

    def may_start(self, now: float) -> bool:
        """Whether it may be started now."""
        return not self.is_given_up and now >= self._not_before

    @property
    def is_given_up(self) -> bool:
        """Whether it will not be started again."""
        return self._starts > self.restarts

    def begin(self, now: float) -> None:
        """Note that the process is being started."""
        self._starts += 1
        self._well_since = None
        self._pause(now)

    def is_well(self, now: float) -> None:
        """Note that the process can be asked."""
        if self._well_since is None:
            self._well_since = now

    def end(self, now: float) -> None:
        """Note that the process has ended."""
        if self._well_since is not None and now - self._well_since >= WELL_AFTER:
            self._starts = 1
        self._well_since = None
        self._pause(now)

    def _pause(self, now: float) -> None:
        self._not_before = now + PAUSES[min(self._starts, len(PAUSES)) - 1]
