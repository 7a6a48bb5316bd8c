"""Input schemas of servers, brought into a form that the schema engine can use.

A tool must not be lost because its schema holds something odd: a pattern with look-ahead, an idiom
of an older draft, a fault in a note. What cannot be used is left out, keyword by keyword, and
named; the rest is checked. What servers accept is not refused for its form: `oneOf` is read as
`anyOf`, a required member that has a default may be left out, and `format` is a note.

To leave a keyword out must never refuse more than the whole schema would. So a condition (`not`,
`if`) with a part that became more lenient is left out whole, and so is a rule about all members
that no other part speaks of.

The result is of draft 2020-12 and refers to nothing outside of itself. It never decides what an
argument names: that is its role, which needs no schema.
"""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, TypeAlias

from jsonschema_rs import RegexOptions, validator_for
from msgspec import Struct, field

from ironcurtain_proxy.model.annotation import declared_arguments, resolved
from ironcurtain_proxy.model.values import Json, list_of, object_of

PATTERNS: Final = RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
"""Patterns run in linear time, and stay small."""

_MAX_DEPTH: Final = 100
_MAX_PARTS: Final = 20_000
_MAX_NOTES: Final = 100
_MAX_STEPS: Final = 20
"""References that are followed in search of a default."""

_TYPES: Final = frozenset({"null", "boolean", "string", "array", "object", "number", "integer"})
_UNEVALUATED: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})


class UnreadableSchemaError(Exception):
    """Nothing of the schema can be used but the names of its arguments; the message says why."""


class _Place(Struct):
    """A subschema that is being read."""

    node: Mapping[str, Json]
    pointer: str
    depth: int
    found: dict[str, Json] = field(default_factory=dict)
    """What can be used of it."""
    can_count: bool = True
    """Whether the items that fit `contains` can be counted."""


_Reader: TypeAlias = "Callable[[SchemaReading, _Place, str, Json], None]"


