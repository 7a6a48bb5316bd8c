"""The handshake with a server, and the versions of the protocol.

The protocol versions for servers.

An unknown version may give messages another meaning, so a server that answers with one is not used.

The handshake with one server: the offered capabilities, the version, and the answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.operation import CAPABILITIES_KEY, INFO_KEY, VERSION_KEY
from ironcurtain_proxy.model.operation import VERSIONS as MODERN_VERSIONS
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.version import VERSION

# --- versions


VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions that begin with `initialize`, the newest first."""

_LONGEST: Final = 40


def check_version(server: str, answer: Mapping[str, Json]) -> None:
    """Check the version of a server's answer.

    Raises:
        DownstreamError: it is unknown, or missing.
    """
    version = answer.get("protocolVersion")
    if version not in VERSIONS:
        shown = repr(version[:_LONGEST]) if isinstance(version, str) else "that is no text"
        raise DownstreamError(
            f'server "{server}" answers initialize with protocol version {shown}; '
            f"the proxy speaks {', '.join(VERSIONS)}"
        )


def supported_version(error: Mapping[str, Json]) -> str | None:
    """The newest version besides the one we offered that a refusal names as supported."""
    data = error.get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    offered = supported if isinstance(supported, list) else []
    return next((version for version in VERSIONS[1:] if version in offered), None)


# --- greeting


PROTOCOL_VERSION: Final = VERSIONS[0]
"""The version that the proxy offers."""

SPOKEN: Final = ", ".join((*MODERN_VERSIONS, *VERSIONS))
"""All versions that are spoken, in words."""

ROOTS: Final[Mapping[str, Json]] = {"roots": {"listChanged": True}}
"""The client capabilities for every server."""

_METHOD_NOT_FOUND: Final = -32601


class ServerDescription(Struct, frozen=True):
    """A server's description of itself; untrusted."""

    capabilities: Mapping[str, Json] = field(default_factory=dict)
    instructions: str = ""
    """The server's instructions, of any length."""
    info: Mapping[str, Json] = field(default_factory=dict)


async def greet(
    server: str,
    ask: Callable[[Mapping[str, Json]], Awaitable[ToolResult]],
    offered: Mapping[str, Json],
    *,
    is_modern: bool = False,
) -> ServerDescription:
    """Initialize a server, in a version that both sides support.

    Args:
        server: its name.
        ask: sends `initialize` with these params.
        offered: the client's capabilities.
        is_modern: whether it wants each request to say its version and client, too.

    Raises:
        DownstreamError: it refuses, or answers in a version that is not spoken here.
    """
    params = _with_envelope if is_modern else _params
    answer = await ask(params(PROTOCOL_VERSION, offered))
    other = None if answer.error is None else supported_version(answer.error)
    if other is not None:
        answer = await ask(params(other, offered))
    if answer.result is None:
        raise DownstreamError(f'server "{server}" refuses to be initialized{_why(answer)}')
    check_version(server, answer.result)
    capabilities = answer.result.get("capabilities")
    instructions, info = answer.result.get("instructions"), answer.result.get("serverInfo")
    return ServerDescription(
        capabilities if isinstance(capabilities, dict) else {},
        instructions if isinstance(instructions, str) else "",
        info if isinstance(info, dict) else {},
    )


def _params(version: str, offered: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "protocolVersion": version,
        "capabilities": dict(offered),
        "clientInfo": {"name": "ironcurtain-proxy", "version": VERSION},
    }


def _with_envelope(version: str, offered: Mapping[str, Json]) -> dict[str, Json]:
    """Return the params with what each request of the newer era says of itself."""
    params = _params(version, offered)
    said: dict[str, Json] = {
        VERSION_KEY: version,
        INFO_KEY: params["clientInfo"],
        CAPABILITIES_KEY: params["capabilities"],
    }
    return {**params, "_meta": said}


def _why(answer: ToolResult) -> str:
    """Return advice for the operator on a refusal, by its code."""
    error = answer.error or {}
    data = error.get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    if isinstance(supported, list):
        shown = ", ".join([one[:40] for one in supported[:8] if isinstance(one, str)])
        return f": it speaks {shown or 'no version'}, and the proxy speaks {SPOKEN}"
    if error.get("code") == _METHOD_NOT_FOUND:
        return f": it knows neither initialize nor server/discover; the proxy speaks {SPOKEN}"
    return ""
