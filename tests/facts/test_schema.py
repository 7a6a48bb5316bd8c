"""Arguments held to the input schema."""

from copy import deepcopy

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.facts.schema import SchemaChecker, compile_schema
from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation, declared_arguments
from ironcurtain_proxy.model.values import Arguments, Json
from tests.tables import table


def problem(schema: Json, arguments: dict[str, Json], *, annotated: str = "abcxyz") -> str | None:
    names = [*annotated, "path", "paths", "limit", "edits"]
    annotation = ToolAnnotation(
        server="s", tool="t", arguments={name: RoleSpec(default=("none",)) for name in names}
    )
    return SchemaChecker().problem(annotation, schema, arguments)


SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "paths": {"type": "array", "items": {"type": "string"}},
        "edits": {"type": "array", "items": {"type": "object", "required": ["old"]}},
    },
    "required": ["path"],
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"path": "a", "zeta": 1, "beta": 2},
            (
                'Unknown argument(s): "zeta", "beta". Valid parameters are: '
                '"edits", "limit", "path", "paths"'
            ),
        ),
        ({"path": 5}, 'Argument "path" must be a string (got number).'),
        ({"path": None}, 'Argument "path" must be a string (got null).'),
        ({"path": ["a"]}, 'Argument "path" must be a string (got array).'),
        ({"path": "a", "limit": 1.5}, 'Argument "limit" must be an integer (got number).'),
        ({"path": "a", "limit": True}, 'Argument "limit" must be an integer (got boolean).'),
        ({"path": "a", "paths": "b"}, 'Argument "paths" must be an array (got string).'),
    ],
)
def test_the_originals_messages_are_kept(arguments: dict[str, Json], message: str) -> None:
    assert problem(SCHEMA, arguments) == message


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, '"path" is a required property'),
        ({"path": "a", "paths": ["b", ["/etc/passwd"]]}, "at /paths/1"),
        ({"path": "a", "edits": [{}]}, "at /edits/0"),
    ],
)
def test_what_the_original_never_looked_at_is_checked(
    arguments: dict[str, Json], part: str
) -> None:
    """G5."""
    message = problem(SCHEMA, arguments)
    assert message is not None
    assert part in message


@pytest.mark.parametrize("value", [1.0, 3, 10**400])
def test_a_whole_number_is_an_integer(value: Json) -> None:
    assert problem(SCHEMA, {"path": "a", "limit": value}) is None


def test_no_value_is_repeated() -> None:
    schema: dict[str, Json] = {"properties": {"a": {"items": {"enum": ["x"]}}}}
    message = problem(schema, {"a": ["hunter2"]})
    assert message is not None
    assert "hunter2" not in message


def test_long_names_are_cut() -> None:
    message = problem(SCHEMA, {"path": "a", "n" * 10_000: 1})
    assert message is not None
    assert len(message) < 300


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"properties": {"a": {}}}, id="where properties are listed"),
        pytest.param({"properties": {"a": {}}, "additionalProperties": False}, id="where it says"),
    ],
)
def test_the_top_level_is_closed(schema: Json) -> None:
    message = problem(schema, {"b": 1})
    assert message is not None
    assert message.startswith("Unknown argument(s)")


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        pytest.param({}, {"b": 1}, id="an empty schema"),
        pytest.param(None, {"b": 1}, id="no schema"),
        pytest.param({"type": "object"}, {"b": 1}, id="no properties"),
        pytest.param({"properties": {}, "additionalProperties": True}, {"b": 1}, id="open"),
        pytest.param({"properties": {"a": {"properties": {}}}}, {"a": {"x": 1}}, id="nested"),
        pytest.param(
            {"properties": {}, "patternProperties": {"^b$": {}}}, {"b": 1}, id="by pattern"
        ),
    ],
)
def test_nothing_else_is_closed(schema: Json, arguments: dict[str, Json]) -> None:
    assert problem(schema, arguments) is None


@pytest.mark.parametrize("schema", [{"properties": {"q": {}}}, {}, {"additionalProperties": True}])
def test_an_argument_that_nobody_annotated_is_denied(schema: Json) -> None:
    message = problem(schema, {"q": 1})
    assert message is not None
    assert '"q"' in message
    assert "the operator has to annotate them" in message
    assert "ironcurtain-proxy" not in message


