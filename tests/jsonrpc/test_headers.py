"""What of a message stands in HTTP headers: what is sent, and what is held against arguments."""

from itertools import product
from typing import Final, cast

import pytest
from mcp.shared.inbound import (
    decode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    validate_mcp_param_headers,
    x_mcp_header_map,
)
from starlette.datastructures import Headers

from ironcurtain_proxy.downstream.eras import NO_CAPABILITIES, enveloped
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.jsonrpc.codec import (
    header_value,
    headers_of_message,
    mirrored_arguments,
    mismatch,
)
from ironcurtain_proxy.model.server import ToolDefinition
from ironcurtain_proxy.model.values import Json
from tests.tables import table

Message = dict[str, Json]

SCHEMAS: Final[list[object]] = [
    {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}},
    {"properties": {"a": {"type": "object", "properties": {"b": {"type": "integer"}}}}},
    {
        "properties": {
            "a": {"properties": {"b": {"type": "integer", "x-mcp-header": "B-b"}}},
            "c": {"type": "boolean", "x-mcp-header": "C"},
        }
    },
    {"properties": {"x-mcp-header": {"type": "string"}}},
    {"properties": {"a": {"type": "string", "default": {"x-mcp-header": "a b"}}}},
    *(
        {"properties": {"a": {"type": kind, "x-mcp-header": "A"}}}
        for kind in ("number", "array", "object", "null", ["string", "null"], None)
    ),
    *(
        {"properties": {"a": {"type": "string", "x-mcp-header": name}}}
        for name in ("", "a b", "a:b", "é", "a\n", 1, None, ["A"])
    ),
    {"x-mcp-header": "A"},
    {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
    {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
    {"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}},
    {
        "properties": {
            "a": {"type": "string", "x-mcp-header": "A"},
            "b": {"type": "string", "x-mcp-header": "a"},
        }
    },
    True,
    None,
]
ARGUMENTS: Final[Message] = {"a": {"b": 7, "c": None}, "b": " x", "c": True}


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_the_annotations_of_headers_are_read_as_the_sdk_reads_them(schema: Json) -> None:
    found = mirrored_arguments(ToolDefinition("one", "t", {"name": "t", "inputSchema": schema}))
    assert isinstance(found, str) == (find_invalid_x_mcp_header(schema) is not None)
    if not isinstance(found, str):
        assert found == x_mcp_header_map(schema)
        message: Message = {
            "method": "tools/call",
            "params": enveloped({"name": "t", "arguments": ARGUMENTS}, NO_CAPABILITIES),
        }
        ours = headers_of_message(message, {"t": found})
        theirs = {
            name.lower(): value for name, value in mcp_param_headers(found, ARGUMENTS).items()
        }
        assert {key: value for key, value in ours.items() if "param" in key} == theirs


def test_headers_from_a_client_are_held_against_arguments_as_the_sdk_holds_them() -> None:
    headers: list[dict[str, list[str]]] = [
        {},
        {"a": ["x"]},
        {"a": ["=?base64?eA==?="]},
        {"a": ["=?base64?eA=?="]},
        {"a": ["x", "x"]},
        {"a": [""]},
        {"a": ["1"]},
        {"b-b": ["7"], "c": ["true"]},
        {"b-b": ["7"], "c": ["True"]},
        {"b-b": ["7.0"], "c": ["true"]},
        {"b-b": ["7.5"], "c": ["true"]},
        {"b-b": ["7"]},
        {"other": ["x"]},
    ]
    calls: list[Message] = [{}, {"a": "x"}, {"a": 1}, {"a": None}, {"a": [1]}, ARGUMENTS]
    different = []
    for schema, said, given in product(SCHEMAS[:5], headers, calls):
        tool = {"name": "t", "inputSchema": cast("Json", schema)}
        paths = mirrored_arguments(ToolDefinition("one", "t", tool))
        assert not isinstance(paths, str)
        named = {f"mcp-param-{name}": values for name, values in said.items()}
        raw = Headers(raw=[(k.encode(), v.encode()) for k, vs in named.items() for v in vs])
        theirs = validate_mcp_param_headers(schema, given, raw)
        if (mismatch(given, paths, named) is None) != (theirs is None):
            different.append((schema, said, given, theirs))
    assert different == []


@pytest.mark.parametrize(
    "text",
    table("jsonrpc/headers.every_text_stands_in_a", list[str]),
)
def test_every_text_stands_in_a_header_and_comes_out_as_it_was(text: str) -> None:
    value = header_value(text)
    assert value.isascii()
    assert value.isprintable() or not value
    assert decode_header_value(value) == text


def test_an_argument_that_no_header_can_hold_is_not_sent() -> None:
    params: Message = {"name": "t", "arguments": {"a": "x" * 9000}}
    message: Message = {"method": "tools/call", "params": enveloped(params, NO_CAPABILITIES)}
    with pytest.raises(DownstreamError, match="header"):
        headers_of_message(message, {"t": {("a",): "A"}})
