"""The HTTP connections of one server, each to an address that its entry allows.

httpx2 and httpcore2 carry requests; where they connect to is decided here. A name is resolved once,
every address is held against the operator's entry, and the connection goes to an address that was
held: a DNS answer that changes in between changes nothing. TLS still wants the certificate of the
name. Whatever asks for a connection, a redirect or the metadata of an authorization server, comes
through here.

The proxies that the environment names are not used: they would resolve the name again. Where the
operator names a proxy in the entry, that proxy chooses the address of a name; an address in a URL
is held here all the same.
"""

import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from time import thread_time
from typing import Final, cast

import anyio
import httpcore2
import httpx2

from ironcurtain_proxy.downstream.conversation import TURN, Pace, rest
from ironcurtain_proxy.downstream.session_log import Allowance
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.server import Address, RemoteEndpoint
from ironcurtain_proxy.version import VERSION

USER_AGENT: Final = f"ironcurtain-proxy/{VERSION}"

CONNECT: Final = 10.0
"""Seconds for one connection, for its TLS handshake, and for a turn among many requests."""

_SEND: Final = 60.0
"""Seconds for one piece of a message to be taken."""

_MOST: Final = 200
"""Requests at once: each that waits for its answer holds a connection."""

_KEPT: Final = 16
_IDLE: Final = 60.0
"""The most idle connections that stay open, and for how many seconds."""

_ALIVE: Final[tuple[httpcore2.SOCKET_OPTION, ...]] = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""A stream on which nothing arrives, because the network has forgotten it, ends after a minute."""


_LEAST, _MOST_READ = 1024, 1 << 16
"""Bytes that are read at once."""


class RefusedAddressError(ServerUnavailableError):
    """A connection that the operator's entry does not allow."""


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Makes the connections of one server."""

    def __init__(self, server: str, endpoint: RemoteEndpoint) -> None:
        self._server, self._endpoint = server, endpoint
        self._real, self._pace = httpcore2.AnyIOBackend(), Pace()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the library's interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to an address that may be connected to, or to the operator's proxy.

        Raises:
            RefusedAddressError: the name has an address that may not.
            httpcore2.ConnectError: the name has no address, or no server listens there.
            httpcore2.ConnectTimeout: no server answers in time.
        """
        # With a proxy in the entry, the library connects only to it, wherever it is.
        addresses = [host]
        if self._endpoint.proxy is None:
            held = _literal(host) or await _resolved(host, port)
            self._hold(host, port, held)
            addresses = [*map(str, held)]
        error: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in dict.fromkeys(addresses):
            try:
                found = await self._real.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
                return _PacedStream(found, self._pace)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                error = failed
        raise error

    def refuse_literal(self, host: str, port: int) -> None:
        """Hold the address that a URL spells out against the entry; a name passes but `localhost`.

        Raises:
            RefusedAddressError: it may not be connected to.
        """
        is_here = host.rstrip(".").rpartition(".")[2] == "localhost"
        self._hold(host, port, _literal("127.0.0.1" if is_here else host))

    def _hold(self, host: str, port: int, found: list[Address]) -> None:
        for address in found:
            # Every address must be open: else a name with two addresses gives a server two
            # attempts.
            if not self._endpoint.may_connect(address, port):
                spelled = host if host == str(address) else f"{host} leads to {address}, which"
                raise RefusedAddressError(
                    f'server "{self._server}": {spelled} is no public address, and its entry does '
                    "not name it in addresses"
                )


