"""Who makes a request, where the request itself says so.

Since protocol 2026-07-28 there is no handshake: the `_meta` of each request names the version, the
client and what the client can do. Nothing is remembered from one request to the next. What a client
says of itself is shown and recorded, and decides nothing.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.model.json import Json

VERSIONS: Final = ("2026-07-28",)
"""The versions without a handshake, the newest first."""

_KEY: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = f"{_KEY}protocolVersion"
CAPABILITIES_KEY: Final = f"{_KEY}clientCapabilities"
INFO_KEY: Final = f"{_KEY}clientInfo"
LEVEL_KEY: Final = f"{_KEY}logLevel"

HEADERS_KEY: Final = "io.ironcurtain/headers"
"""The key with which our own front over HTTP passes on the headers of arguments."""

ENVELOPE: Final = frozenset({VERSION_KEY, CAPABILITIES_KEY, INFO_KEY, LEVEL_KEY, HEADERS_KEY})
"""The keys of `_meta` that speak of the request itself. The proxy reads them, and no server gets
those of the agent."""


_NAME_LENGTH: Final = 100


class Caller(Struct, frozen=True, kw_only=True):
    """The client of one request, by the request's own words.

    Requests of a client that has sent `initialize` have no caller (`None`): what that client can do
    holds for its whole connection.
    """

    version: str
    """One of `VERSIONS`."""
    capabilities: Mapping[str, Json] = field(default_factory=dict)
    """The request's `clientCapabilities`."""
    info: Mapping[str, Json] = field(default_factory=dict)
    """The request's `clientInfo`; empty if it has none."""
    log_level: str = ""
    """The least severe log messages that the request wants; empty: it wants none."""
    number: int = 0
    """The proxy's own number of the request, by which a server's question finds it."""
    entry: str = ""
    """The server's own key of a question that stands in its answer."""

    @property
    def name(self) -> str:
        """The client's name and version for people; empty if it has given none."""
        return client_name(self.info)


def client_name(info: Mapping[str, Json]) -> str:
    """Return a client's name and version, as one short line of visible characters."""
    words = [info.get("name"), info.get("version")]
    text = " ".join([word for word in words if isinstance(word, str)])[:_NAME_LENGTH]
    return "".join([char for char in text if char.isprintable()]).strip()
