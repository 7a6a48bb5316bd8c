"""Tools and arguments that nobody described, where the operator is asked instead of denying them.

Every text in its arguments is read by its form. The guess adds reasons to deny, and opens nothing.
"""

from dataclasses import replace as replace_field
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.input_schema import declared_arguments
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
    names = {*arguments, *(() if schema is None else declared_arguments(schema).names)}
    return ToolAnnotation(
        server=server, tool=tool, arguments=dict.fromkeys(sorted(names), _UNCLEAR)
    )


def widened(annotation: ToolAnnotation, arguments: Arguments) -> ToolAnnotation | None:
    """Return the annotation with the arguments of a call that it lacks, or None if it lacks none.

    The others keep their roles.
    """
    lacking = [name for name in arguments if name not in annotation.arguments]
    if not lacking:
        return None
    return replace_field(
        annotation, arguments={**annotation.arguments, **dict.fromkeys(lacking, _UNCLEAR)}
    )


def as_unknown(facts: Facts, undescribed: tuple[str, ...] = ()) -> Facts:
    """Return the facts of a guess: nobody has described the tool, or these arguments of it."""
    request = replace(facts.request, annotated=False, undescribed=undescribed)
    return replace(facts, request=request)
