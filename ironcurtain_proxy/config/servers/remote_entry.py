"""An entry of `mcpServers` with a `url`: a server that is reached over HTTP.

Knows how such an entry is spelled, and which spellings of a URL are clear to everybody; does not
know whether anything answers there.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, field

from ironcurtain_proxy.config.reading.document import shown
from ironcurtain_proxy.config.reading.forms import (
    CheckedForm,
    Form,
    FormMistake,
    Maybe,
    NameText,
    SharedForm,
    says,
)
from ironcurtain_proxy.model.policy import AskKind
from ironcurtain_proxy.model.server import (
    Network,
    OAuthClient,
    OAuthGrant,
    PinMode,
    RemoteEndpoint,
    RemoteTransport,
    ResultRules,
    ShownTools,
    is_public,
)

_TRANSPORTS: Final[Mapping[str, RemoteTransport]] = {
    "http": "streamable-http",
    "streamable-http": "streamable-http",
    "streamableHttp": "streamable-http",
    "sse": "sse",
}
NETWORK_TYPES: Final = frozenset(_TRANSPORTS)
_OURS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length"),
        *("content-type", "host", "last-event-id", "mcp-protocol-version", "mcp-session-id"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_HeaderName: TypeAlias = Annotated[
    str, says(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+", "is not a name for a header")
]
_HeaderText: TypeAlias = Annotated[
    str, says(r"[ -~]*", "must hold printable ASCII characters only")
]
_AskWord: TypeAlias = Literal["form", "url", "sampling", "sampling-tools", "none"]
AskForm: TypeAlias = _AskWord | tuple[AskKind, ...]
"""The questions that a server may ask: one word, or a list of words; `none` allows none."""


def asked(said: AskForm) -> tuple[AskKind, ...]:
    """Return the questions that a server may ask."""
    if isinstance(said, tuple):
        return said
    return () if said == "none" else (said,)


class ArgumentsForm(Form, frozen=True, kw_only=True):
    """What is asked about the arguments of a server's calls."""

    ask_about_secrets: bool = False
    """Ask a person about calls that would send the server a secret."""


class BaseEntryForm(CheckedForm, frozen=True, kw_only=True):
    """What every entry may say."""

    description: str = ""
    annotations: Maybe[NameText] = UNSET
    """The server's name in policy and annotations."""
    ask: AskForm = ()
    """The questions of its own that the server may put to the user."""
    pins: Maybe[PinMode] = UNSET
    """The treatment of changed descriptions; the setting for all servers if absent."""
    results: ResultRules = ResultRules()
    tools: ShownTools | tuple[NameText, ...] = ShownTools()
    """A list names what is allowed, as some clients write it."""


class EntryForm(BaseEntryForm, frozen=True, kw_only=True):
    """What the entry of a server may say that is somebody else's."""

    stateful: bool = False
    """The server keeps state between calls, so no second instance carries out one of them."""
    arguments: ArgumentsForm = ArgumentsForm()


def is_remote(entry: object) -> bool:
    """Return whether an entry is one of a server that is reached over HTTP."""
    return (
        isinstance(entry, dict)
        and "command" not in entry
        and ("url" in entry or entry.get("type") in NETWORK_TYPES)
    )


class OAuthForm(SharedForm, frozen=True, kw_only=True):
    """The client that the operator registered at an authorization server."""

    client_id: NameText
    client_secret: Maybe[NameText] = UNSET
    """`${NAME}` stands for the credential of that name."""
    issuer: Maybe[NameText] = UNSET
    """The authorization server, as it calls itself: the secret goes nowhere else."""
    grant: OAuthGrant = "browser"
    scope: Maybe[NameText] = UNSET
    """The scope for `client-credentials`."""
    callback_port: Maybe[Annotated[int, Meta(ge=1, le=65535)]] = UNSET
    """The port of the redirect URI that was registered; any if absent."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield an issuer that is none, and a secret without the server that may see it."""
        if self.issuer and (message := _issuer_mistake(self.issuer)):
            yield ("issuer",), message, ""
        if self.grant == "client-credentials" and self.client_secret is UNSET:
            yield (), "needs a clientSecret for client-credentials", ""
        if self.client_secret is not UNSET and self.issuer is UNSET:
            message = "the only authorization server that is shown the clientSecret"
            yield (), f"needs an issuer: {message}", ""

    def client(self) -> OAuthClient:
        """Return the client."""
        return OAuthClient(
            client_id=self.client_id,
            issuer=self.issuer or None,
            client_secret=self.client_secret or None,
            grant=self.grant,
            scope=self.scope or None,
            callback_port=self.callback_port or None,
        )


