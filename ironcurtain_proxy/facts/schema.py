"""The validation of arguments against the input schema of their tool.

A schema is untrusted: `$ref`s that leave it are not followed, patterns run in linear time, and a
schema that cannot be compiled denies its tool.
"""

import math
from collections.abc import Mapping
from typing import Final

import orjson
from jsonschema_rs import RegexOptions, ValidationError, Validator, validator_for
from msgspec import Struct

from ironcurtain_proxy.facts.schema_cost import TooCostlyError, refuse_costly
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.json import Arguments, Json

_MASK: Final = "the value"
_MAX_COMPILED: Final = 10_000
_MAX_MESSAGE: Final = 300
_MAX_NAME: Final = 60
_PATTERNS: Final = RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)


class _Compiled(Struct, frozen=True):
    """A compiled schema, or the reason why it cannot be compiled."""

    source: Json
    """The source object, kept so that no other object can get its identity."""
    validator: Validator | None
    closed: dict[str, Json]
    """The compiled schema."""
    problem: str = ""


class SchemaChecker:
    """Validates calls; each schema is compiled once."""

    def __init__(self) -> None:
        """Begin without compiled schemas."""
        self._compiled: dict[int, _Compiled] = {}

    def problem(self, annotation: ToolAnnotation, schema: Json, arguments: Arguments) -> str | None:
        """The fault of the arguments, in one sentence, or None.

        Args:
            annotation: of the tool; an argument that it lacks is denied, whatever the schema says,
                because its role is unknown.
            schema: the tool's live input schema; None if its server sent none.
            arguments: as the agent sent them.
        """
        compiled = self._compiled.get(id(schema)) or self._compile(schema)
        validator = compiled.validator
        if validator is None:
            return compiled.problem
        given = arguments if isinstance(arguments, dict) else dict(arguments)
        try:
            fits = validator.is_valid(given)
        except (ValueError, RecursionError):
            # It cannot read them; `_first_problem` names the argument.
            fits = False
        if not fits:
            return _first_problem(validator, compiled.closed, given)
        if not annotation.arguments.keys() >= given.keys():
            return _not_annotated(annotation, given)
        return None

    def _compile(self, schema: Json) -> _Compiled:
        # Servers may send new lists for ever; schemas in use are soon compiled again.
        if len(self._compiled) >= _MAX_COMPILED:
            self._compiled.clear()
        compiled = self._compiled[id(schema)] = _compile(schema)
        return compiled


def _compile(schema: Json) -> _Compiled:
    closed = _closed({} if schema is None else schema)
    if closed is None:
        return _Compiled(schema, None, {}, "The tool's input schema is no object.")
    try:
        refuse_costly(closed)
        validator = validator_for(closed, mask=_MASK, pattern_options=_PATTERNS, offline=True)
    except TooCostlyError as error:
        return _Compiled(schema, None, {}, f"The tool's input schema cannot be used: {error}.")
    except (ValueError, RecursionError) as error:
        reason = error.message if isinstance(error, ValidationError) else str(error)
        return _Compiled(
            schema, None, {}, f"The tool's input schema cannot be used: {_short(reason)}."
        )
    return _Compiled(schema, validator, closed)


def _closed(schema: Json) -> dict[str, Json] | None:
    """The schema without additional properties, unless it says whether it allows them."""
    if not isinstance(schema, Mapping):
        return None
    copy = dict(schema)
    if isinstance(copy.get("properties"), dict) and copy.get("additionalProperties") is None:
        copy["additionalProperties"] = False
    return copy


def _first_problem(
    validator: Validator, schema: Mapping[str, Json], arguments: dict[str, Json]
) -> str:
    """One problem, the original's messages before the library's."""
    properties = schema.get("properties")
    if isinstance(properties, dict):
        unknown = [name for name in arguments if name not in properties]
        closed = schema.get("additionalProperties") is False
        if unknown and closed and "patternProperties" not in schema:
            return _unknown(unknown, schema)
    for name, value in arguments.items():
        expected = _type_of(properties, name)
        if expected is not None and not _has_type(value, expected):
            article = "an" if expected[:1] in "aeiou" else "a"
            return f'Argument "{_name(name)}" must be {article} {expected} (got {_word(value)}).'
    try:
        validator.validate(arguments)
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


def _unknown(names: list[str], schema: Mapping[str, Json]) -> str:
    properties = schema.get("properties")
    known = sorted(properties) if isinstance(properties, dict) else []
    return f"Unknown argument(s): {_quoted(names)}. Valid parameters are: {_quoted(known)}"


def _not_annotated(annotation: ToolAnnotation, arguments: Arguments) -> str:
    names = [name for name in arguments if name not in annotation.arguments]
    return (
        f"Argument(s) {_quoted(names)} of {annotation.server}/{annotation.tool} are not annotated: "
        "nobody has said what they name, so a call that uses them is denied. Make the call without "
        "them, or tell the user: the operator has to annotate them."
    )


def _type_of(properties: Json, name: str) -> str | None:
    entry = properties.get(name) if isinstance(properties, dict) else None
    expected = entry.get("type") if isinstance(entry, dict) else None
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
