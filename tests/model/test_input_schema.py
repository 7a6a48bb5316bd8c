"""Input schemas of real servers and generators: none takes its tool away.

`input-schemas.jsonl.gz` has what 30 servers of npm and PyPI list, what is shipped here, and what
zod 3, zod 4 and pydantic write for each of their types, without descriptions. A plain validator,
which follows each schema's own draft and knows every pattern, is the other opinion.
"""

import gzip
import json  # noqa: TID251  read without the product's codec
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from jsonschema_rs import (
    Draft4Validator,
    Draft7Validator,
    FancyRegexOptions,
    Validator,
    validator_for,
)

from ironcurtain_proxy.facts.schema import SchemaChecker, compile_schema
from ironcurtain_proxy.model.annotation import (
    RoleSpec,
    ToolAnnotation,
    declared_arguments,
    resolved,
)
from ironcurtain_proxy.model.values import Json

_FILE: Final = Path(__file__).with_name("input-schemas.jsonl.gz")
_TEXTS: Final[list[Json]] = [
    *("x", "", "a@b.io", "https://e.org/a", "2026-01-02", "2026-01-02T03:04:05Z", "P1D"),
    *("0190163d-8694-739b-aea5-966c26f8ad91", "127.0.0.1", "a" * 200, "/tmp/a", "1"),
]
_SCALARS: Final[list[Json]] = [0, 1, -1, 0.5, 0.07, 10**12, True, False, None]
_LISTS: Final[list[Json]] = [[], ["x"], [1], ["x", 1], [{"p": "x"}]]
_OBJECTS: Final[list[Json]] = [{}, {"p": "x"}, {"p": "x", "q": 1}, {"1": 2}]
_VALUES: Final = [*_TEXTS, *_SCALARS, *_LISTS, *_OBJECTS]


def corpus() -> Iterator[tuple[str, dict[str, Json]]]:
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            yield entry["from"], entry["schema"]


SCHEMAS: Final = list(corpus())


def test_the_corpus_is_large_and_of_real_servers() -> None:
    assert len(SCHEMAS) >= 800
    assert len([one for one, _ in SCHEMAS if one.startswith(("npm:", "pypi:"))]) >= 300


def test_of_every_schema_all_is_checked_but_what_is_named() -> None:
    partly = {source: compile_schema(schema).left_out for source, schema in SCHEMAS}
    left_out = [note for notes in partly.values() for note in notes]
    assert {note.partition(": ")[2] for note in left_out} == {
        "is no pattern that can be matched in linear time",
        "is no whole number that can be used",
    }
    assert any("google-calendar" in source for source, notes in partly.items() if notes)


@pytest.mark.parametrize("part", range(8))
def test_what_a_plain_validator_takes_is_not_refused(part: int) -> None:
    taken = 0
    for source, schema in SCHEMAS[part::8]:
        plain = _plain(schema)
        names = declared_arguments(schema).names
        annotation = ToolAnnotation(
            server="s", tool="t", arguments=dict.fromkeys(names, RoleSpec(default=("none",)))
        )
        checker = SchemaChecker()
        for arguments in _calls(schema, names):
            if plain.is_valid(arguments):
                taken += 1
                said = checker.problem(annotation, schema, arguments)
                assert said is None, (source, arguments)
    assert taken > 400


@pytest.mark.parametrize("part", range(8))
def test_a_value_of_another_type_is_refused(part: int) -> None:
    refused = 0
    for source, schema in SCHEMAS[part::8]:
        properties = schema.get("properties")
        compiled = compile_schema(schema)
        for name, one in properties.items() if isinstance(properties, dict) else ():
            if isinstance(one, dict) and one.get("type") in ("string", "array", "object"):
                refused += 1
                assert not compiled.validator.is_valid({name: 5}), (source, name)
    assert refused > 30


