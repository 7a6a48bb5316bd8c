"""The protocol versions that we speak to servers.

A version that we do not know may give the same messages another meaning, so a server that answers
one is not used.
"""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.json import Json

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Those that begin with `initialize`, the newest first."""

_LONGEST: Final = 40


def check_version(server: str, answer: Mapping[str, Json]) -> None:
    """Hold the version that a server has answered against those we speak.

    Raises:
        DownstreamError: it is another, or there is none.
    """
    version = answer.get("protocolVersion")
    if version not in VERSIONS:
        shown = repr(version[:_LONGEST]) if isinstance(version, str) else "that is no text"
        raise DownstreamError(
            f'server "{server}" answers initialize with protocol version {shown}; '
            f"spoken here are {', '.join(VERSIONS)}"
        )


def supported_version(error: Mapping[str, Json]) -> str | None:
    """The newest version besides the one we offered that a refusal names as supported."""
    data = error.get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    offered = supported if isinstance(supported, list) else []
    return next((version for version in VERSIONS[1:] if version in offered), None)