class RemoteForm(EntryForm, frozen=True, kw_only=True):
    """A server that is reached over HTTP."""

    url: NameText
    type: Literal["http", "streamable-http", "streamableHttp", "sse"] = "http"
    headers: dict[_HeaderName, _HeaderText] = field(default_factory=dict)
    """Sent with each request. `${NAME}` stands for the credential of that name."""
    addresses: tuple[NameText, ...] = ()
    """Networks that are allowed besides public addresses."""
    proxy: Maybe[NameText] = UNSET
    """The URL of an HTTP proxy."""
    oauth: Maybe[OAuthForm] = UNSET
    allowed_domains: tuple[NameText, ...] = ()
    """The allowlist of the policy's domain gate."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield addresses that are none, or that can be read in two ways, and headers of ours."""
        if message := self.url and _url_mistake(self.url, is_listed=bool(self.addresses)):
            yield ("url",), message, ""
        for index, text in enumerate(self.addresses):
            if text and _network(text) is None:
                message = 'must be an address, or a network such as "10.1.0.0/16"'
                yield ("addresses", index), message, ""
        if self.proxy and not _is_proxy(self.proxy):
            message = 'must be the URL of an HTTP proxy, such as "http://proxy.example:3128"'
            yield ("proxy",), message, ""
        for name in self.headers:
            if name.lower() in _OURS:
                message = "is a header of the protocol, which the proxy writes itself"
                yield ("headers", name), message, ""

    def endpoint(self) -> RemoteEndpoint:
        """Return the endpoint of a form without mistakes."""
        networks = [_network(text) for text in self.addresses]
        return RemoteEndpoint(
            url=_href(self.url),
            transport=_TRANSPORTS[self.type],
            headers=self.headers,
            addresses=tuple([network for network in networks if network is not None]),
            proxy=self.proxy or None,
            oauth=self.oauth.client() if self.oauth else None,
        )


def _href(text: str) -> str:
    import can_ada  # noqa: PLC0415  most installations reach no server by its URL

    try:
        return str(can_ada.parse(text).href)
    except ValueError:
        return _NOWHERE


def _url_mistake(text: str, *, is_listed: bool) -> str:
    """Return the message about a URL; empty if it is clear to everybody."""
    import can_ada  # noqa: PLC0415  as above

    try:
        url = can_ada.parse(text)
    except ValueError:
        return "is not a URL"
    message = ""
    if url.protocol not in {"http:", "https:"} or not url.hostname:
        message = "must begin with https:// (or http://, for a server on this machine)"
    elif url.username or url.password:
        message = "must hold no user and password: name them in headers, from serverCredentials"
    elif url.hash:
        message = "must hold no fragment (#…)"
    elif not _is_spelled_out(text, url.hostname):
        message = f"its host can be read in two ways: write {shown(url.hostname)}"
    elif url.protocol == "http:" and not is_listed and not _is_near(url.hostname):
        message = "must be https: over http, everybody on the way reads and changes what is sent"
    return message


_NOWHERE: Final = "https://invalid.invalid/"


def _is_spelled_out(text: str, host: str) -> bool:
    r"""Return whether every reader of URLs finds this host in the text.

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
    """Return whether a host is this machine, or an address of its network."""
    try:
        return not is_public(ip_address(host.strip("[]")))
    except ValueError:
        return host == "localhost"


def _network(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _is_proxy(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def _issuer_mistake(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        return "is not a URL"
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        return "must be the URL of an authorization server, as it calls itself"
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_near(parts.hostname)):
        return "must be https: over http, everybody on the way reads what is sent"
    return ""
