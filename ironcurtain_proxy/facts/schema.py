"""The validation of arguments against the input schema of their tool, and its cost.

A server writes the schema. `$ref`s that leave it are not followed, and patterns run in linear time.
It is no reason to deny a tool: what of it cannot be used is left out of the check, and said once.
The roles of arguments hold without it.

Forty levels of `anyOf` that name the next level twice are a few hundred bytes and 2^40 steps, and
the validator cannot be interrupted. So a schema is refused if its expanded references are too
large, or if it refers to itself without going deeper into the value.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Final, TypeAlias, cast

import orjson
from jsonschema_rs import ValidationError, Validator, validator_for
from msgspec import Struct, field
from msgspec.json import decode as read_json

from ironcurtain_proxy.facts.arguments import WORKING_DIRECTORY_ARGUMENTS
from ironcurtain_proxy.facts.schema_reading import (
    PATTERNS,
    SchemaReading,
    UnreadableSchemaError,
    plain_schema,
)
from ironcurtain_proxy.model.annotation import (
    PATH_ROLES,
    RoleSpec,
    ToolAnnotation,
    declared_arguments,
    resolved,
)
from ironcurtain_proxy.model.values import Arguments, Json, lazy, list_of, object_of

# --- schema cost


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
    """Return whether an object is a schema itself, not a table of them by name."""
    return any(key.startswith("$") or key in _KEYWORDS for key in node)


_KEYWORDS: Final = frozenset({"type", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"})


# --- schema


_MASK: Final = "the value"
_MAX_COMPILED: Final = 10_000
_MAX_MESSAGE: Final = 300
_MAX_NAME: Final = 60
_MOST_READ: Final = 100
"""The most texts of one call that are read as JSON."""


class CompiledSchema(Struct, frozen=True):
    """A compiled schema."""

    source: Json
    """The source object, kept so that no other object can get its identity."""
    validator: Validator
    properties: Mapping[str, Json]
    """The arguments in the compiled schema."""
    names: frozenset[str] | None
    """The names of all arguments; `None` means that others are taken, too."""
    left_out: tuple[str, ...] = ()
    """What is not checked, each with its place and the reason."""
    places: tuple[tuple[str, str], ...] = ()
    """The arguments whose default is a path, with it."""


class SchemaChecker(Struct, eq=False):
    """Validates calls; each schema is compiled once."""

    say: Callable[[str, tuple[str, ...]], None] = lambda _tool, _left_out: None
    """Gets a tool, as `server/tool`, and what is left out of the check of its arguments."""
    _compiled: dict[int, CompiledSchema] = field(default_factory=dict)

    def problem(self, annotation: ToolAnnotation, schema: Json, arguments: Arguments) -> str | None:
        """Return the fault of the arguments, in one sentence, or None.

        Args:
            annotation: of the tool; an argument that it lacks is denied, whatever the schema says,
                because its role is unknown.
            schema: the tool's live input schema; None if its server sent none.
            arguments: as the agent sent them.
        """
        compiled = self._compiled.get(id(schema)) or self._compile(annotation, schema)
        given = arguments if isinstance(arguments, dict) else dict(arguments)
        try:
            fits = compiled.validator.is_valid(given)
        except (ValueError, RecursionError):
            # It cannot read them; `_first_problem` names the argument.
            fits = False
        if not fits:
            return _first_problem(compiled, given)
        if not annotation.arguments.keys() >= given.keys():
            return _not_annotated(annotation, given)
        return None

    def fitted(
        self, annotation: ToolAnnotation, schema: Json, arguments: Arguments
    ) -> tuple[Arguments, str | None]:
        """Return the arguments as the schema wants them, and their fault, as `problem` says it.

        Models write `"3"` for 3 and `"[1]"` for a list, and many servers take it. Where a text does
        not fit, the value that it is the JSON of stands in its place, and is judged and sent.
        """
        fault = self.problem(annotation, schema, arguments)
        if fault is None:
            return arguments, None
        meant = _as_meant(self._compiled[id(schema)].validator, arguments)
        if meant is not None and self.problem(annotation, schema, meant) is None:
            return meant, None
        return arguments, fault

    def completed(
        self,
        annotation: ToolAnnotation,
        schema: Json,
        arguments: Arguments,
        start: Callable[[], str | None],
    ) -> tuple[Arguments, str | None]:
        """Return the arguments with the paths that stand, by the schema, for those left out.

        Beside them stands the fault of the arguments; both are `fitted`.

        A path that is left out could be any. Written out, it is judged as any other, and sent, so
        that the server's word need not be believed.

        Args:
            annotation: of the tool.
            schema: the tool's live input schema.
            arguments: as the agent sent them.
            start: gives where relative paths of the server start; None: it is not known, and they
                stay left out.
        """
        arguments, fault = self.fitted(annotation, schema, arguments)
        places = self._compiled[id(schema)].places
        if not places:
            return arguments, fault
        base = start()
        lacking: dict[str, Json] = {
            name: f"{base}/{place}" if place.startswith(".") else place
            for name, place in places
            if name not in arguments
            and _is_path(annotation.arguments.get(name))
            and (base is not None or not place.startswith("."))
        }
        whole = {**arguments, **lacking}
        if lacking and self.problem(annotation, schema, whole) is None:
            return whole, None
        return arguments, fault

    def _compile(self, annotation: ToolAnnotation, schema: Json) -> CompiledSchema:
        # Servers may send new lists for ever; schemas in use are soon compiled again.
        if len(self._compiled) >= _MAX_COMPILED:
            self._compiled.clear()
        compiled = self._compiled[id(schema)] = compile_schema(schema)
        if compiled.left_out:
            self.say(f"{annotation.server}/{annotation.tool}", compiled.left_out)
        return compiled


def compile_schema(schema: Json) -> CompiledSchema:
    """Compile an input schema, whatever it is. What cannot be used of it is left out."""
    if schema is None or schema is True:
        return _compiled(schema, {}, ())
    if not isinstance(schema, Mapping):
        return _compiled(schema, {}, ("/: it is no object",))
    reading = SchemaReading(schema)
    try:
        found = reading.usable()
        refuse_costly(found)
        return _compiled(schema, found, tuple(reading.left_out))
    except (UnreadableSchemaError, TooCostlyError) as error:
        why = str(error)
    except (ValueError, RecursionError) as error:
        why = error.message if isinstance(error, ValidationError) else str(error)
    left_out = (f"/: all but the types of its arguments: {_short(why)}",)
    return _compiled(schema, plain_schema(schema), left_out)


def _compiled(schema: Json, found: dict[str, Json], left_out: tuple[str, ...]) -> CompiledSchema:
    """Compile what can be used, without other arguments than the declared ones.

    Raises:
        ValueError: it cannot be compiled.
        RecursionError: it is nested too deeply.
    """
    declared = declared_arguments({} if schema is None else schema)
    properties = object_of(found.get("properties"))
    names = None if declared.is_open else frozenset(declared.names)
    if names is not None and names == properties.keys():
        found["additionalProperties"] = False
    elif names is not None:
        # `additionalProperties` would refuse those that another part declares.
        found.pop("additionalProperties", None)
        closed: Json = {"propertyNames": {"enum": [*sorted(names)]}}
        found["allOf"] = [*list_of(found.get("allOf")), closed]
    elif "patternProperties" not in found and found.get("additionalProperties") is False:
        del found["additionalProperties"]
    validator = validator_for(found, mask=_MASK, pattern_options=PATTERNS, offline=True)
    places = [
        (name, place)
        for name, one in declared.names.items()
        if name not in WORKING_DIRECTORY_ARGUMENTS
        and isinstance(one, dict)
        and isinstance(place := one.get("default"), str)
        and _PLACE.fullmatch(place)
    ]
    return CompiledSchema(schema, validator, properties, names, left_out, tuple(places))


_PLACE: Final = lazy(r"(?:\.{1,2}|~)?/.*|\.{1,2}|~")
"""A text that is a path wherever it stands: `$` and `main` may be anything."""


def _is_path(spec: RoleSpec | None) -> bool:
    """Return whether an argument names paths, whatever the others are."""
    if spec is None or spec.cases or spec.inside:
        return False
    return not PATH_ROLES.isdisjoint(spec.default)


_Place: TypeAlias = dict[str | int, Json]
"""An object, or a list, in which values stand."""


def _as_meant(validator: Validator, arguments: Arguments) -> Arguments | None:
    """Return the arguments with each text that does not fit read as JSON.

    None: something else does not fit, or too much.
    """
    try:
        meant: dict[str, Json] = deepcopy(dict(arguments))
        faults = [one.instance_path for one in islice(validator.iter_errors(arguments), _MOST_READ)]
        for way in {tuple(path) for path in faults}:
            place = cast("_Place", meant)
            for step in way[:-1]:
                place = cast("_Place", place[step])
            text = place[way[-1]]
            if not isinstance(text, str):
                return None
            place[way[-1]] = read_json(text)
    except (ValueError, RecursionError, IndexError):  # no JSON, none that can be read, or no value
        return None
    return meant


def _first_problem(compiled: CompiledSchema, arguments: dict[str, Json]) -> str:
    """Return one problem, the original's messages before the library's."""
    known = compiled.names
    if known is not None and (unknown := [name for name in arguments if name not in known]):
        valid = _quoted(sorted(known))
        return f"Unknown argument(s): {_quoted(unknown)}. Valid parameters are: {valid}"
    for name, value in arguments.items():
        expected = _type_of(compiled.properties, name)
        if expected is not None and not _has_type(value, expected):
            article = "an" if expected[:1] in "aeiou" else "a"
            return f'Argument "{_name(name)}" must be {article} {expected} (got {_word(value)}).'
    try:
        compiled.validator.validate(arguments)
    except ValidationError as error:
        place = "".join(f"/{_name(str(part))}" for part in error.instance_path)
        return f"Invalid arguments{place and ' at ' + place}: {_short(error.message)}."
    except (ValueError, RecursionError):
        said = sorted(arguments, key=lambda name: not _cannot_be_written(name, arguments[name]))
        return f'Argument "{_name(said[0])}" is nested too deeply, or holds half a character.'
    return "The arguments do not fit the tool's input schema."


def _cannot_be_written(name: str, value: Json) -> bool:
    try:
        orjson.dumps({name: value})
    except TypeError:
        return True
    return False


def _not_annotated(annotation: ToolAnnotation, arguments: Arguments) -> str:
    names = [name for name in arguments if name not in annotation.arguments]
    return (
        f"Argument(s) {_quoted(names)} of {annotation.server}/{annotation.tool} are not annotated: "
        "nobody has said what they name, so a call that uses them is denied. Make the call without "
        "them, or tell the user: the operator has to annotate them."
    )


def _type_of(properties: Mapping[str, Json], name: str) -> str | None:
    expected = object_of(properties.get(name)).get("type")
    return expected if isinstance(expected, str) else None


def _has_type(value: Json, expected: str) -> bool:
    if expected in {"integer", "number"}:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return math.isfinite(value) and (expected == "number" or value == int(value))
    return expected not in _WORDS or _word(value) == expected


_WORDS: Final = frozenset({"null", "boolean", "string", "array", "object"})


def _word(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{_name(name)}"' for name in names[:50])


def _name(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"


def _short(message: str) -> str:
    line = " ".join(message.split()).rstrip(".")
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}…"