class SchemaReading:
    """The reading of one input schema."""

    def __init__(self, root: Mapping[str, Json]) -> None:
        """Begin with nothing read."""
        self._root: Json = dict(root)
        self._definitions: dict[str, Json] = {}
        self._names: dict[tuple[str, bool], str] = {}
        self._is_loose: dict[str, bool] = {}
        """The definitions that are more lenient than they were written."""
        self._loosened = 0
        """How often a part became more lenient."""
        self._parts = 0
        self.left_out: list[str] = []
        """What is not checked: its place, and why."""

    def usable(self) -> dict[str, Json]:
        """Return the schema in its usable form.

        Raises:
            UnreadableSchemaError: it is too large or too deep.
        """
        found = self._schema(self._root, "", 0)
        if not isinstance(found, dict):
            raise UnreadableSchemaError("it is no object")
        # Arguments are always an object, whatever the schema says of them.
        found.pop("type", None)
        if self._definitions:
            found["$defs"] = self._definitions
        return found

    def _leave_out(self, pointer: str, why: str) -> None:
        self._loosened += 1
        if len(self.left_out) < _MAX_NOTES:
            self.left_out.append(f"{pointer or '/'}: {why}")

    # --- subschemas

    def _schema(self, node: Json, pointer: str, depth: int, *, is_part: bool = False) -> Json:
        """Return one subschema in its usable form.

        Args:
            node: as the server wrote it.
            pointer: its place.
            depth: of the place.
            is_part: whether it is a member of `allOf`, where none closes the others.
        """
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            self._leave_out(pointer, "is no schema")
            return True
        self._parts += 1
        if depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            raise UnreadableSchemaError("it is too large or too deeply nested")
        before = self._loosened
        at = _Place(node, pointer, depth)
        self._reference(at, is_part=is_part)
        self._read_keywords(at)
        if is_part and at.found.get("additionalProperties") is False:
            self._loosened += 1
            del at.found["additionalProperties"]
        if self._loosened > before:
            for key in _UNEVALUATED & at.found.keys():
                del at.found[key]
        return at.found

    def _read_keywords(self, at: _Place) -> None:
        for key, value in at.node.items():
            read = self._READERS.get(key)
            if read is not None:
                read(self, at, key, value)
        _join(at)

    def _inner(self, at: _Place, key: str, node: Json, *, is_part: bool = False) -> Json:
        return self._schema(node, f"{at.pointer}/{key}", at.depth + 1, is_part=is_part)

    def _reference(self, at: _Place, *, is_part: bool) -> None:
        """Take over a reference, if there is one. What stands beside it counts in every draft."""
        node = at.node
        reference = node.get("$ref", node.get("$dynamicRef", node.get("$recursiveRef")))
        if reference is None:
            return
        target = resolved(self._root, reference) if isinstance(reference, str) else None
        if not isinstance(reference, str) or not isinstance(target, dict | bool):
            self._leave_out(f"{at.pointer}/$ref", "names nothing in this schema")
            return
        name = self._names.get((reference, is_part))
        if name is None:
            # Noted before it is read: it may refer to itself.
            name = self._names[reference, is_part] = f"d{len(self._names)}"
            self._definitions[name] = self._is_loose[name] = True
            before = self._loosened
            self._definitions[name] = self._inner(at, "$ref", target, is_part=is_part)
            self._is_loose[name] = self._loosened > before
        self._loosened += self._is_loose[name]
        at.found["$ref"] = f"#/$defs/{name}"

    # --- keywords, each with its value

    def _type(self, at: _Place, key: str, value: Json) -> None:
        said = value if isinstance(value, list) else [value]
        names = [one.lower() for one in said if isinstance(one, str)]
        if not names or len(names) != len(said) or not _TYPES.issuperset(names):
            self._leave_out(f"{at.pointer}/{key}", "is no type of JSON")
            return
        if at.node.get("nullable") is True:
            names.append("null")
        known = list(dict.fromkeys(names))
        at.found[key] = known[0] if len(known) == 1 else [*known]

    def _enum(self, at: _Place, key: str, value: Json) -> None:
        if not isinstance(value, list) or not value:
            self._leave_out(f"{at.pointer}/{key}", "is no list of values")
        elif at.node.get("nullable") is True and None not in value:
            at.found[key] = [*value, None]
        else:
            at.found[key] = value

    def _unchanged(self, at: _Place, key: str, value: Json) -> None:
        at.found[key] = value

    def _switch(self, at: _Place, key: str, value: Json) -> None:
        if isinstance(value, bool):
            at.found[key] = value
        else:
            self._leave_out(f"{at.pointer}/{key}", "is neither true nor false")

    def _count(self, at: _Place, key: str, value: Json) -> None:
        number = _number(value)
        least = 1 if key == "multipleOf" else 0
        # Fractions are not exact: 0.07 is a multiple of 0.01 to some, and is not to others.
        if number is None or number < least or number != int(number):
            self._leave_out(f"{at.pointer}/{key}", "is no whole number that can be used")
        else:
            at.found[key] = int(number)

    def _limit(self, at: _Place, key: str, value: Json) -> None:
        if isinstance(value, bool) and key.startswith("exclusive"):
            return
        if (number := _number(value)) is None:
            self._leave_out(f"{at.pointer}/{key}", "is no number")
            return
        # Draft 4 said with a switch that a limit is exclusive.
        exclusive = f"exclusive{key[:1].upper()}{key[1:]}"
        at.found[exclusive if at.node.get(exclusive) is True else key] = number

    def _pattern(self, at: _Place, key: str, value: Json) -> None:
        if self._is_pattern(value, f"{at.pointer}/{key}"):
            at.found[key] = value

    def _is_pattern(self, value: Json, pointer: str) -> bool:
        if isinstance(value, str):
            try:
                validator_for({"pattern": value}, pattern_options=PATTERNS, offline=True)
            except (ValueError, RecursionError):
                pass
            else:
                return True
        self._leave_out(pointer, "is no pattern that can be matched in linear time")
        return False

    def _format(self, _at: _Place, _key: str, _value: Json) -> None:
        # A note; but no condition may depend on it.
        self._loosened += 1

    def _one(self, at: _Place, key: str, value: Json) -> None:
        if isinstance(value, dict | bool):
            at.found[key] = self._inner(at, key, value)
        elif value is not None:
            self._leave_out(f"{at.pointer}/{key}", "is no schema")

    def _contains(self, at: _Place, key: str, value: Json) -> None:
        before = self._loosened
        self._one(at, key, value)
        if self._loosened > before:
            # More items fit than were meant, and would be too many.
            at.can_count = False

    def _items(self, at: _Place, key: str, value: Json) -> None:
        if not isinstance(value, list):
            self._one(at, key, value)
            return
        # A tuple, as it was written before 2020.
        if value:
            self._tuple(at, "prefixItems", value)
        self._one(at, key, at.node.get("additionalItems"))

    def _tuple(self, at: _Place, key: str, value: Json) -> None:
        if isinstance(value, list) and value:
            at.found[key] = [self._inner(at, f"{key}/{n}", one) for n, one in enumerate(value)]
        else:
            self._leave_out(f"{at.pointer}/{key}", "is no list of schemas")

    def _branches(self, at: _Place, key: str, value: Json) -> None:
        if not isinstance(value, list) or not value:
            self._leave_out(f"{at.pointer}/{key}", "is no list of schemas")
            return
        # What closes one part would refuse the members of the others.
        is_part = key == "allOf" and ("properties" in at.node or len(value) > 1)
        parts = [self._inner(at, f"{key}/{n}", one, is_part=is_part) for n, one in enumerate(value)]
        self._loosened += key == "oneOf"
        if at.node.get("nullable") is True and key != "allOf":
            parts.append({"type": "null"})
        if key == "allOf":
            _add_to_all(at, *parts)
        elif "anyOf" in at.found:
            _add_to_all(at, {"anyOf": parts})
        else:
            at.found["anyOf"] = parts

    def _condition(self, at: _Place, key: str, value: Json) -> None:
        before = self._loosened
        self._one(at, key, value)
        if self._loosened > before and at.found.pop(key, None) is not None:
            self._leave_out(f"{at.pointer}/{key}", "depends on what is not checked")

    def _properties(self, at: _Place, key: str, value: Json) -> None:
        if isinstance(value, dict):
            at.found[key] = {
                name: self._inner(at, f"{key}/{name}", one) for name, one in value.items()
            }
        elif value is not None and value != []:
            self._leave_out(f"{at.pointer}/{key}", "is no object")

    def _patterns(self, at: _Place, key: str, value: Json) -> None:
        if not isinstance(value, dict):
            self._leave_out(f"{at.pointer}/{key}", "is no object")
            return
        at.found[key] = {
            pattern: self._inner(at, f"{key}/{pattern}", one)
            for pattern, one in value.items()
            if self._is_pattern(pattern, f"{at.pointer}/{key}")
        }

    def _required(self, at: _Place, key: str, value: Json) -> None:
        if value is None or isinstance(value, bool):
            # Draft 3 wrote it beside the member; null is an empty list of Go.
            return
        if not isinstance(value, list):
            self._leave_out(f"{at.pointer}/{key}", "is no list of names")
            return
        known: Mapping[str, Json] = object_of(at.node.get("properties"))
        if not at.depth:
            # Deeper, a hostile schema would have all its parts searched for each of them.
            known = declared_arguments(self._root).names
        names = dict.fromkeys([one for one in value if isinstance(one, str)])
        needed: list[Json] = [one for one in names if not self._has_default(known.get(one))]
        self._loosened += len(needed) < len(names)
        if needed:
            at.found[key] = needed

    def _has_default(self, schema: Json) -> bool:
        """Return whether a server fills the member in by itself."""
        for _ in range(_MAX_STEPS):
            if not isinstance(schema, dict):
                return False
            if "default" in schema:
                return True
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                several = list_of(schema.get("allOf", schema.get("anyOf")))
                return any(isinstance(one, dict) and "default" in one for one in several)
            schema = resolved(self._root, reference)
        return False

    def _dependent(self, at: _Place, key: str, value: Json) -> None:
        """Take over what a member asks for; `dependencies` wrote both kinds in one table."""
        if not isinstance(value, dict):
            self._leave_out(f"{at.pointer}/{key}", "is no object")
            return
        for name, one in value.items():
            said = [one] if isinstance(one, str) else one
            is_names = isinstance(said, list)
            table = at.found.setdefault("dependentRequired" if is_names else "dependentSchemas", {})
            if not isinstance(table, dict):
                continue
            if isinstance(said, list):
                others = [other for other in said if isinstance(other, str)]
                table[name] = [*dict.fromkeys(others)]
            else:
                table[name] = self._inner(at, f"{key}/{name}", said)

    _READERS: ClassVar[Mapping[str, _Reader]] = {
        "type": _type,
        "enum": _enum,
        "const": _unchanged,
        "pattern": _pattern,
        "format": _format,
        "uniqueItems": _switch,
        "items": _items,
        "prefixItems": _tuple,
        "not": _condition,
        "if": _condition,
        "properties": _properties,
        "patternProperties": _patterns,
        "required": _required,
        "contains": _contains,
        **dict.fromkeys(("minimum", "maximum"), _limit),
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _limit),
        **dict.fromkeys(("multipleOf", "minLength", "maxLength"), _count),
        **dict.fromkeys(("minItems", "maxItems"), _count),
        **dict.fromkeys(("minProperties", "maxProperties"), _count),
        **dict.fromkeys(("minContains", "maxContains"), _count),
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), _branches),
        **dict.fromkeys(("additionalProperties", "propertyNames"), _one),
        **dict.fromkeys(("then", "else"), _one),
        **dict.fromkeys(sorted(_UNEVALUATED), _one),
        **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), _dependent),
    }
    """The readers of the keywords that are checked. All others are notes."""


def _join(at: _Place) -> None:
    """Hold keywords to others that they need."""
    found = at.found
    patterns, written = found.get("patternProperties"), at.node.get("patternProperties")
    if isinstance(written, dict) and isinstance(patterns, dict) and len(patterns) < len(written):
        # It would refuse the members that a lost pattern admits.
        found.pop("additionalProperties", None)
    if "if" not in found:
        found.pop("then", None)
        found.pop("else", None)
    if not at.can_count or "contains" not in found:
        found.pop("maxContains", None)
    if "contains" not in found:
        found.pop("minContains", None)


def _add_to_all(at: _Place, *parts: Json) -> None:
    at.found["allOf"] = [*list_of(at.found.get("allOf")), *parts]


def plain_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the types of the arguments alone, for a schema of which nothing else can be used."""
    found: dict[str, Json] = {}
    for name, one in declared_arguments(dict(schema)).names.items():
        form = one if isinstance(one, dict) else {}
        said, choice = form.get("type"), form.get("enum")
        kept: dict[str, Json] = {"type": said} if isinstance(said, str) and said in _TYPES else {}
        found[name] = {**kept, "enum": choice} if isinstance(choice, list) and choice else kept
    return {"properties": found}


def _number(value: Json) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None
