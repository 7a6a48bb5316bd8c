"""Numbered messages for a client, in their order.

Knows how much is kept for a client whose connection broke; does not know what a message says.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

_KEPT: Final = 256 * 1024
_KEPT_EVENTS: Final = 256
"""The most sent events that are kept, for a connection that broke meanwhile."""


class Stream:
    """The messages of one request, or those of no request."""

    def __init__(self, name: str, on_taken: Callable[[], None]) -> None:
        """Begin without events.

        Args:
            name: the start of the ids of events, unique in the session.
            on_taken: called when a message was taken.
        """
        self.name = name
        self.is_over = False
        """Whether the last message has come."""
        self.unsent = 0
        """Bytes of messages that no connection has taken."""
        self._on_taken = on_taken
        self._lines: deque[bytes] = deque()
        self._first = 1
        """The number of the first kept line."""
        self._sent = 0
        self._kept = 0
        self._news = anyio.Event()
        self._follower: StreamReader | None = None

    @property
    def sent(self) -> int:
        """The number of the last message that was taken."""
        return self._sent

    @property
    def last(self) -> int:
        """The number of the last message that came."""
        return self._first + len(self._lines) - 1

    @property
    def is_followed(self) -> bool:
        """Whether a connection takes its messages."""
        return self._follower is not None

    def put(self, line: bytes, *, is_last: bool = False) -> None:
        """Add a message."""
        self._lines.append(line)
        self._kept += len(line)
        self.unsent += len(line)
        self.is_over = self.is_over or is_last
        self._wake()

    def end(self) -> None:
        """Note that no more messages come."""
        self.is_over = True
        self._wake()

    def shed(self) -> None:
        """Drop all messages, and end: nobody takes them."""
        self._first += len(self._lines)
        self._lines.clear()
        self._kept = self.unsent = 0
        self._sent = self._first - 1
        self.end()

    def follow(self, after: int = 0) -> "StreamReader":
        """Take messages from now on, in place of the previous follower.

        Args:
            after: the number of the last message that the client has. One that was never given out
                counts for nothing: what was not sent follows.
        """
        after = after if after <= self.last else self._sent
        self._follower = StreamReader(self, max(after + 1, self._first))
        self._wake()
        return self._follower

    def end_early(self) -> None:
        """Send the client away, which comes back for the rest. Not one that could not."""
        if self._follower is not None and self._follower.comes_back:
            self._follower = None
            self._wake()

    def leave(self, follower: "StreamReader") -> None:
        """Stop taking messages."""
        self._settle(follower)
        if self._follower is follower:
            self._follower = None

    async def take(self, follower: "StreamReader") -> bytes | None:
        """The next message; None: there is no more, or another follower takes them now."""
        self._settle(follower)
        while self._follower is follower:
            follower.number = max(follower.number, self._first)
            at = follower.number - self._first
            if at < len(self._lines):
                line = self._lines[at]
                follower.number += 1
                return line
            if self.is_over:
                return None
            self._news = anyio.Event()
            await self._news.wait()
        return None

    def _settle(self, follower: "StreamReader") -> None:
        """Note that a message has gone out: who took it asks for the next, or for no more."""
        number = follower.number - 1
        if number <= self._sent:
            return
        for gone in range(self._sent + 1, number + 1):
            self.unsent -= len(self._lines[gone - self._first])
        self._sent = number
        while self._first <= self._sent and (self._kept > _KEPT or len(self._lines) > _KEPT_EVENTS):
            self._kept -= len(self._lines.popleft())
            self._first += 1
        self._on_taken()

    def _wake(self) -> None:
        self._news.set()


class StreamReader:
    """One connection that takes the messages of a stream."""

    def __init__(self, stream: Stream, number: int) -> None:
        self._stream = stream
        self.number = number
        """The number of the next message."""
        self.comes_back = False
        """Whether its client asks for the rest of a stream that ends before the answer."""

    async def next(self) -> bytes | None:
        """The next message; None: there is no more."""
        return await self._stream.take(self)

    def leave(self) -> None:
        """Stop taking messages."""
        self._stream.leave(self)
