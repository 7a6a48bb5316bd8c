"""OpenTelemetry's names for what a record tells of (semantic conventions of MCP)."""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.model.operation import METHODS, TOOL_CALL, named_in

_TARGETS: Final[Mapping[str, str]] = {
    TOOL_CALL: "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
}
"""The attribute for what a method asks for. A URI of a resource is an argument, and has none."""


def method_and_target(action: str, longest: int | None = None) -> tuple[str, Mapping[str, str]]:
    """The method of an action, and the attribute with the name of its tool or prompt.

    Args:
        action: the `toolName` of a record: `read_file`, `prompts/get fetch`, `resources/read`.
        longest: characters of the name.
    """
    method = action.partition(" ")[0]
    if method not in METHODS:
        return TOOL_CALL, {_TARGETS[TOOL_CALL]: action[:longest]}
    attribute = _TARGETS.get(method)
    return method, {} if attribute is None else {attribute: named_in(action)[:longest]}
