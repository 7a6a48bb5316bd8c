"""What could not be written into the store, and is written as soon as that can be done.

A question that stays open for want of its end would make its session look stuck, and count in the
queue of others.
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
"""Lines. One is owed for a call that was under way when the store failed: there are few."""

PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds until the next try; the last for all further times."""

OwedLine: TypeAlias = Callable[[], object]
"""Writes one line, in a thread. What it raises is a reason to try again."""


@dataclass(slots=True)
class Owed:
    """Lines that wait for the store, in the order in which they came."""

    in_thread: Callable[[OwedLine], Awaitable[object]]
    """Raises `LedgerError` where it fails."""
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    most: int = MOST
    _lines: deque[tuple[EscalationId, OwedLine]] = field(default_factory=deque)
    _some: anyio.Event = field(default_factory=anyio.Event)

    def __len__(self) -> int:
        return len(self._lines)

    def has(self, identifier: EscalationId) -> bool:
        """Whether a line of this question waits: what comes later of it waits behind that."""
        return any(one == identifier for one, _ in self._lines)

    def add(self, identifier: EscalationId, write: OwedLine) -> None:
        """Have a line written later."""
        if len(self._lines) >= self.most:
            self._lines.popleft()
            _log.error("too much waits for the store: how an escalation ended is lost")
        self._lines.append((identifier, write))
        self._some.set()

    async def run(self) -> None:
        """Write what is owed, until cancelled."""
        while True:
            await self._some.wait()
            self._some = anyio.Event()
            turn = 0
            while self._lines:
                await self.wait(PAUSES[min(turn, len(PAUSES) - 1)])
                turn = 0 if await self.pay() else turn + 1

    async def pay(self) -> bool:
        """Try each line once, up to the first that fails. Whether any was written."""
        paid = False
        for _ in range(len(self._lines)):
            identifier, write = line = self._lines[0]
            try:
                await self.in_thread(write)
            except LedgerError as error:
                _log.debug("escalation %s waits for the store: %s", identifier, error)
                # Behind the others: one that can never be written does not keep them.
                self._lines.rotate(-1)
                return paid
            paid = True
            if self._lines and self._lines[0] is line:
                self._lines.popleft()
        return paid
