"""The addresses to which connections of one server are made.

A name is resolved once, every address is held against the operator's entry, and the connection goes
to an address that was held: a DNS answer that changes in between changes nothing. TLS still wants
the certificate of the name. Whatever asks for a connection, a redirect or the metadata of an
authorization server, comes through here.

The proxies that the environment names are not used: they would resolve the name again. Where the
operator names a proxy in the entry, that proxy chooses the address of a name; an address in a URL
is held here all the same.
"""

import socket
from ipaddress import ip_address
from typing import Final

import anyio
import httpx2

from ironcurtain_proxy.downstream.remote.connection import HttpConnection, SocketOption, connect
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.addresses import Address
from ironcurtain_proxy.model.remote import RemoteEndpoint

CONNECT: Final = 10.0
"""Seconds for one connection, and for its TLS handshake."""

_ALIVE: Final[tuple[SocketOption, ...]] = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""A stream on which nothing arrives, because the network has forgotten it, ends after a minute."""


class RefusedAddressError(ServerUnavailableError):
    """A connection that the operator's entry does not allow."""


class GuardedNetwork:
    """Makes the connections of one server."""

    def __init__(self, server: str, endpoint: RemoteEndpoint) -> None:
        self._server = server
        self._endpoint = endpoint

    async def connect(self, host: str, port: int) -> HttpConnection:
        """Connect to an address that may be connected to.

        Raises:
            RefusedAddressError: the name has an address that may not.
            httpx2.ConnectError: the name has no address, or no server listens there.
            httpx2.ConnectTimeout: no server answers in time.
        """
        found = _literal(host) or await _resolved(host, port)
        self._hold(host, port, found)
        return await _first(host, port, [*map(str, found)])

    async def connect_to_proxy(self, host: str, port: int) -> HttpConnection:
        """Connect to the operator's HTTP proxy, wherever that is.

        Raises:
            httpx2.ConnectError: it is not there.
            httpx2.ConnectTimeout: it does not answer in time.
        """
        return await _first(host, port, [host])

    def refuse_literal(self, host: str, port: int) -> None:
        """Hold the address that a URL spells out against the entry; a name passes.

        Raises:
            RefusedAddressError: it may not be connected to.
        """
        self._hold(host, port, _literal(host))

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


async def _first(host: str, port: int, addresses: list[str]) -> HttpConnection:
    """A connection to the first address at which somebody answers."""
    error: Exception = httpx2.ConnectError(f"{host} has no address")
    for address in dict.fromkeys(addresses):
        try:
            return await connect(address, port, CONNECT, _ALIVE)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as failed:
            error = failed
    raise error


async def _resolved(host: str, port: int) -> list[Address]:
    try:
        with anyio.fail_after(CONNECT):
            answer = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        raise httpx2.ConnectError(f"{host} has no address") from None
    return [ip_address(str(one[4][0]).partition("%")[0]) for one in answer]


def _literal(host: str) -> list[Address]:
    try:
        return [ip_address(host.strip("[]"))]
    except ValueError:
        return []
