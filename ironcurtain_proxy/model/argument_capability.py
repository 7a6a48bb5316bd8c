"""Capabilities that a call needs because of its arguments, besides those of its tool.

The operator's words about one tool, as data. They can only add.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.json import Arguments, Json

ANY_VALUE: Final = "*"


class ArgumentCapabilities(Struct, frozen=True):
    """The capabilities that one argument of a tool adds, by the argument's value."""

    argument: str
    by_value: Mapping[str, tuple[Capability, ...]]
    """The capabilities by the value as text: `true`, `null`, `2`, or the text itself. `*` holds for
    every value of an argument that is given."""


def capabilities_by_argument(
    rules: Iterable[ArgumentCapabilities], arguments: Arguments
) -> frozenset[Capability]:
    """The capabilities that the arguments of a call add. Each item of a list counts."""
    found: set[Capability] = set()
    for rule in rules:
        if rule.argument in arguments:
            for word in (ANY_VALUE, *_words(arguments[rule.argument])):
                found.update(rule.by_value.get(word, ()))
    return frozenset(found)


def _words(value: Json) -> Iterator[str]:
    for item in value if isinstance(value, list) else (value,):
        word = _word(item)
        if word is not None:
            yield word


def _word(item: Json) -> str | None:
    """A scalar as it is spelled in the configuration; None for lists and objects."""
    if isinstance(item, str):
        return item
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int | float):
        # 2 and 2.0 are the same number to a server.
        return str(int(item) if isinstance(item, float) and item.is_integer() else item)
    return "null" if item is None else None
