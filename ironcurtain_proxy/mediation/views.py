"""The HTML of MCP Apps, held to what it was when it was read first.

A view runs in the agent's client. Its URI is declared by a tool, which is pinned; its content is
seen only when it is read.
"""

from typing import Final

from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.grounds import held_part
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.ports import Pins

_VIEW: Final = "ui:"


def changed_view(pins: Pins, operation: Operation, answer: ToolResult) -> Ground | None:
    """Why the answer to a read is not passed on; None: it is no view, or the same as before."""
    if operation.method != "resources/read" or answer.result is None:
        return None
    uri = operation.arguments.get("uri")
    if not isinstance(uri, str) or uri[: len(_VIEW)].lower() != _VIEW:
        return None
    why = pins.seen(operation.server, "views", uri, answer.result.get("contents"))
    return None if why is None else held_part("view", why)
