"""Nobody reviews: whoever could change that is told once in a session."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

_log = logging.getLogger(__name__)

Tell: TypeAlias = Callable[[], Awaitable[None]]
"""Tells the people. What it raises is logged: the refusal stands."""


@dataclass(slots=True)
class Unattended:
    """Whether the people behind the session know that nobody answers its questions."""

    tell: Tell | None = None
    """None: the session has no people to tell, as in another program's process."""
    _was_told: bool = field(default=False, init=False)

    async def found(self) -> None:
        """A call was turned down because nobody could be asked."""
        if self.tell is None or self._was_told:
            return
        self._was_told = True
        try:
            await self.tell()
        except Exception:  # noqa: BLE001  a courtesy: the call is refused and recorded already
            _log.exception("that nobody reviews could not be said")
