"""The protocol versions for servers.

An unknown version may give messages another meaning, so a server that answers with one is not used.
"""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.json import Json

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
