"""The JSON types that a schema allows."""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.model.json import Json

NO_TEXT: Final = frozenset({"boolean", "number", "integer", "null"})
"""The types of values that name nothing."""
_TYPES: Final = NO_TEXT | {"string", "array", "object"}
_MOST_DEPTH: Final = 8


def types_of(schema: Mapping[str, Json], depth: int = _MOST_DEPTH) -> frozenset[str]:
    """The JSON types that a value may have; none if the schema names none or nests too deeply."""
    if depth == 0:
        return frozenset()
    said = schema.get("type", [])
    names = said if isinstance(said, list) else [said]
    found = {one.lower() for one in names if isinstance(one, str)}
    if any(not isinstance(one, str) for one in names) or not found <= _TYPES:
        # The check of calls leaves such a type out, so that any value fits.
        return frozenset()
    for word in ("anyOf", "oneOf"):
        inner = schema.get(word)
        for one in inner if isinstance(inner, list) else ():
            types = types_of(one, depth - 1) if isinstance(one, Mapping) else frozenset()
            if not types:
                return frozenset()
            found |= types
    return frozenset(found)


def is_closed_choice(schema: Mapping[str, Json]) -> bool:
    """Whether a value is one of a list of the schema."""
    choice = schema.get("enum")
    return "const" in schema or (isinstance(choice, list) and bool(choice))
