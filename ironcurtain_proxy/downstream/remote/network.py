"""The HTTP client of one server, and the only connections that it makes.

A name is resolved once, every address is held against the operator's entry, and the connection goes
to an address that was held: a DNS answer that changes in between changes nothing. TLS still wants
the certificate of the name. Whatever asks for a connection, a redirect or the metadata of an
authorization server, comes through here.

The proxies that the environment names are not used: they would resolve the name again. Where the
operator names a proxy in the entry, that proxy chooses the address of a name; an address in a URL
is held here all the same.
"""

import contextlib
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from ipaddress import ip_address
from typing import Final

import anyio
import httpcore2
import httpx2
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream

from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.addresses import Address
from ironcurtain_proxy.model.remote import RemoteEndpoint
from ironcurtain_proxy.version import VERSION

CONNECT: Final = 10.0
"""Seconds for one connection, with its TLS handshake."""

_SEND: Final = 60.0
"""Seconds in which the other side takes nothing of what it is sent."""

_MOST: Final = 200
"""Connections: each request that waits for its answer holds one."""

_IDLE: Final = 60.0
"""Seconds after which a connection that nobody uses is closed."""

_ALIVE: Final[tuple[tuple[int, int, int], ...]] = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""A stream on which nothing arrives, because the network has forgotten it, ends after a minute."""


_PORTS: Final = {"http": 80, "https": 443}
_FAULTS: Final = (
    *(httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError),
    *(httpcore2.ProxyError, httpcore2.UnsupportedProtocol),
)


class RefusedAddressError(ServerUnavailableError):
    """A connection that the operator's entry does not allow."""


class GuardedBackend(AsyncNetworkBackend):
    """Makes the connections of one server."""

    def __init__(self, server: str, endpoint: RemoteEndpoint) -> None:
        self._server = server
        self._endpoint = endpoint
        self._plain: AsyncNetworkBackend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to an address that may be connected to.

        Raises:
            RefusedAddressError: the name has an address that may not.
        """
        error: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in await self._addresses(host, port):
            try:
                return await self._plain.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                error = failed
        raise error

    async def _addresses(self, host: str, port: int) -> list[str]:
        found = _literal(host)
        if not found:
            try:
                with anyio.fail_after(CONNECT):
                    answer = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, TimeoutError, UnicodeError):
                raise httpcore2.ConnectError(f"{host} has no address") from None
            found = [ip_address(str(one[4][0]).partition("%")[0]) for one in answer]
        self._hold(host, port, found)
        return list(dict.fromkeys(map(str, found)))

    def refuse_literal(self, host: str, port: int) -> None:
        """Hold the address that a URL spells out against the entry; a name passes.

        Raises:
            RefusedAddressError: it may not be connected to.
        """
        self._hold(host, port, _literal(host))

    def _hold(self, host: str, port: int, found: list[Address]) -> None:
        for address in found:
            # All of them, or a name with two addresses is an attempt for each.
            if not self._endpoint.may_connect(address, port):
                spelled = host if host == str(address) else f"{host} leads to {address}, which"
                raise RefusedAddressError(
                    f'server "{self._server}": {spelled} is no public address, and its entry does '
                    "not name it in addresses"
                )

    async def connect_unix_socket(
        self,
        path: str,  # noqa: ARG002  httpcore's signature
        timeout: float | None = None,  # noqa: ARG002, ASYNC109
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> AsyncNetworkStream:
        """Refuse."""
        raise RefusedAddressError(f'server "{self._server}" has no socket on this machine')

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await anyio.sleep(seconds)


class ProxiedBackend(GuardedBackend):
    """Makes connections to the operator's HTTP proxy, wherever that is."""

    async def _addresses(self, host: str, port: int) -> list[str]:  # noqa: ARG002  see below
        return [host]


def _literal(host: str) -> list[Address]:
    try:
        return [ip_address(host.strip("[]"))]
    except ValueError:
        return []


@contextlib.contextmanager
def _as_httpx() -> Iterator[None]:
    """What goes wrong below, in the words of the client above: the names are the same."""
    try:
        yield
    except _FAULTS as error:
        kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise kind(str(error)) from error


def _proxy(text: str) -> httpcore2.Proxy:
    url = httpx2.URL(text)
    user = (url.username, url.password) if url.username else None
    return httpcore2.Proxy(f"{url.scheme}://{url.netloc.decode()}", auth=user)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """`httpx2`'s transport over guarded connections."""

    def __init__(self, server: str, endpoint: RemoteEndpoint) -> None:
        self._endpoint = endpoint
        self._guard = GuardedBackend(server, endpoint)
        context: ssl.SSLContext = httpx2.create_ssl_context()
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            proxy=None if endpoint.proxy is None else _proxy(endpoint.proxy),
            max_connections=_MOST,
            keepalive_expiry=_IDLE,
            network_backend=(
                self._guard if endpoint.proxy is None else ProxiedBackend(server, endpoint)
            ),
            socket_options=_ALIVE,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; its answer's body is still to be read."""
        url = request.url
        if self._endpoint.proxy is not None:
            self._guard.refuse_literal(url.host, url.port or _PORTS.get(url.scheme, 0))
        if not isinstance(request.stream, httpx2.AsyncByteStream):
            raise TypeError("a body that can be sent")
        with _as_httpx():
            answer = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        if not isinstance(answer.stream, AsyncIterable):
            raise TypeError("a body that can be read")
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


def open_client(server: str, endpoint: RemoteEndpoint) -> httpx2.AsyncClient:
    """A client that follows no redirect and knows no variable of the environment."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(server, endpoint),
        headers={"User-Agent": f"ironcurtain-proxy/{VERSION}", "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_SEND, connect=CONNECT, read=None, pool=CONNECT),
        follow_redirects=False,
        trust_env=False,
    )
