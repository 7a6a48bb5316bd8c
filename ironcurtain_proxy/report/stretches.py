"""Periods of equal length, as fine as the bars of a plot can be distinguished."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

_STEPS: Final = tuple(timedelta(minutes=n) for n in (1, 5, 15, 60, 360, 1440, 10080))
_MOST_BARS: Final = 48
_EPOCH: Final = datetime(1970, 1, 5, tzinfo=UTC)
"""A Monday, so that weeks begin as weeks do."""


def step_for(times: Iterable[datetime]) -> timedelta:
    """The finest step whose bars can be distinguished."""
    found = list(times)
    if not found:
        return _STEPS[0]
    span = max(found) - min(found)
    return next((step for step in _STEPS if span / step < _MOST_BARS), _STEPS[-1])


def begin_of_stretch(time: datetime, step: timedelta) -> datetime:
    """The beginning of the period of a time."""
    return _EPOCH + (time - _EPOCH) // step * step
