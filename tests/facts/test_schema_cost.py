"""Schemas that would hold the proxy up are refused before they are used."""

import pytest

from ironcurtain_proxy.facts.schema import (
    MAX_DEPTH,
    SchemaChecker,
    TooCostlyError,
    compile_schema,
    refuse_costly,
)
from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.values import Json
from tests.tables import table

ANNOTATION = ToolAnnotation(server="s", tool="t", arguments={"a": RoleSpec(default=("none",))})


def doubling(levels: int, keyword: str = "anyOf") -> dict[str, Json]:
    """Each level names the next one twice: 2^levels ways to fail."""
    definitions: dict[str, Json] = {
        f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(levels)
    }
    definitions[f"d{levels}"] = False
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_doubling_references_are_refused(keyword: str) -> None:
    with pytest.raises(TooCostlyError):
        refuse_costly(doubling(40, keyword))
    refuse_costly(doubling(5, keyword))


@pytest.mark.parametrize("keyword", ["not", "allOf", "items", "additionalProperties"])
def test_a_schema_that_is_nested_too_deeply_is_refused(keyword: str) -> None:
    def nested(levels: int) -> dict[str, Json]:
        schema: dict[str, Json] = {"type": "string"}
        for _ in range(levels):
            schema = {keyword: [schema] if keyword == "allOf" else schema}
        return schema

    refuse_costly(nested(MAX_DEPTH // 2 - 1))
    with pytest.raises(TooCostlyError, match="too deeply"):
        refuse_costly(nested(2 * MAX_DEPTH + 2))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "$ref": "#/properties/a"},
    ],
)
def test_a_schema_that_refers_to_itself_in_place_is_refused(schema: dict[str, Json]) -> None:
    with pytest.raises(TooCostlyError):
        refuse_costly(schema)


@pytest.mark.parametrize(
    "schema", table("facts/schema_cost.trees_and_ordinary_schemas_pass", list[dict[str, Json]])
)
def test_trees_and_ordinary_schemas_pass(schema: dict[str, Json]) -> None:
    refuse_costly(schema)


def test_of_such_a_schema_only_the_types_of_arguments_are_checked() -> None:
    schema = doubling(40)
    properties = schema["properties"]
    assert isinstance(properties, dict)
    properties["b"] = {"type": "string"}
    checker = SchemaChecker()
    assert checker.problem(ANNOTATION, schema, {"a": 1}) is None
    assert checker.problem(ANNOTATION, schema, {"b": 1}) is not None
    assert checker.problem(ANNOTATION, schema, {"c": 1}) is not None
    assert "too many" in str(compile_schema(schema).left_out)
