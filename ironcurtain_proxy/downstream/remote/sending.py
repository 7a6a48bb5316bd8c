"""The sending of messages, each as an HTTP request of its own."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.downstream.remote.inbound import Inbound
from ironcurtain_proxy.downstream.remote.requests import Requester

REPLIES_AT_ONCE: Final = 16
"""The most answers to the server's own requests that are sent at a time."""

REQUESTS_AT_ONCE: Final = 160
"""The most requests of ours that a server works on at a time. The others wait for their turn, and
leave connections for cancellations and answers."""

_METHOD: Final = b'"method":'
_HEAD: Final = 128
"""Bytes of a line in which the proxy writes the method, if there is one."""


class Sending(ABC):
    """Implements `jsonrpc.wire.LineSink`; received lines are in `inbound`."""

    def __init__(self, requester: Requester, url: str, inbound: Inbound) -> None:
        self._requester = requester
        self._url = url
        self._inbound = inbound
        self._unsent: list[bytes] = []
        self._replies: deque[bytes] = deque()
        self._replying = 0
        self._backlog = 0
        self._group: TaskGroup | None = None
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed

    @property
    def backlog(self) -> int:
        """Bytes of messages that the server has not begun to answer."""
        return self._backlog

    def write(self, line: bytes) -> None:
        """Send a message concurrently with all others."""
        if self._closed:
            raise BrokenPipeError("the session is over")
        self._backlog += len(line)
        if self._group is None:
            self._unsent.append(line)
        elif _METHOD in line[:_HEAD]:
            self._group.start_soon(self._deliver, line)
        else:
            self._reply(line, self._group)

    def _reply(self, line: bytes, group: TaskGroup) -> None:
        # Attack: a server that asks thousands of things at once, each of which would be a request
        # that waits for a connection.
        self._replies.append(line)
        if self._replying < REPLIES_AT_ONCE:
            self._replying += 1
            group.start_soon(self._deliver_replies)

    async def _deliver_replies(self) -> None:
        try:
            while self._replies:
                await self._deliver(self._replies.popleft())
        finally:
            self._replying -= 1

    def abort(self) -> None:
        """Stop sending."""
        self._closed = True

    async def run(self) -> None:
        """Send messages until cancelled, or until the greeting needs the older transport."""
        async with anyio.create_task_group() as self._group:
            for line in self._unsent:
                self._group.start_soon(self._deliver, line)
            self._unsent = []
            await self._receive()

    async def _receive(self) -> None:
        await anyio.sleep_forever()

    @abstractmethod
    async def _deliver(self, line: bytes) -> None:
        """Send one message, and subtract it from the backlog."""
