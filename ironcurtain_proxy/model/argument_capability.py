"""What the arguments of a call add to what its tool needs.

The operator's words about one tool, as data. They can only add.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.json import Arguments, Json

ANY_VALUE: Final = "*"


@dataclass(frozen=True, slots=True)
class ArgumentCapabilities:
    """What one argument of a tool adds, by its value."""

    argument: str
    by_value: Mapping[str, tuple[Capability, ...]]
    """By the value as text: `true`, `null`, `2`, or the text itself. `*` holds for every value, if
    the argument is there at all."""


def capabilities_by_argument(
    rules: Iterable[ArgumentCapabilities], arguments: Arguments
) -> frozenset[Capability]:
    """Everything that the arguments of a call add. Of a list, each item counts."""
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
    """A scalar as it is written in the configuration; what holds others has no word."""
    if isinstance(item, str):
        return item
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int | float):
        # 2 and 2.0 are the same number to a server.
        return str(int(item) if isinstance(item, float) and item.is_integer() else item)
    return "null" if item is None else None
