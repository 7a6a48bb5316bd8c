"""The cost of a schema's validation.

A server writes the schema. Forty levels of `anyOf` that name the next level twice are a few hundred
bytes and 2^40 steps, and the validator cannot be interrupted. So a schema is refused if its
expanded references are too large, or if it refers to itself without going deeper into the value.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ironcurtain_proxy.model.input_schema import resolved
from ironcurtain_proxy.model.json import Json

MAX_STEPS: Final = 20_000
"""Subschemas, with every reference written out where it stands. Real schemas have hundreds."""

MAX_DEPTH: Final = 200

_DEEPER: Final = frozenset(
    {"properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains"}
    | {"additionalItems", "unevaluatedItems", "unevaluatedProperties", "propertyNames"}
)
"""Keywords below which another part of the value is validated."""

_NOT_SCHEMAS: Final = frozenset({"const", "enum", "default", "examples", "$defs", "definitions"})


class TooCostlyError(Exception):
    """The schema is refused; the message says why."""


def refuse_costly(schema: dict[str, Json]) -> None:
    """Check a schema before it is compiled.

    Raises:
        TooCostlyError: its validation could take too long.
    """
    _Counter(schema).count(schema, frozenset(), 0)


class _Counter:
    def __init__(self, root: Json) -> None:
        self._root = root
        self._steps = 0

    def count(self, node: Json, on_the_way: frozenset[str], depth: int) -> None:
        """Walk a subschema as the validator would, whatever the value is."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooCostlyError("its references, written out, are too many")
        if depth > MAX_DEPTH:
            raise TooCostlyError("it is nested too deeply")
        if isinstance(node, list):
            for item in node:
                self.count(item, on_the_way, depth + 1)
        elif isinstance(node, dict):
            self._object(node, on_the_way, depth)

    def _object(self, node: Mapping[str, Json], on_the_way: frozenset[str], depth: int) -> None:
        reference = node.get("$ref", node.get("$dynamicRef"))
        if isinstance(reference, str):
            self._follow(reference, on_the_way, depth)
        for key, inner in node.items():
            if key in _NOT_SCHEMAS or key in ("$ref", "$dynamicRef"):
                continue
            if key in _DEEPER:
                # Deeper in the value, a schema may refer to itself: the value is finite.
                for part in _parts(inner):
                    self._deeper(part, on_the_way, depth)
            else:
                self.count(inner, on_the_way, depth + 1)

    def _deeper(self, node: Json, on_the_way: frozenset[str], depth: int) -> None:
        reference = node.get("$ref") if isinstance(node, dict) else None
        if isinstance(reference, str) and reference in on_the_way:
            self._steps += 1
            return
        self.count(node, on_the_way, depth + 1)

    def _follow(self, reference: str, on_the_way: frozenset[str], depth: int) -> None:
        if reference in on_the_way:
            raise TooCostlyError("it refers to itself")
        target = resolved(self._root, reference)
        if target is not None:
            self.count(target, on_the_way | {reference}, depth + 1)


def _parts(inner: Json) -> Iterator[Json]:
    if isinstance(inner, list):
        yield from inner
    elif isinstance(inner, dict) and not _is_schema(inner):
        yield from inner.values()
    else:
        yield inner


def _is_schema(node: Mapping[str, Json]) -> bool:
    """Whether an object is a schema itself, not a table of them by name."""
    return any(key.startswith("$") or key in _KEYWORDS for key in node)


_KEYWORDS: Final = frozenset({"type", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"})
