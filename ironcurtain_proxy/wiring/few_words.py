"""What stands on standard error: few words, also where every call meets the same fault."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

AT_ONCE: Final = 3
"""Lines of one kind in a period; the session log has all of them."""
PERIOD: Final = 60.0
"""Seconds."""


@dataclass(slots=True)
class _Kind:
    began: float
    said: int = 0
    left_out: int = 0


class FewWords(logging.Filter):
    """Lets through a few records of each kind, and then says how many it kept back.

    Records are of one kind if they come from the same line of code, whatever their values.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is said; `left_out` of it says how many were not."""
        now = self._monotonic()
        kind = self._kinds.setdefault((record.name, str(record.msg)), _Kind(now))
        record.left_out = 0
        if now - kind.began >= PERIOD:
            record.left_out = kind.left_out
            kind.began, kind.said, kind.left_out = now, 0, 0
        kind.said += 1
        if kind.said > AT_ONCE:
            kind.left_out += 1
            return False
        return True


class OneLine(logging.Formatter):
    """Leaves tracebacks to the session log."""

    def format(self, record: logging.LogRecord) -> str:
        """The message alone."""
        said = f"ironcurtain-proxy: {record.getMessage()}".replace("\n", " ")
        left_out = getattr(record, "left_out", 0)
        return f"{said} ({left_out} more like this were left out)" if left_out else said
