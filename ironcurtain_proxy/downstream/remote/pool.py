"""The connections of one server: which are open, and which one a request takes.

A connection belongs to one origin. It is open for one request at a time, and kept for the next of
its origin if its response was read whole.
"""

import base64
import re
import ssl
from collections import deque
from collections.abc import Iterable
from functools import cached_property
from time import monotonic
from typing import Final, TypeAlias

import anyio
import httpx2

from ironcurtain_proxy.downstream.remote.connection import HttpConnection
from ironcurtain_proxy.downstream.remote.network import CONNECT, GuardedNetwork
from ironcurtain_proxy.downstream.remote.response import Response
from ironcurtain_proxy.model.remote import RemoteEndpoint

_SEND: Final = 60.0
"""Seconds without progress of a write, after which it fails."""

_MOST: Final = 200
"""Requests at once: each that waits for its answer holds a connection."""

_KEPT: Final = 16
"""The most idle connections that stay open."""

_IDLE: Final = 60.0
"""Seconds after which an idle connection is closed."""

_PORTS: Final = {"http": 80, "https": 443}

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
_Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host and port."""

_HEAD: Final = re.compile(
    rb"[A-Z]+ [\x21-\x7e]+ HTTP/1\.1\r\n"
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\t\x20-\x7e\x80-\xff]*\r\n)*"
)


class GuardedPool:
    """The connections of one server, each to an address that may be connected to."""

    def __init__(self, server: str, endpoint: RemoteEndpoint) -> None:
        """Open no connection yet.

        Args:
            server: the server's name.
            endpoint: its address, and the way to it.
        """
        self._network = GuardedNetwork(server, endpoint)
        self._proxy = None if endpoint.proxy is None else httpx2.URL(endpoint.proxy)
        self._turns = anyio.CapacityLimiter(_MOST)
        self._idle: dict[_Origin, deque[HttpConnection]] = {}
        self._busy: set[HttpConnection] = set()

    async def send(
        self, method: str, url: httpx2.URL, headers: Headers, content: bytes = b""
    ) -> Response:
        """Send one request; the body of its response is still to be read.

        Args:
            method: its method.
            url: where it goes.
            headers: all of its headers.
            content: its body.

        Raises:
            httpx2.TransportError: it cannot be sent, or no response comes.
            RefusedAddressError: it would go where it must not.
        """
        origin = _origin(url)
        target = url.raw_path
        if self._proxy is not None:
            self._network.refuse_literal(origin[1], origin[2])
            if origin[0] == "http":
                target = b"http://" + url.netloc + target
                headers = [*headers, *_proof(self._proxy)]
        head = head_of(method, target, headers)
        turn = object()
        await self._take_turn(turn)
        connection: HttpConnection | None = None
        try:
            connection = self._kept(origin) or await self._opened(origin)
            self._busy.add(connection)
            parser = await connection.ask(head, content, _SEND)
        except BaseException:
            self._release(origin, connection, turn)
            raise
        held = connection

        def release() -> None:
            self._release(origin, held, turn)

        return Response(parser.status, parser.headers, connection.read, release)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._busy.union(*self._idle.values()):
            connection.close()
        self._idle = {}

    # --- which connection

    async def _take_turn(self, turn: object) -> None:
        try:
            self._turns.acquire_on_behalf_of_nowait(turn)
        except anyio.WouldBlock:
            try:
                with anyio.fail_after(CONNECT):
                    await self._turns.acquire_on_behalf_of(turn)
            except TimeoutError:
                raise httpx2.PoolTimeout("too many requests wait for their answers") from None

    def _kept(self, origin: _Origin) -> HttpConnection | None:
        """An open connection that was used last; others live on while they are young."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_usable and monotonic() - connection.idle_since < _IDLE:
                return connection
            connection.close()
        return None

    def _release(self, origin: _Origin, connection: HttpConnection | None, turn: object) -> None:
        self._turns.release_on_behalf_of(turn)
        if connection is None:
            return
        self._busy.discard(connection)
        if not connection.finish():
            return
        idle = self._idle.setdefault(origin, deque())
        idle.append(connection)
        oldest = idle[0]
        if sum(map(len, self._idle.values())) > _KEPT or (
            connection.idle_since - oldest.idle_since >= _IDLE
        ):
            idle.popleft().close()

    async def _opened(self, origin: _Origin) -> HttpConnection:
        """A new connection to an origin, or to the proxy that leads to it."""
        scheme, host, port = origin
        if self._proxy is None:
            connection = await self._network.connect(host, port)
        else:
            at, name, proxy_port = _origin(self._proxy)
            connection = await self._network.connect_to_proxy(name, proxy_port)
            if at == "https":
                await connection.start_tls(self._trusted, name, CONNECT)
            if scheme == "https":
                await _tunnel(connection, self._proxy, host, port)
        if scheme == "https":
            await connection.start_tls(self._trusted, host, CONNECT)
        return connection

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return httpx2.create_ssl_context()


async def _tunnel(connection: HttpConnection, proxy: httpx2.URL, host: str, port: int) -> None:
    """Have a proxy lead a connection to a host.

    Raises:
        httpx2.ProxyError: it does not.
    """
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    said = [(b"host", place.encode()), (b"accept", b"*/*"), *_proof(proxy)]
    try:
        with anyio.fail_after(CONNECT):
            answer = await connection.ask(
                head_of("CONNECT", place.encode(), said), b"", CONNECT, is_tunnel=True
            )
    except TimeoutError:
        connection.close()
        raise httpx2.ProxyError("the proxy does not answer") from None
    except BaseException:
        connection.close()
        raise
    if not 200 <= answer.status < 300:  # noqa: PLR2004
        connection.close()
        raise httpx2.ProxyError(f"the proxy answered with status {answer.status}")
    if not connection.finish():
        # Attack: an answer from before TLS, which would be read as the server's.
        raise httpx2.ProxyError("bytes came before the connection was secured")


def head_of(method: str, target: bytes, headers: Headers) -> bytes:
    r"""The head of a request, with the empty line.

    Raises:
        httpx2.LocalProtocolError: a name or a value is no header's: `\r\n` would begin another one.
    """
    lines = [b"%s: %s\r\n" % one for one in headers]
    head = b"%s %s HTTP/1.1\r\n%s" % (method.encode(), target, b"".join(lines))
    if _HEAD.fullmatch(head) is None or head.count(b"\n") != len(lines) + 1:
        raise httpx2.LocalProtocolError("a header cannot be sent as it is")
    return head + b"\r\n"


def _origin(url: httpx2.URL) -> _Origin:
    scheme = url.scheme
    if scheme not in _PORTS or not url.raw_host:
        raise httpx2.UnsupportedProtocol("only http:// and https:// are spoken")
    return scheme, url.raw_host.decode("ascii"), url.port or _PORTS[scheme]


def _proof(proxy: httpx2.URL) -> Headers:
    """The credentials in the URL of a proxy."""
    if not proxy.username:
        return []
    pair = f"{proxy.username}:{proxy.password}".encode()
    return [(b"proxy-authorization", b"Basic " + base64.b64encode(pair))]
