"""One connection to a server, with or without TLS, which carries one request at a time.

A protocol of asyncio: streams cost a task's worth of work for each read. Head and body of a request
leave in one packet.
"""

import asyncio  # noqa: TID251  protocols and transports, as in `jsonrpc.pipes`
import select
import ssl
import time
from collections.abc import Iterable
from typing import Final, TypeAlias

import anyio
import httpx2

from ironcurtain_proxy.downstream.remote.response_parser import ResponseParser

SocketOption: TypeAlias = tuple[int, int, int]

_ENOUGH: Final = 1 << 18
"""Bytes of a body that wait for whoever reads; the socket is not read meanwhile."""

_JOINED: Final = 1 << 16
"""Bytes of a body up to which it is copied behind its head."""

_EARLY: Final = "bytes came before the connection was secured"


class HttpConnection(asyncio.Protocol):
    """Made by `connect`. One task at a time asks, and reads the response."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        """The end of the last request, by the monotonic clock."""
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        """The response that is being read; None: nothing was asked."""
        self._fault: httpx2.TransportError | None = None
        self._is_early = False
        self._is_paused = False
        self._is_full = False
        self._change: asyncio.Future[None] | None = None

    # --- one request

    async def ask(
        self, head: bytes, content: bytes, patience: float, *, is_tunnel: bool = False
    ) -> ResponseParser:
        """Send a request, and read the head of its response.

        Args:
            head: the head of the request.
            content: its body.
            patience: seconds without progress of the write.
            is_tunnel: the request is CONNECT.

        Raises:
            httpx2.TransportError: the request is not taken, or no response comes.
        """
        parser = self._parser = ResponseParser(is_tunnel=is_tunnel)
        transport = self._transport
        if transport is None or transport.is_closing():
            raise httpx2.WriteError("the connection was closed")
        if len(content) <= _JOINED:
            transport.write(head + content)
        else:
            transport.write(head)
            transport.write(content)
        if self._is_full:
            await self._until_taken(transport, parser, patience)
        while not parser.status:
            await self._until_change()
        return parser

    async def read(self) -> bytes:
        """The next part of the body; empty: the body has ended.

        Raises:
            httpx2.TransportError: the response breaks off.
        """
        parser = self._parser
        if parser is None:
            return b""
        while not parser.size:
            if parser.is_complete:
                return b""
            await self._until_change()
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return parser.take()

    def finish(self) -> bool:
        """End the request, whatever is under way. False: the connection is closed."""
        parser, self._parser = self._parser, None
        if parser is not None:
            parser.close()
        transport = self._transport
        if (
            parser is None
            or transport is None
            or transport.is_closing()
            or not (parser.is_complete and parser.is_kept)
            or transport.get_write_buffer_size()
        ):
            self.close()
            return False
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
        self.idle_since = time.monotonic()
        return True

    # --- the connection

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent: nothing came unasked, and nobody has closed."""
        if self._transport is None or self._transport.is_closing():
            return False
        # The event loop may not have seen yet that the other side has closed.
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(self, context: ssl.SSLContext, name: str, patience: float) -> None:
        """Secure the connection.

        Args:
            context: the authorities that are trusted.
            name: the name in the certificate.
            patience: seconds for the handshake.

        Raises:
            httpx2.ConnectError: it cannot be secured.
        """
        if self._is_early:
            # Attack: whoever is on the way adds an answer, which would be read as the server's.
            self.close()
            raise httpx2.ConnectError(_EARLY)
        if self._transport is None or self._transport.is_closing():
            raise httpx2.ConnectError("the connection was closed")
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                context,
                server_hostname=name,
                ssl_handshake_timeout=patience,
            )
        except OSError as error:  # with those of TLS
            self.close()
            raise httpx2.ConnectError(str(error)) from error
        except BaseException:
            self.close()
            raise
        if transport is None:
            raise httpx2.ConnectError("the connection was closed")
        self._transport = transport

    # --- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection. Called by the event loop."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a connection reads and writes")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take bytes that have arrived. Called by the event loop."""
        parser = self._parser
        if parser is None:
            self._is_early = True
            self.close()
            return
        try:
            parser.feed(data)
        except httpx2.RemoteProtocolError as error:
            self._fault = error
            self.close()
        if parser.size >= _ENOUGH and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Note that nothing more arrives; the transport closes. Called by the event loop."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection. Called by the event loop."""
        self._transport, self._is_full = None, False
        self._end(exc)

    def pause_writing(self) -> None:
        """Note that the other side does not keep up. Called by the event loop."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Note that the other side takes bytes again. Called by the event loop."""
        self._is_full = False
        self._wake()

    # --- inside

    def _end(self, exc: Exception | None) -> None:
        if self._parser is not None and self._fault is None:
            try:
                self._parser.end()
            except httpx2.RemoteProtocolError as error:
                self._fault = error if exc is None else httpx2.ReadError(str(exc))
        self._wake()

    async def _until_taken(
        self, transport: asyncio.Transport, parser: ResponseParser, patience: float
    ) -> None:
        """Wait until the request has left, or until a response comes before that."""
        left = transport.get_write_buffer_size()
        while self._is_full and not parser.status:
            with anyio.move_on_after(patience) as waited:
                await self._until_change()
            if waited.cancelled_caught:
                now = transport.get_write_buffer_size()
                if now >= left:
                    raise httpx2.WriteTimeout("nothing is taken")
                left = now

    async def _until_change(self) -> None:
        """Wait until something has happened.

        Raises:
            httpx2.TransportError: the connection is no use any more.
        """
        if self._fault is not None:
            raise self._fault
        if self._transport is None:
            raise httpx2.ReadError("the connection was closed")
        self._change = asyncio.get_running_loop().create_future()
        try:
            await self._change
        finally:
            self._change = None

    def _wake(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)


async def connect(
    address: str, port: int, patience: float, options: Iterable[SocketOption]
) -> HttpConnection:
    """Connect to an address.

    Raises:
        httpx2.ConnectError: no server listens there.
        httpx2.ConnectTimeout: no server answers in time.
    """
    try:
        with anyio.fail_after(patience):
            transport, connection = await asyncio.get_running_loop().create_connection(
                HttpConnection, address, port
            )
    except TimeoutError:
        raise httpx2.ConnectTimeout("nobody answers") from None
    except OSError as error:
        raise httpx2.ConnectError(str(error)) from error
    for option in options:
        transport.get_extra_info("socket").setsockopt(*option)
    return connection
