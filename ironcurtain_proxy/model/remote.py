"""A server that is reached over HTTP, as the operator configured it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from ironcurtain_proxy.model.addresses import Address, Network, is_public, is_within, plain

RemoteTransport: TypeAlias = Literal["streamable-http", "sse"]
"""`sse`: the transport before 2025-03-26, with a stream of its own for everything that arrives."""

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


OAuthGrant: TypeAlias = Literal["browser", "client-credentials"]
"""`client-credentials`: the proxy logs in by itself, as no person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """A client that the operator registered at an authorization server."""

    client_id: str
    issuer: str | None = None
    """The authorization server, as it calls itself: the secret goes nowhere else. None: there is
    no secret."""
    client_secret: str | None = field(default=None, repr=False)
    """`${NAME}` stands for the credential of that name."""
    grant: OAuthGrant = "browser"
    scope: str | None = None
    """The scope for `client-credentials`."""
    callback_port: int | None = None
    """The port of the redirect URI that was registered; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEndpoint:
    """The address of a server, and the way to reach it."""

    url: str
    """The URL in its canonical spelling."""
    transport: RemoteTransport = "streamable-http"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each request. `${NAME}` stands for the credential of that name."""
    addresses: tuple[Network, ...] = ()
    """Networks that the operator allows besides public addresses."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of an HTTP proxy; None: none, whatever the environment says."""

    oauth: OAuthClient | None = None
    """The client of OAuth; None: one is registered at the login, if the server wants one."""

    @property
    def has_authorization(self) -> bool:
        """Whether the operator's headers say who we are."""
        return any(name.lower() == "authorization" for name in self.headers)

    @property
    def host(self) -> str:
        """The host of its URL."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port of its URL."""
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    @property
    def origin(self) -> str:
        """Scheme, host and port, as in a URL."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def may_connect(self, address: Address, port: int) -> bool:
        """Whether a connection may be made for this server.

        To each public address, to those in `addresses`, and to what the URL spells out itself.
        """
        if is_public(address) or is_within(address, self.addresses):
            return True
        if port != self.port:
            return False
        if self.host == "localhost":
            return plain(address).is_loopback
        try:
            return ip_address(self.host) == address
        except ValueError:
            return False
