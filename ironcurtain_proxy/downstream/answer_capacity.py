"""The capacity for large answers on their way to the agent, in bytes, over all servers.

The size of one answer is limited elsewhere; this limits the sum: no server is read further while
the agent has not read the answers sent before. Small answers are never delayed.
"""

import weakref
from collections.abc import Callable
from typing import Final

import anyio

from ironcurtain_proxy.model.server import ToolResult

SMALL: Final = 64 * 1024
"""Bytes of a message that counts as small."""

_SUM: Final = 96 << 20
_LOOK_AGAIN: Final = 0.01
"""Seconds between two looks: no event reports bytes that leave a pipe."""


class AnswerCapacity:
    """Bytes of large answers that are in memory."""

    def __init__(self) -> None:
        """Begin empty."""
        self.limit = _SUM
        self.unread: Callable[[], int] = lambda: 0
        """Gives the bytes that the agent has not read yet."""
        self.on_large: Callable[[], None] = lambda: None
        """Called for each large answer."""
        self._on_its_way = 0

    def fits(self, size: int) -> bool:
        """Whether a message of this size fits now. One message alone always fits."""
        if size <= SMALL:
            return True
        used = self._on_its_way + self.unread()
        return not used or used + size <= self.limit

    async def wait(self, size: int) -> None:
        """Wait until a message of this size fits."""
        while not self.fits(size):  # noqa: ASYNC110  nobody tells, see above
            await anyio.sleep(_LOOK_AGAIN)

    def note(self, answer: ToolResult, size: int) -> ToolResult:
        """Count an answer until it is released."""
        if size > SMALL:
            self._on_its_way += size
            self.on_large()
            weakref.finalize(answer, self._forget, size).atexit = False
        return answer

    def _forget(self, size: int) -> None:
        self._on_its_way -= size
