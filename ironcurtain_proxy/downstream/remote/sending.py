"""The sending of messages, each as an HTTP request of its own."""

from abc import ABC, abstractmethod

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.downstream.remote.inbound import Inbound
from ironcurtain_proxy.downstream.remote.requests import Requester


class Sending(ABC):
    """Implements `jsonrpc.wire.LineSink`; received lines are in `inbound`."""

    def __init__(self, requester: Requester, url: str, inbound: Inbound) -> None:
        self._requester = requester
        self._url = url
        self._inbound = inbound
        self._unsent: list[bytes] = []
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
        else:
            self._group.start_soon(self._deliver, line)

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
