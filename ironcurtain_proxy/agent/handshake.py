"""The answer to `initialize`, and the protocol versions that are served."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.version import VERSION

if TYPE_CHECKING:
    from ironcurtain_proxy.model.json import Json

NAME: Final = "ironcurtain-proxy"

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions that begin with `initialize`, the newest first. Any other is answered
with the newest, and the client decides whether it goes on.
"""

CAPABILITIES: Final[Mapping[str, "Json"]] = MappingProxyType(
    {
        "completions": {},
        "logging": {},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
    }
)
"""The capabilities that the proxy declares to the agent."""

_CLIENT_LENGTH: Final = 100


def is_introduction(params: "Mapping[str, Json]") -> bool:
    """Whether the parameters of `initialize` are complete."""
    info = params.get("clientInfo")
    return (
        isinstance(params.get("protocolVersion"), str)
        and isinstance(params.get("capabilities"), dict)
        and isinstance(info, dict)
        and isinstance(info.get("name"), str)
        and isinstance(info.get("version"), str)
    )


def introduction(params: "Mapping[str, Json]") -> "dict[str, Json]":
    """The result of `initialize`, without instructions."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": dict(CAPABILITIES),
        "serverInfo": {"name": NAME, "version": VERSION},
    }


def client_name(params: "Mapping[str, Json]") -> str:
    """The client's name and version, as one short line of visible characters."""
    info = params.get("clientInfo")
    words = [info.get("name"), info.get("version")] if isinstance(info, dict) else []
    text = " ".join([word for word in words if isinstance(word, str)])[:_CLIENT_LENGTH]
    return "".join([char for char in text if char.isprintable()]).strip()