UNUSABLE: list[tuple[Json, str]] = [
    ({"$ref": "http://127.0.0.1:1/x"}, "/$ref"),
    ({"$ref": "#/definitions/lost"}, "/$ref"),
    ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "/properties/a/$ref"),
    ({"properties": {"a": {"$ref": 5}}}, "/properties/a/$ref"),
    ({"properties": {"a": {"pattern": "(?=x)y"}}}, "/properties/a/pattern"),
    ({"properties": {"a": {"pattern": "(?<!x)y"}}}, "/properties/a/pattern"),
    ({"properties": {"a": {"pattern": r"(x)\1"}}}, "/properties/a/pattern"),
    ({"properties": {"a": {"pattern": "(a){99999}{99999}"}}}, "/properties/a/pattern"),
    ({"properties": {"a": {"pattern": "^.{1,10000}$"}}}, "/properties/a/pattern"),
    ({"properties": {"a": {"pattern": "["}}}, "/properties/a/pattern"),
    ({"properties": {"a": {"pattern": None}}}, "/properties/a/pattern"),
    ({"properties": {"a": {"items": {"pattern": "(?!x)"}}}}, "/properties/a/items/pattern"),
    ({"properties": {"a": {"minimum": "1"}}}, "/properties/a/minimum"),
    ({"properties": {"a": {"maxLength": -1}}}, "/properties/a/maxLength"),
    ({"properties": {"a": {"minItems": "2"}}}, "/properties/a/minItems"),
    ({"properties": {"a": {"multipleOf": 0.01}}}, "/properties/a/multipleOf"),
    ({"properties": {"a": {"uniqueItems": "yes"}}}, "/properties/a/uniqueItems"),
    ({"properties": {"a": {"type": "any"}}}, "/properties/a/type"),
    ({"properties": {"a": {"type": "float"}}}, "/properties/a/type"),
    ({"properties": {"a": {"type": ["string", "str"]}}}, "/properties/a/type"),
    ({"properties": {"a": {"type": None}}}, "/properties/a/type"),
    ({"properties": {"a": {"enum": "x"}}}, "/properties/a/enum"),
    ({"properties": {"a": {"enum": []}}}, "/properties/a/enum"),
    ({"properties": {"a": {"anyOf": {}}}}, "/properties/a/anyOf"),
    ({"properties": {"a": {"allOf": []}}}, "/properties/a/allOf"),
    ({"properties": {"a": {"oneOf": [None]}}}, "/properties/a/oneOf/0"),
    ({"properties": {"a": {"items": 5}}}, "/properties/a/items"),
    ({"properties": {"a": {"not": {"pattern": "(?=x)"}}}}, "/properties/a/not"),
    ({"properties": {"a": {"not": {"format": "email"}}}}, "/properties/a/not"),
    ({"properties": {"a": {"properties": "x"}}}, "/properties/a/properties"),
    ({"properties": {"a": {"required": "a"}}}, "/properties/a/required"),
    ({"properties": {"a": "string"}}, "/properties/a"),
    ({"properties": {"a": None}}, "/properties/a"),
    ({"properties": {"a": {}}, "patternProperties": {"(?=x)": {}}}, "/patternProperties"),
    ({"properties": {"a": {}}, "additionalProperties": "no"}, "/additionalProperties"),
    ({"properties": {"a": {}}, "dependencies": 5}, "/dependencies"),
    ({"type": 5}, "/type"),
    ("string", "/"),
    ([], "/"),
    (False, "/"),
]


@pytest.mark.parametrize(("schema", "place"), UNUSABLE)
def test_what_cannot_be_used_is_left_out_and_named(schema: Json, place: str) -> None:
    assert problem(schema, {"a": "x"}) is None
    left_out = compile_schema(schema).left_out
    assert [one.partition(": ")[0] for one in left_out][-1:] == [place]
    assert "\n" not in "".join(left_out)


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "http://example.com/own"},
        {"$schema": 5, "properties": {"a": {}}},
        {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"description": None, "title": None}}},
        {"properties": {"a": {"examples": "x", "deprecated": "yes", "readOnly": 1}}},
        {"properties": {"a": {"format": "made-up"}, "b": {"format": 5}}},
        {"properties": {"a": {"required": True}}, "required": None},
        {"properties": {"a": {}}, "required": ["a", "a"]},
        {"properties": {"a": {"type": "STRING"}}},
        {"properties": {"a": {"type": ["string", "string"]}}},
        {"properties": {"a": {"x-order": 1, "id": "a", "$comment": 5, "default": {"a": None}}}},
        {"properties": {"a": {}}, "definitions": None, "$defs": []},
        {"$id": "no uri at all", "properties": {"a": {}}},
        {"properties": {"a": {}}, "additionalProperties": None},
        True,
        None,
    ],
)
def test_what_no_check_needs_is_no_fault(schema: Json) -> None:
    assert problem(schema, {"a": "x"}) is None
    assert compile_schema(schema).left_out == ()