def _plain(schema: dict[str, Json]) -> Validator:
    patterns = FancyRegexOptions(size_limit=1 << 27)
    for make in (validator_for, Draft7Validator, Draft4Validator):
        try:
            return make(schema, pattern_options=patterns, validate_formats=False)
        except ValueError:
            continue
    raise AssertionError(schema)


def _calls(schema: dict[str, Json], names: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Calls that may fit: with all required arguments, and each argument with many values."""
    base = {name: _sample(schema, one, 6) for name, one in names.items()}
    said = schema.get("required")
    required = [one for one in said if isinstance(one, str)] if isinstance(said, list) else []
    needed = {name: base[name] for name in required if name in base}
    yield needed
    yield base
    for name in list(names)[:12]:
        for value in _VALUES:
            yield {**needed, name: value}


def _sample(root: Json, schema: Json, depth: int) -> Json:  # noqa: C901, PLR0911, PLR0912  a table
    """A value that may fit a schema."""
    if not isinstance(schema, dict) or not depth:
        return "x"
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    if isinstance(choice := schema.get("enum"), list):
        return choice[0]
    if isinstance(reference := schema.get("$ref"), str):
        return _sample(root, resolved(root, reference), depth - 1)
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(several := schema.get(word), list):
            return _sample(root, several[0], depth - 1)
    said = schema.get("type")
    match said[0] if isinstance(said, list) and said else said:
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            items = schema.get("prefixItems", schema.get("items"))
            inner = items if isinstance(items, list) else [items]
            return [_sample(root, one, depth - 1) for one in inner if one is not None]
        case "object":
            table = schema.get("properties")
            members = table.items() if isinstance(table, dict) else ()
            return {name: _sample(root, one, depth - 1) for name, one in members}
        case _:
            least = schema.get("minLength")
            return "x" * (least if isinstance(least, int) else 1)


S: Final[Json] = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": S}}}},
        {"$ref": "#one", "$defs": {"b": {}, "a": {"$anchor": "one", "properties": {"x": S}}}},
        {"$ref": "#one", "definitions": {"a": {"$id": "#one", "properties": {"x": S}}}},
        {"$ref": "urn:s#/$defs/a", "$id": "urn:s", "$defs": {"a": {"properties": {"x": S}}}},
        {"$ref": "#/allOf/1", "allOf": [True, {"properties": {"x": S}}]},
        {"properties": {}, "dependentSchemas": {"y": {"properties": {"x": S}}}},
        {"properties": {}, "then": {"properties": {"x": S}}},
    ],
)  # fmt: skip
def test_an_argument_is_found_in_each_part_that_may_declare_it(schema: Json) -> None:
    assert declared_arguments(schema).names == {"x": S}


@pytest.mark.parametrize(
    "reference", ["#none", "#two", "#/$defs/none", "#/$defs/a/b/c", "#/allOf/7", "https://e/o"]
)
def test_a_schema_whose_part_is_not_known_is_open(reference: str) -> None:
    defs: Json = {"a": {"b": 1}, "c": True}
    schema: Json = {"$id": 7, "$ref": reference, "properties": {"x": S}, "$defs": defs}
    found = declared_arguments(schema)
    assert (found.names, found.is_open, found.is_list) == ({"x": S}, True, False)


def test_several_forms_of_an_argument_are_all_its_own() -> None:
    number: Json = {"type": "integer"}
    parts: Json = [
        {"properties": {"x": S}},
        {"properties": {"x": number}},
        {"properties": {"x": S}},
    ]
    assert declared_arguments({"allOf": parts}).names == {"x": {"anyOf": [S, number]}}


def test_a_schema_that_names_itself_for_ever_ends_and_is_open() -> None:
    assert not declared_arguments({"$ref": "#", "properties": {"x": S}}).is_open
    wide: Json = {"allOf": [{} for _ in range(2000)]}
    assert declared_arguments(wide).is_open


def test_a_reference_goes_through_lists_too() -> None:
    assert resolved([1, {"a": 2}], "#/1/a") == 2
    assert resolved([1], "#/1") is None
