"""The transport of 2024-11-05: one stream for all that arrives, one address to send to.

The stream names that address first. When the stream ends, the session has ended.
"""

from urllib.parse import urljoin, urlsplit

import anyio
import httpx2

from ironcurtain_proxy.downstream.remote.inbound import Inbound
from ironcurtain_proxy.downstream.remote.requests import Requester
from ironcurtain_proxy.downstream.remote.sending import Sending
from ironcurtain_proxy.downstream.remote.streamable import BOTH, EVENTS
from ironcurtain_proxy.errors import DownstreamError, ServerUnavailableError
from ironcurtain_proxy.jsonrpc.codec import Malformed, decode, message_id

_REFUSED = 400


class LegacySse(Sending):
    """One session over the older transport."""

    def __init__(self, requester: Requester, url: str, inbound: Inbound) -> None:
        super().__init__(requester, url, inbound)
        self._address = ""
        self._addressed = anyio.Event()

    async def _receive(self) -> None:
        try:
            await self._read()
            self._inbound.end("its stream has ended")
        except DownstreamError as error:
            self._inbound.end(str(error))
        await anyio.sleep_forever()

    async def _read(self) -> None:
        async with self._requester.open("GET", self._url, EVENTS) as response:
            if response.status >= _REFUSED or not response.is_stream or response.is_packed:
                raise ServerUnavailableError(
                    f"it answered with HTTP status {response.status} and no stream"
                )
            async for event in self._requester.events(response):
                if event.event == "endpoint" and not self._address:
                    self._address = self._endpoint(event.data.decode())
                    self._addressed.set()
                elif event.event == "message" and event.data:
                    await self._inbound.put(event.data)

    def _endpoint(self, text: str) -> str:
        """The URL for messages. It must be the server's own: messages carry its token."""
        try:
            address = str(httpx2.URL(urljoin(self._url, text.strip())))
            here, there = urlsplit(self._url), urlsplit(address)
        except (httpx2.InvalidURL, ValueError):
            raise ServerUnavailableError("it names no address to send to") from None
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
                if response.status >= _REFUSED:
                    raise ServerUnavailableError(
                        f'server "{self._requester.server}" refused the message with HTTP status '
                        f"{response.status}"
                    )
        except DownstreamError as error:
            if request_id is not None:
                self._inbound.lose(request_id, error)
        finally:
            self._backlog -= len(line)
