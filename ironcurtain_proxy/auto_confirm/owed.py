"""Writes that failed, kept until the store takes them.

A question without its end would stay open, make its session look stuck, and count in the queue of
others.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio

from ironcurtain_proxy.auto_confirm.reviewer import LedgerError
from ironcurtain_proxy.model.escalation import EscalationId

_log: Final = logging.getLogger(__name__)

MOST: Final = 10_000
"""The most kept writes; there is one for each call in progress when the store failed."""

PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds until the next attempt; the last value repeats."""

OwedLine: TypeAlias = Callable[[], object]
"""Writes one line, in a thread. After an exception it is tried again."""


@dataclass(slots=True)
class OwedLines:
    """Lines that wait for the store, in their order."""

    in_thread: Callable[[OwedLine], Awaitable[object]]
    """Raises `LedgerError` where it fails."""
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    most: int = MOST
    _lines: deque[tuple[EscalationId, OwedLine]] = field(default_factory=deque)
    _some: anyio.Event = field(default_factory=anyio.Event)

    def __len__(self) -> int:
        return len(self._lines)

    def has(self, identifier: EscalationId) -> bool:
        """Whether a line of this question waits; later lines then wait, too."""
        return any(one == identifier for one, _ in self._lines)

    def add(self, identifier: EscalationId, write: OwedLine) -> None:
        """Keep a line for later."""
        if len(self._lines) >= self.most:
            self._lines.popleft()
            _log.error("too much waits for the store: how an escalation ended is lost")
        self._lines.append((identifier, write))
        self._some.set()

    async def run(self) -> None:
        """Write the kept lines, until cancelled."""
        while True:
            await self._some.wait()
            self._some = anyio.Event()
            turn = 0
            while self._lines:
                await self.wait(PAUSES[min(turn, len(PAUSES) - 1)])
                turn = 0 if await self.pay() else turn + 1

    async def pay(self) -> bool:
        """Try each line, up to the first failure. Returns whether any was written."""
        paid = False
        for _ in range(len(self._lines)):
            identifier, write = line = self._lines[0]
            try:
                await self.in_thread(write)
            except LedgerError as error:
                _log.debug("escalation %s waits for the store: %s", identifier, error)
                # Behind the others, so that one that always fails does not block them.
                self._lines.rotate(-1)
                return paid
            paid = True
            if self._lines and self._lines[0] is line:
                self._lines.popleft()
        return paid