def test_the_rest_of_a_schema_is_checked() -> None:
    schema: Json = {
        "properties": {"a": {"type": "string", "pattern": "(?=x)"}, "b": {"maximum": 3}},
        "required": ["a"],
    }
    assert problem(schema, {"a": 1}) == 'Argument "a" must be a string (got number).'
    assert problem(schema, {}) is not None
    assert problem(schema, {"a": "y", "b": 4}) is not None
    assert problem(schema, {"a": "y", "c": 1}) is not None


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"minimum": 0, "exclusiveMinimum": True}, 1, 0),
        ({"maximum": 5, "exclusiveMaximum": False}, 5, 6),
        ({"items": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [1, "a"]),
        ({"items": [{}], "additionalItems": False}, ["a"], ["a", 1]),
        ({"dependencies": {"p": ["q"], "r": {"required": ["s"]}}}, {"p": 1, "q": 2}, {"r": 1}),
        ({"type": "string", "nullable": True}, None, 1),
        ({"enum": ["x"], "nullable": True}, None, "y"),
        ({"anyOf": [{"type": "string"}], "nullable": True}, None, 1),
        ({"type": "INTEGER"}, 1, "a"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1, "a"),
        ({"oneOf": [{"type": "string"}], "anyOf": [{"minLength": 2}]}, "ab", "a"),
        ({"$ref": "#/$defs/s"}, "x", 1),
        ({"$ref": "#/definitions/s"}, "x", 1),
        ({"$ref": "#s"}, "x", 1),
        ({"$ref": "urn:tool#/$defs/s"}, "x", 1),
        ({"$recursiveRef": "#/$defs/s"}, "x", 1),
        ({"type": "object", "properties": {"p": {"default": 1}}, "required": ["p"]}, {}, 1),
        (
            {"type": "object", "properties": {"p": {"$ref": "#/$defs/d"}}, "required": ["p", "q"]},
            {"q": 1},
            {"p": 1},
        ),
        (
            {"allOf": [
                {"properties": {"p": {"type": "string"}}, "additionalProperties": False},
                {"properties": {"q": {}}, "required": ["q"], "additionalProperties": False},
            ]},
            {"p": "x", "q": 1},
            {"p": "x"},
        ),
        ({"contains": {"const": 1}, "maxContains": 1}, [1], [1, 1]),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "ab", "a"),
    ],
)  # fmt: skip
def test_older_idioms_mean_what_they_meant(schema: Json, good: Json, bad: Json) -> None:
    root: Json = {
        "$id": "urn:tool",
        "properties": {"a": schema},
        "$defs": {"s": {"type": "string", "$anchor": "s"}, "d": {"type": "number", "default": 1}},
        "definitions": {"s": {"type": "string"}},
    }
    assert compile_schema(root).left_out == ()
    assert problem(root, {"a": good}) is None
    assert problem(root, {"a": bad}) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"pattern": "^(?=a)"}, {"pattern": "^(?=b)"}]},
        {"not": {"pattern": "^(?=b)"}},
        {"not": {"oneOf": [{"type": "string"}, {"minLength": 1}]}},
        {"not": {"$ref": "#/$defs/loose"}},
        {"if": {"pattern": "^(?=b)"}, "then": {"type": "number"}},
        {"type": ["string", "array"], "contains": {"pattern": "(?=b)"}, "maxContains": 0},
    ],
)
def test_what_is_left_out_never_makes_the_rest_refuse(schema: dict[str, Json]) -> None:
    root: Json = {"properties": {"a": schema}, "$defs": {"loose": {"pattern": "(?=b)"}}}
    assert problem(root, {"a": "alpha"}) is None
    assert "contains" not in schema or problem(root, {"a": ["alpha"]}) is None


def test_a_lost_pattern_of_names_closes_nothing() -> None:
    schema: Json = {
        "properties": {"a": {"patternProperties": {"^(?=x)": {}}, "additionalProperties": False}}
    }
    assert problem(schema, {"a": {"xyz": 1}}) is None


S: Json = {"type": "string"}


