"""Arguments held to the input schema."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.facts.schema import SchemaChecker
from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.json import Json


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


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"$ref": "http://127.0.0.1:1/x"}, id="a reference over the network"),
        pytest.param({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, id="to a file"),
        pytest.param({"properties": {"a": {"pattern": "(?=x)y"}}}, id="a pattern with look-ahead"),
        pytest.param({"properties": {"a": {"pattern": "(a){99999}{99999}"}}}, id="a huge pattern"),
        pytest.param({"type": 5}, id="not a schema"),
        pytest.param({"$schema": "http://example.com/own"}, id="an unknown dialect"),
        pytest.param("string", id="a string"),
        pytest.param([], id="a list"),
        pytest.param(True, id="a switch"),
    ],
)
def test_a_schema_that_cannot_be_used_denies_its_tool(schema: Json) -> None:
    message = problem(schema, {})
    assert message is not None
    assert "input schema" in message
    assert "\n" not in message


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