class _PacedStream(httpcore2.AsyncNetworkStream):
    """A connection of which little is read at a time, and seldom, where that takes long.

    Attack: a server sends answers of 1xx, empty events, comments or ids without end. Nobody is told
    of them, but a piece of them takes the time of a hundred calls of other servers.
    """

    def __init__(self, real: httpcore2.AsyncNetworkStream, pace: Allowance) -> None:
        self._real, self._pace = real, pace
        self.aclose, self.get_extra_info = real.aclose, real.get_extra_info  # type: ignore[method-assign]
        self._most = _MOST_READ
        self._read_at: float | None = None
        """When bytes came last, or None if nothing has come since something was sent."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Read, after a pause if the bytes before took long."""
        taken = 0.0 if self._read_at is None else thread_time() - self._read_at
        is_long = taken > TURN
        self._most = max(self._most >> 1, _LEAST) if is_long else min(self._most << 1, _MOST_READ)
        if is_long:
            await rest(self._pace, taken)
        found = await self._real.read(min(max_bytes, self._most), timeout)
        self._read_at = thread_time()
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Send."""
        self._read_at = None
        await self._real.write(buffer, timeout)

    async def start_tls(self, *given: object, **named: object) -> httpcore2.AsyncNetworkStream:
        """Read from then on what is in TLS."""
        return _PacedStream(await self._real.start_tls(*given, **named), self._pace)  # type: ignore[arg-type]


async def _resolved(host: str, port: int) -> list[Address]:
    try:
        with anyio.fail_after(CONNECT):
            answer = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        raise httpcore2.ConnectError(f"{host} has no address") from None
    return [ip_address(str(one[4][0]).partition("%")[0]) for one in answer]


def _literal(host: str) -> list[Address]:
    """Return the address that a host spells out, in any form that a resolver reads, as `127.1`."""
    bare = host.strip("[]").rstrip(".")
    with suppress(ValueError, OSError):
        return [ip_address(bare if ":" in bare else socket.inet_aton(bare))]
    return []


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests over guarded connections, and keeps these for the next request.

    It is not built on `httpx2.AsyncHTTPTransport`, whose network cannot be set from outside.
    """

    def __init__(self, server: str, endpoint: RemoteEndpoint) -> None:
        self._network = GuardedNetwork(server, endpoint)
        self._proxy = None if endpoint.proxy is None else httpx2.URL(endpoint.proxy)
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the body of its response is still to be read.

        Raises:
            httpx2.TransportError: it cannot be sent, or no response comes.
            RefusedAddressError: it would go where it must not.
        """
        url = request.url
        # A port has 16 bits; the library takes others, too.
        if url.scheme not in {"http", "https"} or not url.host or (url.port or 0) >> 16:
            raise httpx2.UnsupportedProtocol("only http:// and https:// are spoken")
        if self._proxy is not None:
            self._network.refuse_literal(url.host, url.port or (443, 80)[url.scheme == "http"])
        with _as_httpx2():
            found = await self._pool(url.scheme).handle_async_request(
                httpcore2.Request(
                    request.method,
                    _core_url(url),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions={"timeout": {"connect": CONNECT, "pool": CONNECT, "write": _SEND}},
                )
            )
        return httpx2.Response(
            found.status,
            headers=found.headers,
            stream=_Body(cast("AsyncIterable[bytes]", found.stream)),
            request=request,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        with _as_httpx2():
            for pool in self._pools.values():
                await pool.aclose()

    def _pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        # Reading the authorities of TLS takes longer than a call; http:// needs none of them.
        if scheme not in self._pools:
            trusted = httpx2.create_ssl_context() if scheme == "https" else None
            self._pools[scheme] = self._new_pool(trusted)
        return self._pools[scheme]

    def _new_pool(self, trusted: ssl.SSLContext | None) -> httpcore2.AsyncConnectionPool:
        proxy = self._proxy
        make: Callable[..., httpcore2.AsyncConnectionPool] = httpcore2.AsyncConnectionPool
        if proxy is not None:
            name = (proxy.username.encode(), proxy.password.encode())
            make = partial(
                httpcore2.AsyncHTTPProxy,
                _core_url(proxy),
                proxy_auth=name if proxy.username else None,
                proxy_ssl_context=httpx2.create_ssl_context() if proxy.scheme == "https" else None,
            )
        return make(
            ssl_context=trusted,
            max_connections=_MOST,
            max_keepalive_connections=_KEPT,
            keepalive_expiry=_IDLE,
            network_backend=self._network,
            socket_options=_ALIVE,
        )


class _Body(httpx2.AsyncByteStream):
    """The body of a response as it arrives."""

    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx2():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


def _core_url(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )


_FAULTS: Final = (
    *(httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError),
    *(httpcore2.ProxyError, httpcore2.UnsupportedProtocol),
)


@contextmanager
def _as_httpx2() -> Iterator[None]:
    """Turn an error of the lower library into the one of the same name of the upper."""
    try:
        yield
    except _FAULTS as error:
        name = type(error).__name__
        kind: type[httpx2.TransportError] = getattr(httpx2, name, httpx2.TransportError)
        # A proxy's own words may be the password that it was given.
        said = f"its proxy answers {str(error)[:3]}" if name == "ProxyError" else str(error)
        raise kind(said) from error


async def body_of(response: httpx2.Response, largest: int) -> bytes | None:
    """Read a whole body, and close it; return None if it is larger."""
    body = bytearray()
    try:
        async for part in response.aiter_raw():
            body += part
            if len(body) > largest:
                return None
    finally:
        await response.aclose()
    return bytes(body)


def open_client(transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    """Return a client for requests that are not messages of MCP.

    It follows no redirect and knows no variable of the environment. The caller limits the time of
    the whole answer.
    """
    return httpx2.AsyncClient(
        transport=transport,
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        timeout=None,
        follow_redirects=False,
        trust_env=False,
    )