@pytest.mark.parametrize(
    "schema", table("facts/schema.arguments_of_every_part_of_the_root", list[dict[str, Json]])
)
def test_arguments_of_every_part_of_the_root_are_known(schema: dict[str, Json]) -> None:
    root: Json = {**schema, "$defs": {"both": {"properties": {"a": S, "b": S}}}}
    assert problem(root, {"a": "x", "b": "y"}) is None
    assert problem(root, {"a": 1, "b": 1}) is not None
    said = problem(root, {"c": "x"})
    assert said is not None
    assert 'Unknown argument(s): "c". Valid parameters are: "a", "b"' in said


def test_an_argument_of_two_forms_has_both() -> None:
    number: Json = {"properties": {"a": {"type": "integer"}}}
    root: Json = {"anyOf": [{"properties": {"a": S}}, number]}
    assert declared_arguments(root).names == {"a": {"anyOf": [S, {"type": "integer"}]}}


def test_what_is_left_out_of_a_tool_is_said_once() -> None:
    said: list[tuple[str, tuple[str, ...]]] = []
    checker = SchemaChecker(lambda tool, left_out: said.append((tool, left_out)))
    annotation = ToolAnnotation(server="s", tool="t", arguments={"a": RoleSpec(default=("none",))})
    schema: Json = {"properties": {"a": {"pattern": "(?=x)"}}}
    for _ in range(2):
        assert checker.problem(annotation, schema, {"a": "y"}) is None
    assert [tool for tool, _ in said] == ["s/t"]


def test_a_pattern_takes_linear_time() -> None:
    schema: Json = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    assert problem(schema, {"a": "a" * 50_000 + "!"}) is not None


def test_a_changed_schema_is_compiled_anew() -> None:
    annotation = ToolAnnotation(server="s", tool="t", arguments={"a": RoleSpec(default=("none",))})
    checker = SchemaChecker()
    assert checker.problem(annotation, {"properties": {"a": {}}}, {"a": 1}) is None
    closed: Json = {"properties": {"a": {"type": "string"}}}
    assert checker.problem(annotation, closed, {"a": 1}) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(schema=JSON, arguments=st.dictionaries(st.text(), JSON, max_size=3))
def test_no_schema_and_no_arguments_make_the_checker_raise(
    schema: Json, arguments: dict[str, Json]
) -> None:
    problem(schema, arguments)
    problem({"properties": schema}, arguments)


TYPED: dict[str, Json] = table("facts/schema.typed", dict[str, Json])


def fitted(arguments: dict[str, Json]) -> tuple[Arguments, str | None]:
    annotation = ToolAnnotation(
        server="s", tool="t", arguments={name: RoleSpec(default=("none",)) for name in "abcxyz"}
    )
    found, fault = SchemaChecker().fitted(annotation, TYPED, arguments)
    assert fault == problem(TYPED, dict(found))
    return found, fault


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"a": "3"}, {"a": 3}),
        ({"b": "true", "c": {"x": "-4"}}, {"b": True, "c": {"x": -4}}),
        ({"x": '["/etc", "3"]', "z": "3"}, {"x": ["/etc", "3"], "z": "3"}),
        ({"y": [1, "2.5", "7"]}, {"y": [1, 2.5, 7]}),
        ({"c": '{"x": 12345678901234567890123}'}, {"c": {"x": 12345678901234567890123}}),
    ],
)
def test_a_text_that_does_not_fit_is_the_value_that_it_is_the_json_of(
    sent: dict[str, Json], meant: dict[str, Json]
) -> None:
    before = deepcopy(sent)
    assert fitted(sent) == (meant, None)
    assert sent == before


@pytest.mark.parametrize(
    "sent",
    [
        {"a": "2"},
        {"a": "3 of 4"},
        {"a": "3", "b": 7},
        {"a": "NaN"},
        {"a": "\ud800"},
        {"x": "/etc"},
        {"x": "[" * 100_000},
        {"y": ["1"] * 101},
        {"c": {"x": 1.5}},
        {"other": "3"},
    ],
)
def test_what_fits_in_no_reading_is_refused_as_it_came(sent: dict[str, Json]) -> None:
    found, fault = fitted(sent)
    assert found is sent
    assert fault is not None


@given(st.dictionaries(st.sampled_from("abcxyz"), st.text(max_size=4) | st.integers()))
def test_only_texts_are_read_otherwise(sent: dict[str, Json]) -> None:
    found, fault = fitted(sent)
    assert isinstance(found, dict)
    assert found.keys() == sent.keys()
    for name, value in sent.items():
        is_read = isinstance(value, str) and fault is None and found[name] != value
        assert found[name] == (orjson.loads(str(value)) if is_read else value)
