"""One connection to a server, with or without TLS, for the pool of `httpcore2`.

A protocol of asyncio: the pool's own streams cost several tasks' worth of work for each read. The
head of a request is kept until its body comes, so that both leave in one packet.
"""

import asyncio  # noqa: TID251  protocols and transports, as in `jsonrpc.pipes`
import select
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Final

import anyio
import httpcore2
from httpcore2 import AsyncNetworkStream

_ENOUGH: Final = 1 << 18
"""Bytes that wait for whoever reads; the socket is not read meanwhile."""


class HttpConnection(asyncio.Protocol, AsyncNetworkStream):
    """Made by `connect`. One task at a time reads, and one writes."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._ended = False
        self._broken: Exception | None = None
        self._kept = b""
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        """The future of free space; None while the other side takes bytes."""

    # --- for the pool

    async def read(
        self,
        max_bytes: int,  # noqa: ARG002  what one read of the socket brought, which is bounded
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
    ) -> bytes:
        """The bytes that have arrived; empty: the end."""
        self._flush()
        if not self._received and not self._ended:
            try:
                with anyio.fail_after(timeout):
                    await self._until_arrival()
            except TimeoutError:
                raise httpcore2.ReadTimeout("nothing has arrived") from None
        if not self._received:
            if self._broken is not None:
                raise httpcore2.ReadError(str(self._broken)) from self._broken
            return b""
        data = self._received.popleft()
        self._size -= len(data)
        if self._paused and self._size < _ENOUGH and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
    ) -> None:
        """Send bytes; empty bytes end a request."""
        if buffer and not self._kept:
            self._kept = buffer
            return
        self._kept += buffer
        self._flush()
        if self._room is not None:
            try:
                with anyio.fail_after(timeout):
                    await asyncio.shield(self._room)
            except TimeoutError:
                raise httpcore2.WriteTimeout("nothing is taken") from None
        if self._transport is None or self._transport.is_closing():
            raise httpcore2.WriteError("the connection was closed")

    async def aclose(self) -> None:
        """Close, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
    ) -> AsyncNetworkStream:
        """The connection with TLS."""
        if self._transport is None:
            raise httpcore2.ConnectError("the connection was closed")
        if self.has_unread:
            # Attack: whoever is on the way adds an answer, which would be read as the server's.
            await self.aclose()
            raise httpcore2.ConnectError("bytes came before the connection was secured")
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                ssl_context,
                server_hostname=server_hostname,
                ssl_handshake_timeout=timeout,
            )
        except OSError as error:  # with those of TLS
            await self.aclose()
            raise httpcore2.ConnectError(str(error)) from error
        except BaseException:
            await self.aclose()
            raise
        if transport is None:
            raise httpcore2.ConnectError("the connection was closed")
        self._transport = transport
        return self

    def get_extra_info(self, info: str) -> object:
        """The information that the pool asks for."""
        if info == "is_readable":
            return self._is_readable()
        if self._transport is None:
            return None
        names = {"server_addr": "peername", "client_addr": "sockname"}
        return self._transport.get_extra_info(names.get(info, info))

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that nobody has read."""
        return bool(self._received)

    # --- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection. Called by the event loop."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a connection reads and writes")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take bytes that have arrived. Called by the event loop."""
        self._received.append(data)
        self._size += len(data)
        if self._size >= _ENOUGH and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Note that nothing more arrives; the transport closes. Called by the event loop."""
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection. Called by the event loop."""
        self._transport, self._ended, self._broken = None, True, exc
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Stop writing while the other side does not keep up. Called by the event loop."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Write again. Called by the event loop."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    # --- inside

    def _flush(self) -> None:
        kept, self._kept = self._kept, b""
        if kept and self._transport is not None and not self._transport.is_closing():
            self._transport.write(kept)

    async def _until_arrival(self) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _is_readable(self) -> bool:
        """Whether something came unasked, or the other side has closed."""
        if self._received or self._ended or self._transport is None:
            return True
        # What the event loop has not seen yet: else a request goes to who has gone.
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))


async def connect(
    address: str,
    port: int,
    deadline: float | None,
    options: Iterable[httpcore2.SOCKET_OPTION],
) -> HttpConnection:
    """Connect to an address.

    Raises:
        httpcore2.ConnectError: no server listens there.
        httpcore2.ConnectTimeout: no server answers in time.
    """
    try:
        with anyio.fail_after(deadline):
            transport, connection = await asyncio.get_running_loop().create_connection(
                HttpConnection, address, port
            )
    except TimeoutError:
        raise httpcore2.ConnectTimeout("nobody answers") from None
    except OSError as error:
        raise httpcore2.ConnectError(str(error)) from error
    for option in options:
        transport.get_extra_info("socket").setsockopt(*option)
    return connection
