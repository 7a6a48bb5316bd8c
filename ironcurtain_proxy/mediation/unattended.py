"""A notice, once in a session, that a call needs a reviewer and no reviewer can be reached."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

_log = logging.getLogger(__name__)

Tell: TypeAlias = Callable[[], Awaitable[None]]
"""Notifies the people behind the session. Its exceptions are logged, and the call stays refused."""


@dataclass(slots=True)
class Unattended:
    """Notifies the people behind the session, once, that no reviewer answers its questions."""

    tell: Tell | None = None
    """Tells that nobody reviews; None: nobody can be told, as when embedded in another program."""
    _was_told: bool = field(default=False, init=False)

    async def found(self) -> None:
        """Note that a call was refused because no reviewer could be asked."""
        if self.tell is None or self._was_told:
            return
        self._was_told = True
        try:
            await self.tell()
        except Exception:  # noqa: BLE001  a courtesy: the call is refused and recorded already
            _log.exception("the agent could not be told that nobody is reviewing")
