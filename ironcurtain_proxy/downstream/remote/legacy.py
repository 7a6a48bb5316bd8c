"""The transport of 2024-11-05: one stream for all that arrives, one address to send to.

The stream names that address first. When the stream ends, the session has ended.
"""

from urllib.parse import urljoin, urlsplit

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.downstream.remote.inbound import Inbound
from ironcurtain_proxy.downstream.remote.requests import Requester, is_packed, is_stream
from ironcurtain_proxy.downstream.remote.streamable import BOTH, EVENTS
from ironcurtain_proxy.errors import DownstreamError, ServerUnavailableError
from ironcurtain_proxy.jsonrpc.codec import Malformed, decode, message_id

_REFUSED = 400


class LegacySse:
    """Implements `jsonrpc.wire.LineSink`; what arrives is in `inbound`."""

    def __init__(self, requester: Requester, url: str, inbound: Inbound) -> None:
        self._requester = requester
        self._url = url
        self._inbound = inbound
        self._address = ""
        self._addressed = anyio.Event()
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
        """Bytes of messages that the server has not taken."""
        return self._backlog

    def write(self, line: bytes) -> None:
        """Send a message."""
        if self._closed:
            raise BrokenPipeError("the session is over")
        self._backlog += len(line)
        if self._group is None:
            self._unsent.append(line)
        else:
            self._group.start_soon(self._deliver, line)

    def abort(self) -> None:
        """Send no more."""
        self._closed = True

    async def run(self) -> None:
        """Send what is written, and read the stream, until cancelled."""
        async with anyio.create_task_group() as self._group:
            for line in self._unsent:
                self._group.start_soon(self._deliver, line)
            self._unsent = []
            try:
                await self._read()
                self._inbound.end("its stream has ended")
            except DownstreamError as error:
                self._inbound.end(str(error))
            await anyio.sleep_forever()

    async def _read(self) -> None:
        async with self._requester.open("GET", self._url, EVENTS) as response:
            if response.status_code >= _REFUSED or not is_stream(response) or is_packed(response):
                raise ServerUnavailableError(
                    f"it answered with HTTP status {response.status_code} and no stream"
                )
            async for event in self._requester.events(response):
                if event.event == "endpoint" and not self._address:
                    self._address = self._endpoint(event.data)
                    self._addressed.set()
                elif event.event == "message" and event.data:
                    await self._inbound.put(event.data.encode())

    def _endpoint(self, text: str) -> str:
        """Where to send to: a server must not send what we say, and its token, elsewhere."""
        address = urljoin(self._url, text.strip())
        here, there = urlsplit(self._url), urlsplit(address)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise ServerUnavailableError("it names an address of another origin to send to")
        return address

    async def _deliver(self, line: bytes) -> None:
        await self._addressed.wait()
        message = decode(line)
        is_request = not isinstance(message, Malformed) and "method" in message
        request_id = message_id(message.get("id")) if is_request else None  # type: ignore[union-attr]
        try:
            async with self._requester.open("POST", self._address, BOTH, line) as response:
                if response.status_code >= _REFUSED:
                    raise ServerUnavailableError(
                        f'server "{self._requester.server}" refused the message with HTTP status '
                        f"{response.status_code}"
                    )
        except DownstreamError as error:
            if request_id is not None:
                self._inbound.lose(request_id, error)
        finally:
            self._backlog -= len(line)
