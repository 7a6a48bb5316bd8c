"""A server behind the proxy, as the operator configured it: started or reached over HTTP.

It is held to its pinned parts, by the mode of pinning, and to the limits of its process. A server's
words must not lead the proxy to this machine, to its network or to the metadata of its cloud:
whoever stands there trusts requests that come from here. So addresses that are not public count
only where the operator names them.

The roots that answer a server's `roots/list` come from the policy, never from the agent: servers
such as npm's filesystem server allow themselves these directories.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from ironcurtain_proxy.model.policy import AskKind, Policy
from ironcurtain_proxy.model.values import Json, RealPath, WithSecrets, file_uri

# --- pinning


Section: TypeAlias = Literal[
    "title", "instructions", "tools", "prompts", "templates", "resources", "views"
]
"""A part of a server's description of itself; `resources` is what their list says of them, and
`views` is the HTML of MCP Apps."""
SECTIONS: Final[tuple[Section, ...]] = get_args(Section)

PinMode: TypeAlias = Literal["on", "warn", "off"]
"""The consequence of a change. `on`: the part is held until a person accepts it. `warn`: the change
is reported. `off`: nothing happens."""


# --- addresses


Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_TRANSLATED: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""IPv6 networks whose last four bytes are an IPv4 address."""

_GLOBAL: Final = IPv6Network("2000::/3")
"""The only IPv6 addresses that are given out; others are translated as a network's operator likes.
"""

_CLOSED: Final = (
    ip_network("168.63.129.16/32"),  # the host of a virtual machine, in one large cloud
    # Older versions of `ipaddress` call these global; with the metadata of one cloud.
    ip_network("192.0.0.0/24"),
    ip_network("192.88.99.0/24"),
    ip_network("3fff::/20"),
)


def plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _TRANSLATED) and int(address) > 1:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public network, and of no cloud's metadata."""
    found = plain(address)
    if isinstance(found, IPv6Address) and (found.teredo is not None or found not in _GLOBAL):
        return False
    is_closed = any(found.version == network.version and found in network for network in _CLOSED)
    return found.is_global and not found.is_multicast and not is_closed


def is_within(address: Address, networks: tuple[Network, ...]) -> bool:
    """Return whether an address, or the IPv4 address in it, is in one of the networks."""
    found = plain(address)
    return any(found.version == network.version and found in network for network in networks)


# --- remote


RemoteTransport: TypeAlias = Literal["streamable-http", "sse"]
"""`sse`: the transport before 2025-03-26, with a stream of its own for everything that arrives."""

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


OAuthGrant: TypeAlias = Literal["browser", "client-credentials"]
"""`client-credentials`: the proxy logs in by itself, as no person."""


class OAuthClient(WithSecrets, frozen=True, kw_only=True):
    """A client that the operator registered at an authorization server."""

    hidden: ClassVar[frozenset[str]] = frozenset({"client_secret"})

    client_id: str
    issuer: str | None = None
    """The authorization server, as it calls itself: the secret goes nowhere else. None: there is
    no secret."""
    client_secret: str | None = None
    """`${NAME}` stands for the credential of that name."""
    grant: OAuthGrant = "browser"
    scope: str | None = None
    """The scope for `client-credentials`."""
    callback_port: int | None = None
    """The port of the redirect URI that was registered, or None if any will do."""


class RemoteEndpoint(WithSecrets, frozen=True, kw_only=True):
    """The address of a server, and the way to reach it."""

    hidden: ClassVar[frozenset[str]] = frozenset({"headers", "proxy"})

    url: str
    """The URL in its canonical spelling."""
    transport: RemoteTransport = "streamable-http"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each request. `${NAME}` stands for the credential of that name."""
    addresses: tuple[Network, ...] = ()
    """Networks that the operator allows besides public addresses."""
    proxy: str | None = None
    """The URL of an HTTP proxy, or None if none, whatever the environment says."""

    oauth: OAuthClient | None = None
    """The client of OAuth, or None if one is registered at the login, if the server wants one."""

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
        """Return whether a connection may be made for this server.

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


# --- server


BuiltIn: TypeAlias = Literal["shell"]
"""`shell`: our own shell, whose commands have views of their own."""

_Pattern: TypeAlias = Annotated[str, Meta(min_length=1)]


class ResultRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The changes of a server's answers on their way to the agent."""

    clean: bool = False
    """Escapes of terminals and invisible characters are taken out."""
    redact_secrets: bool = False
    """Secrets are masked."""


