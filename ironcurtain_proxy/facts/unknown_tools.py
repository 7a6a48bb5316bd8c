"""A tool that nobody described, where its operator wants to be asked instead of denying it.

Every text in its arguments is read by its form. The guess adds reasons to deny, and opens nothing.
"""

from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.request import Facts

_UNCLEAR: Final = RoleSpec(default=("unclear",))


def guessed(server: str, tool: str, arguments: Arguments, schema: Json = None) -> ToolAnnotation:
    """An annotation in which nothing is clear.

    Args:
        server: its name in rules.
        tool: the server's own name.
        arguments: of the call.
        schema: the tool's own, if it is known: an omitted argument may name something, too.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = {*arguments, *(properties if isinstance(properties, dict) else ())}
    return ToolAnnotation(
        server=server, tool=tool, arguments=dict.fromkeys(sorted(names), _UNCLEAR)
    )


def as_unknown(facts: Facts) -> Facts:
    """The facts of a guess: nobody has described the tool."""
    return replace(facts, request=replace(facts.request, annotated=False))
