"""An entry of `mcpServers` with a `url`: a server that is reached over HTTP.

Knows how such an entry is spelled, and which spellings of a URL are clear to everybody; does not
know whether anything answers there.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import can_ada

from ironcurtain_proxy.config.reading.document import Members, Spot
from ironcurtain_proxy.config.reading.problems import shown
from ironcurtain_proxy.model.addresses import Network, is_public
from ironcurtain_proxy.model.remote import OAuthClient, OAuthGrant, RemoteEndpoint, RemoteTransport

REMOTE_KEYS: Final = (
    *("url", "type", "headers", "addresses", "proxy", "oauth"),
    *("description", "annotations", "stateful", "allowedDomains", "ask", "pins", "results"),
    "arguments",
)
_TRANSPORTS: Final[Mapping[str, RemoteTransport]] = {
    "http": "streamable-http",
    "streamable-http": "streamable-http",
    "streamableHttp": "streamable-http",
    "sse": "sse",
}
_OAUTH_KEYS: Final = ("clientId", "clientSecret", "issuer", "grant", "scope", "callbackPort")
_GRANTS: Final[tuple[OAuthGrant, ...]] = ("browser", "client-credentials")
NETWORK_TYPES: Final = frozenset(_TRANSPORTS)
_OURS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length"),
        *("content-type", "host", "last-event-id", "mcp-protocol-version", "mcp-session-id"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_TOKEN: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
)


def is_remote(entry: object) -> bool:
    """Whether an entry is one of a server that is reached over HTTP."""
    return (
        isinstance(entry, dict)
        and "command" not in entry
        and ("url" in entry or entry.get("type") in NETWORK_TYPES)
    )


def read_remote(members: Members) -> RemoteEndpoint:
    """The endpoint of an entry's server; mistakes are in the report."""
    addresses = members.read("addresses", lambda spot: spot.each(_network), ())
    url = _url(members.required("url"), addresses)
    proxy = members.get("proxy")
    return RemoteEndpoint(
        url=url,
        transport=members.read("type", _transport, "streamable-http"),
        headers=members.read("headers", _headers, {}),
        addresses=addresses,
        proxy=None if proxy is None else _proxy(proxy),
        oauth=None if (oauth := members.get("oauth")) is None else _oauth(oauth),
    )


def _transport(spot: Spot) -> RemoteTransport:
    return _TRANSPORTS[spot.word(tuple(_TRANSPORTS))]


def _url(spot: Spot, addresses: tuple[Network, ...]) -> str:
    text = spot.name()
    try:
        url = can_ada.parse(text)
    except ValueError:
        spot.error("is not a URL")
        return _NOWHERE
    if url.protocol not in {"http:", "https:"} or not url.hostname:
        spot.error("must begin with https:// (or http://, for a server on this machine)")
        return _NOWHERE
    if url.username or url.password:
        spot.error("must hold no user and password: name them in headers, from serverCredentials")
    elif url.hash:
        spot.error("must hold no fragment (#…)")
    elif not _is_spelled_out(text, url.hostname):
        spot.error(f"its host can be read in two ways: write {shown(url.hostname)}")
    elif url.protocol == "http:" and not addresses and not _is_near(url.hostname):
        spot.error("must be https: over http, everybody on the way reads and changes what is sent")
    return str(url.href)


_NOWHERE: Final = "https://invalid.invalid/"


def _is_spelled_out(text: str, host: str) -> bool:
    r"""Whether every reader of URLs finds this host in the text.

    `0x7f.1` is 127.0.0.1 to some, `https://a\@b/` leads to a or to b.
    """
    try:
        found = (urlsplit(text).hostname or "").removesuffix(".")
    except ValueError:
        return False
    if "\\" in text or found != host.strip("[]").removesuffix("."):
        return False
    try:
        address = ip_address(found)
    except ValueError:
        return True
    return address.version == 4 or address.ipv4_mapped is None  # noqa: PLR2004  as in IPv4


def _is_near(host: str) -> bool:
    """Whether a host is this machine, or an address of its network."""
    try:
        return not is_public(ip_address(host.strip("[]")))
    except ValueError:
        return host == "localhost"


def _network(spot: Spot) -> Network:
    try:
        return ip_network(spot.name())
    except ValueError:
        spot.error('must be an address, or a network such as "10.1.0.0/16"')
        return ip_network("192.0.2.0/32")


def _proxy(spot: Spot) -> str:
    text = spot.name()
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        spot.error('must be the URL of an HTTP proxy, such as "http://proxy.example:3128"')
    return text


def _headers(spot: Spot) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in spot.members().items():
        text = value.text()
        if not name or not _TOKEN.issuperset(name):
            value.error("is not a name for a header")
        elif name.lower() in _OURS:
            value.error("is a header of the protocol, which the proxy writes itself")
        elif not text.isprintable() or not text.isascii():
            value.error("must hold printable ASCII characters only")
        found[name] = text
    return found


def _oauth(spot: Spot) -> OAuthClient:
    members = spot.object(_OAUTH_KEYS, foreign=True)  # clients have the section, too
    grant: OAuthGrant = members.read("grant", lambda one: one.word(_GRANTS), "browser")
    secret = members.read("clientSecret", Spot.name, None)
    issuer = members.read("issuer", _issuer, None)
    if grant == "client-credentials" and secret is None:
        spot.error("needs a clientSecret for client-credentials")
    if secret is not None and issuer is None:
        spot.error("needs an issuer: the only authorization server that is shown the clientSecret")
    return OAuthClient(
        client_id=members.required("clientId").name(),
        issuer=issuer,
        client_secret=secret,
        grant=grant,
        scope=members.read("scope", Spot.name, None),
        callback_port=members.read("callbackPort", lambda one: one.whole(1, 65535), None),
    )


def _issuer(spot: Spot) -> str:
    text = spot.name()
    parts = urlsplit(text)
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        spot.error("must be the URL of an authorization server, as it calls itself")
    elif parts.scheme != "https" and not (parts.scheme == "http" and _is_near(parts.hostname)):
        spot.error("must be https: over http, everybody on the way reads what is sent")
    return text
