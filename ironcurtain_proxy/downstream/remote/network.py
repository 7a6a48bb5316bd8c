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

from ironcurtain_proxy.downstream.remote.connection import connect
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.addresses import Address
from ironcurtain_proxy.model.remote import RemoteEndpoint
from ironcurtain_proxy.version import VERSION

CONNECT: Final = 10.0
"""Seconds for one connection, with its TLS handshake."""

_SEND: Final = 60.0
"""Seconds without progress of a write, after which it fails."""

PATIENCE: Final = {"timeout": {"connect": CONNECT, "read": None, "write": _SEND, "pool": CONNECT}}
"""The timeouts of one request. The caller limits the time of the whole answer."""

USER_AGENT: Final = f"ironcurtain-proxy/{VERSION}"

_MOST: Final = 200
"""Connections: each request that waits for its answer holds one."""

_KEPT: Final = 16
"""The most idle connections that stay open."""

_IDLE: Final = 60.0
"""Seconds after which an idle connection is closed."""

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

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to an address that may be connected to.

        Raises:
            RefusedAddressError: the name has an address that may not.
        """
        error: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in await self._addresses(host, port):
            try:
                return await connect(address, port, timeout, socket_options or ())
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
def as_httpx() -> Iterator[None]:
    """Translate errors of the transport to the client's errors, which have the same names."""
    try:
        yield
    except _FAULTS as error:
        kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise kind(str(error)) from error


def _proxy(text: str) -> httpcore2.Proxy:
    url = httpx2.URL(text)
    user = (url.username, url.password) if url.username else None
    return httpcore2.Proxy(f"{url.scheme}://{url.netloc.decode()}", auth=user)


class GuardedPool:
    """The connections of one server, and single requests over them."""

    def __init__(self, server: str, endpoint: RemoteEndpoint) -> None:
        self._endpoint = endpoint
        self._guard = GuardedBackend(server, endpoint)
        context: ssl.SSLContext = httpx2.create_ssl_context()
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            proxy=None if endpoint.proxy is None else _proxy(endpoint.proxy),
            max_connections=_MOST,
            max_keepalive_connections=_KEPT,
            keepalive_expiry=_IDLE,
            network_backend=(
                self._guard if endpoint.proxy is None else ProxiedBackend(server, endpoint)
            ),
            socket_options=_ALIVE,
        )

    async def send(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send one request; its answer's body is still to be read.

        Raises:
            httpx2.TransportError: it cannot be sent, or nothing comes back.
            RefusedAddressError: it would go where it must not.
        """
        if self._endpoint.proxy is not None:
            url = request.url
            scheme = url.scheme.decode("ascii")
            self._guard.refuse_literal(url.host.decode("ascii"), url.port or _PORTS.get(scheme, 0))
        with as_httpx():
            return await self._pool.handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with as_httpx():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """`httpx2`'s transport over guarded connections, for requests that are not messages of MCP."""

    def __init__(self, pool: GuardedPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; its answer's body is still to be read."""
        url = request.url
        if not isinstance(request.stream, httpx2.AsyncByteStream):
            raise TypeError("a body that can be sent")
        answer = await self._pool.send(
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
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=body_of(answer),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


def body_of(answer: httpcore2.Response) -> httpx2.AsyncByteStream:
    """The body of an answer, as it arrives."""
    if not isinstance(answer.stream, AsyncIterable):
        raise TypeError("a body that can be read")
    return _Body(answer.stream)


def open_client(pool: GuardedPool) -> httpx2.AsyncClient:
    """A client that follows no redirect and knows no variable of the environment."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(pool),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_SEND, connect=CONNECT, read=None, pool=CONNECT),
        follow_redirects=False,
        trust_env=False,
    )
