"""One life of a server that is reached over HTTP: from its greeting until it forgets us.

Knows the transport and the secrets of the operator's headers; does not know the meaning of a
message.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2

from ironcurtain_proxy.downstream.options import DownstreamOptions
from ironcurtain_proxy.downstream.remote.exchange import Inbound, Sending
from ironcurtain_proxy.downstream.remote.logins import LoginFile, headers_of
from ironcurtain_proxy.downstream.remote.network import GuardedTransport, open_client
from ironcurtain_proxy.downstream.remote.requests import Authorizer, NoLogin, Requester
from ironcurtain_proxy.downstream.remote.stored_login import StoredLogin
from ironcurtain_proxy.downstream.remote.streamable import BOTH, EVENTS, StreamableHttp
from ironcurtain_proxy.errors import DownstreamError, ServerUnavailableError
from ironcurtain_proxy.jsonrpc.batch import Batch
from ironcurtain_proxy.jsonrpc.codec import Malformed, decode, message_id
from ironcurtain_proxy.jsonrpc.headers import MirroredPaths
from ironcurtain_proxy.jsonrpc.pipes import LineSink, LineSource
from ironcurtain_proxy.model.server import RemoteEndpoint, ServerSpec

_GOODBYE: Final = 1.0
"""Seconds for telling a server that the session is over."""

_REFUSED: Final = 400

_OLDER: Final = (
    "it speaks the HTTP transport of 2024-11-05 (SSE), which newer servers and clients leave out"
)


class LegacySse(Sending):
    """The transport of 2024-11-05: one stream for all that arrives, one address to send to.

    The stream names that address first. When the stream ends, the session has ended.
    """

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
                    self._address = self._endpoint(event.data)
                    self._addressed.set()
                elif event.event == "message" and event.data:
                    await self._inbound.put(event.data.encode())

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


class HttpSession:
    """Implements `starting.Life`, and the sink of its own wire."""

    def __init__(
        self, endpoint: RemoteEndpoint, requester: Requester, warn: Callable[[str], None]
    ) -> None:
        self._endpoint = endpoint
        self._requester = requester
        self._warn = warn
        self._inbound = Inbound()
        self._transport: StreamableHttp | LegacySse
        if endpoint.transport == "sse":
            self._transport = LegacySse(requester, endpoint.url, self._inbound)
            warn(_OLDER)
        else:
            self._transport = StreamableHttp(requester, endpoint.url, self._inbound)

    sandboxed: Final = False
    """Whether the server runs in a sandbox here: it runs on another machine."""
    pid: Final = None
    last_words: Final = ""

    async def open(self, max_line: int, batch: Batch) -> tuple[LineSource, LineSink]:  # noqa: ARG002
        """The wire to it. Its limit is the requester's."""
        return self._inbound, self

    def learn(self, mirrored: Mapping[str, MirroredPaths]) -> None:
        """Note which arguments of which tools stand in headers."""
        if isinstance(self._transport, StreamableHttp):
            self._transport.mirrored = mirrored

    def has_session(self) -> bool:
        """Return whether the server has begun a session: it hears answers only in one."""
        return not isinstance(self._transport, StreamableHttp) or self._transport.has_session

    async def watch(self) -> None:
        """Carry messages until cancelled."""
        transport = self._transport
        await transport.run()
        if isinstance(transport, StreamableHttp) and transport.older is not None:
            self._warn(_OLDER)
            self._transport = LegacySse(self._requester, self._endpoint.url, self._inbound)
            self._transport.write(transport.older)
            await self._transport.run()

    async def close(self) -> None:
        """End the session, and close all connections."""
        transport = self._transport
        with anyio.move_on_after(_GOODBYE, shield=True):
            if isinstance(transport, StreamableHttp):
                with suppress(DownstreamError):  # it is gone
                    await transport.say_goodbye()
            await self._requester.close()

    def ending(self) -> str:
        """The reason for the end of the session."""
        return self._inbound.why

    # --- the sink

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closed

    @property
    def backlog(self) -> int:
        """Bytes that the server has not begun to answer."""
        return self._transport.backlog

    def write(self, line: bytes) -> None:
        """Send a message; raises `BrokenPipeError`."""
        self._transport.write(line)

    def abort(self) -> None:
        """Send no more."""
        self._transport.abort()


def begin_session(
    spec: ServerSpec,
    endpoint: RemoteEndpoint,
    options: DownstreamOptions,
    warn: Callable[[str], None],
) -> HttpSession:
    """Make a session; nothing is sent yet.

    Raises:
        ConfigurationError: a header names a credential that is not there.
    """
    headers = headers_of(spec, endpoint)
    transport = GuardedTransport(spec.name, endpoint)
    return HttpSession(
        endpoint,
        Requester(
            spec.name,
            transport,
            authorizer=_authorizer(spec, endpoint, options, transport, warn),
            headers=headers,
            max_message=options.max_message_bytes,
        ),
        warn,
    )


def _authorizer(
    spec: ServerSpec,
    endpoint: RemoteEndpoint,
    options: DownstreamOptions,
    transport: GuardedTransport,
    warn: Callable[[str], None],
) -> Authorizer:
    if endpoint.has_authorization or options.logins is None:
        return NoLogin()
    return StoredLogin(
        spec.name,
        endpoint,
        open_client(transport),
        LoginFile(options.logins, spec.name, endpoint.url),
        credentials=spec.credentials,
        warn=warn,
    )
