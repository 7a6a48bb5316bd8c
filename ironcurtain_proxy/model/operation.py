"""What an agent asks for, and who asks.

Theory of operation: whatever asks for something that a server or the user holds is an `Operation`.
Its `tool` is the name that rules, records and grants know it by. For a call it is the tool's own
name; for everything else it begins with the method, as in `prompts/get fetch`. No tool has such a
name, because a listed tool whose name begins with a method is hidden. A composite tool is a list of
calls that the operator combined under one name.

Since protocol 2026-07-28 there is no handshake: the `_meta` of each request names the version, the
client and what the client can do. Nothing is remembered from one request to the next. What a client
says of itself is shown and recorded, and decides nothing.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NewType, TypeAlias, get_args

from msgspec import Struct, field

from ironcurtain_proxy.model.values import Arguments, Json

# --- caller


VERSIONS: Final = ("2026-07-28",)
"""The versions without a handshake, the newest first."""

HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions that begin with `initialize`, the newest first. Any other is answered with the
newest, and the client decides whether it goes on."""

_KEY: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = f"{_KEY}protocolVersion"
CAPABILITIES_KEY: Final = f"{_KEY}clientCapabilities"
INFO_KEY: Final = f"{_KEY}clientInfo"
LEVEL_KEY: Final = f"{_KEY}logLevel"
SERVER_INFO_KEY: Final = f"{_KEY}serverInfo"
SUBSCRIPTION_KEY: Final = f"{_KEY}subscriptionId"
"""The key that names the listening request in each message for it."""

TASKS: Final = f"{_KEY}tasks"
"""The extension by which a client gets a handle of a call that waits for a reviewer."""

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

    @property
    def knows_tasks(self) -> bool:
        """Whether it declares the extension of tasks."""
        said = self.capabilities.get("extensions")
        return isinstance(said, dict) and TASKS in said


def client_name(info: Mapping[str, Json]) -> str:
    """Return a client's name and version, as one short line of visible characters."""
    words = [info.get("name"), info.get("version")]
    text = " ".join([word for word in words if isinstance(word, str)])[:_NAME_LENGTH]
    return "".join([char for char in text if char.isprintable()]).strip()


# --- operation


ProgressListener: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[None]]
"""Called with the raw `params` of each progress notification of one call."""

RequestId = NewType("RequestId", str)
"""The proxy's own random id of one operation. The agent's id never enters a decision or a file
name."""

Method: TypeAlias = Literal[
    "tools/call",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/get",
    "completion/complete",
    "elicitation/create",
    "sampling/createMessage",
]
"""The methods of MCP that are decided. The last two are a server's own questions."""

ListKind: TypeAlias = Literal["resources", "resourceTemplates", "prompts"]
"""The lists of a server besides its tools, by the key of their results."""

METHODS: Final[tuple[Method, ...]] = get_args(Method)
TOOL_CALL: Final = "tools/call"
RESOURCE_METHODS: Final[frozenset[Method]] = frozenset(
    {"resources/read", "resources/subscribe", "resources/unsubscribe"}
)
QUESTION_METHODS: Final[frozenset[Method]] = frozenset(
    {"elicitation/create", "sampling/createMessage"}
)
"""The requests of a server to the agent's client. All other operations go to a server."""


class Operation(Struct, frozen=True, kw_only=True):
    """An operation as it arrived: untrusted, with only its server resolved."""

    request_id: RequestId
    exposed_name: str
    """The name the agent used: `filesystem__read_file`, a resource's URI, a prompt's name."""
    server: str
    """The operator's name of the server."""
    tool: str
    """The server's own name of the tool; for other operations the method, and what is named."""
    arguments: Arguments
    params: Mapping[str, Json]
    """The part of the `params` object that may reach a server: see `crossing`."""
    withheld: tuple[str, ...] = ()
    """The names of the other keys of `params`, for the record."""
    method: Method = TOOL_CALL
    caller: Caller | None = None
    """Who asks, or whose call a server's question belongs to; `None`: the client that has sent
    `initialize`."""


class ParsedRequest(Struct, frozen=True, kw_only=True):
    """A request that is not a tool call, after its parts were told apart."""

    method: Method
    exposed_name: str
    server: str
    tool: str
    """See `label`."""
    arguments: Arguments
    """The arguments that are judged."""
    params: Mapping[str, Json]
    """The parameters as received."""
    judged: frozenset[str] = frozenset()
    """The keys of `params` that `arguments` was made of."""
    own: Mapping[str, Json] = field(default_factory=dict)
    """The server's own names, which replace keys of `params`."""


def label(method: Method, named: str = "") -> str:
    """Return the name of an operation that is no call of a tool, for rules, records and grants.

    Args:
        method: of the operation.
        named: the prompt, where the method names one.
    """
    return f"{method} {named}" if named else method


def named_in(tool: str) -> str:
    """Return the prompt in a label; empty if the method names none."""
    return tool.partition(" ")[2]


def is_like_a_label(name: str) -> bool:
    """Return whether a tool of this name could be taken for another operation."""
    return name.partition(" ")[0] in METHODS


# --- composite


MAX_STEPS: Final = 50


class CompositeStep(Struct, frozen=True):
    """One call of a composite. The policy judges it like any other call."""

    tool: str
    """The tool's name for the agent: `server__tool`."""
    arguments: Arguments


class CompositeSpec(Struct, frozen=True, kw_only=True):
    """A composite tool, as the operator configured it."""

    name: str
    """Lower-case letters, digits, `_` and `-`; at most 64."""
    description: str = ""
    steps: tuple[CompositeStep, ...]
    """The steps in the order in which they run; 1 to `MAX_STEPS`."""