class ShownTools(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tools of a server that exist for the proxy and the agent, by patterns of their names."""

    allow: tuple[_Pattern, ...] = ("*",)
    deny: tuple[_Pattern, ...] = ()
    """Patterns of what is left out, whatever `allow` says."""

    def has(self, name: str) -> bool:
        """Return whether a tool is shown."""
        return _matches(name, self.allow) and not _matches(name, self.deny)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(_expression(one), name, re.DOTALL) for one in patterns)


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


SHELL: Final = "shell"
"""The server that stands for the shells of clients and hooks."""


class ServerSpec(WithSecrets, frozen=True, kw_only=True):
    """The start of one downstream server, or its address."""

    hidden: ClassVar[frozenset[str]] = frozenset({"env", "credentials"})

    name: str
    """The operator's name, which the agent sees."""
    annotations: str
    """The server's name in policy and annotations."""
    command: str
    """The program; empty if the server is reached over HTTP."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)
    """Secrets from `SERVER_CREDENTIALS`: added to `env`, masked in the session log."""
    cwd: str | None = None
    """Absolute; None: a directory of its own in the session's state."""
    sandbox: Mapping[str, Json] | bool | None = None
    """The sandbox as configured. False: the server runs unconfined. None: the defaults hold. Read
    by `sandbox`."""
    allowed_domains: tuple[str, ...] = ()
    """`sandbox.network.allowedDomains`, also the allowlist of the policy's domain gate."""
    stateful: bool = False
    """The server keeps state between calls, so no second instance can carry out one of them."""
    description: str = ""
    ask: tuple[AskKind, ...] = ()
    """The questions of its own that the server may put to the user."""
    ask_about_secrets: bool = False
    """Calls that would send it a secret need a person."""
    results: ResultRules = field(default_factory=ResultRules)
    tools: ShownTools = field(default_factory=ShownTools)
    pins: PinMode | None = None
    """The treatment of changed descriptions, or None if the setting for all servers holds."""
    builtin: BuiltIn | None = None
    """The server of our own that it is; `command` starts it, or None if it is somebody else's."""
    remote: RemoteEndpoint | None = None
    """The address over HTTP; `sandbox` is then False, or None if the server is started here."""

    @property
    def place(self) -> str:
        """The command, or the host of the server, in words for the operator."""
        if self.builtin is not None:
            return "our own"
        return self.command if self.remote is None else self.remote.host


class ToolDefinition(Struct, frozen=True):
    """A tool as its server describes it: untrusted, passed on unchanged."""

    server: str
    name: str
    raw: Mapping[str, Json]
    """The whole object from `tools/list`."""

    @property
    def input_schema(self) -> Json:
        """The schema, or None if the server sent none."""
        return self.raw.get("inputSchema")


class ToolResult(Struct, frozen=True, weakref=True):
    """A server's answer: exactly one of `result` and `error` is set.

    Large results are counted while they are in memory, by weak references.
    """

    result: Mapping[str, Json] | None = None
    """The raw `result` object, passed back untouched."""
    error: Mapping[str, Json] | None = None
    """The raw JSON-RPC `error` object."""
    refused_host: str = ""
    """The host that the sandbox blocked, according to the answer, or empty if there is none."""
    view: str = ""
    """The view of our own shell whose changes this answer speaks of, or empty if there is none."""
    written: bytes | None = None
    """The compact JSON of the result, written once for the digest and the agent; None: it is not
    written yet."""
    digest: str | None = None
    """SHA-256 of `written` in hexadecimal, or None if it is not known yet."""

    @property
    def has_failed(self) -> bool:
        """Whether the server says that the call failed."""
        return self.result is None or self.result.get("isError") is True

    def with_result(self, result: Mapping[str, Json], refused_host: str) -> "ToolResult":
        """Return a copy with another result, whose JSON is not written yet."""
        return ToolResult(result=result, refused_host=refused_host, view=self.view)


# --- restrictions


class SandboxRestrictions(Struct, frozen=True, kw_only=True):
    """The limits of a confined process. An unconfined process has no `SandboxRestrictions`."""

    writable: tuple[RealPath, ...]
    """Paths on the machine's own file systems that the process can write."""
    temporary: RealPath | None
    """The private temporary directory of the process, or None if it has none."""
    closed: tuple[RealPath, ...] = ()
    """Mounts that the process cannot write to, also below the writable paths."""
    is_offline: bool
    """The process reaches no host: no interface leads out, and its proxy allows none."""
    shown: tuple[RealPath, ...] = ()
    """The user's credentials that the process can read although its sandbox is to hide them."""
    unfit: str = ""
    """Why the call cannot run in these restrictions, or empty if it can."""
    is_full: bool = False
    """The private `/tmp` of the process holds more than a session may keep."""

    def writes_only_in(self, workspace: RealPath) -> bool:
        """Return whether all writable paths lie in the workspace or in the private directory."""
        own = (workspace,) if self.temporary is None else (workspace, self.temporary)
        return all(any(path.is_within(one) for one in own) for path in self.writable)

    def can_write(self, path: RealPath) -> bool:
        """Return whether it may write to a path, or delete it.

        What is closed keeps its directories.
        """
        inmost = max(
            [one for one in (*self.writable, *self.closed) if path.is_within(one)],
            key=lambda one: len(one.parts),
            default=None,
        )
        return inmost is None or inmost not in self.closed


# --- roots


class Root(Struct, frozen=True):
    """A directory that the server may use."""

    name: str
    path: RealPath

    @property
    def uri(self) -> str:
        """The directory as a `file:` URL; other characters are percent-encoded."""
        return file_uri(str(self.path))


def roots_told(policy: Policy, server: ServerSpec) -> tuple[Root, ...]:
    """Return the roots that a server is told.

    A server on another machine gets no paths of this one.
    """
    return initial_roots(policy, server.annotations) if server.remote is None else ()


def initial_roots(policy: Policy, server: str) -> tuple[Root, ...]:
    """Return the workspace (named `sandbox`) and the directories of rules, each once.

    Only rules that allow or escalate and can apply to this server, by its annotation name; a root
    has the name of its rule.
    """
    found: dict[RealPath, str] = {}
    if policy.workspace is not None:
        found[policy.workspace] = "sandbox"
    for rule in policy.rules:
        applies = rule.servers is None or server in rule.servers
        if rule.effect != "deny" and rule.paths is not None and applies:
            found.setdefault(rule.paths.within, rule.name)
    return tuple([Root(name, path) for path, name in found.items()])
