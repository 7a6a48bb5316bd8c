"""One tool call as the agent made it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from ironcurtain_proxy.model.json import Arguments, Json

RequestId = NewType("RequestId", str)
"""The proxy's own random id of one call. The agent's id never enters a decision or a file name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call as it arrived: untrusted, with only its tool resolved."""

    request_id: RequestId
    exposed_name: str
    """The name the agent used, such as `filesystem__read_file`."""
    server: str
    """The operator's name of the server."""
    tool: str
    """The server's own name of the tool."""
    arguments: Arguments
    params: Mapping[str, Json]
    """The part of the `params` object that may reach a server: see `crossing`."""
    withheld: tuple[str, ...] = ()
    """The names of the other keys of `params`, for the record."""
