"""Requests other than tool calls: which shape they need, and what of them is judged."""

from collections.abc import Mapping

import pytest

from ironcurtain_proxy.model.crossing import (
    asked_by,
    asked_of,
    fault_of,
    named_by,
    on_the_wire,
    operation_of,
    recorded_as,
)
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.operation import Method, ParsedRequest, RequestId, label
from ironcurtain_proxy.model.values import Json

PROMPT: Mapping[str, Json] = {
    "ref": {"type": "ref/prompt", "name": "greet"},
    "argument": {"name": "who", "value": "A"},
    "context": {"arguments": {"tone": "kind"}},
}
TEMPLATE: Mapping[str, Json] = {
    "ref": {"type": "ref/resource", "uri": "note://{id}"},
    "argument": {"name": "id", "value": "7"},
}


def without(params: Mapping[str, Json], key: str) -> dict[str, Json]:
    return {name: value for name, value in params.items() if name != key}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "note://1"}),
        ("resources/subscribe", {"uri": "note://1"}),
        ("prompts/get", {"name": "greet"}),
        ("prompts/get", {"name": "greet", "arguments": {"who": "A"}}),
        ("completion/complete", PROMPT),
        ("completion/complete", TEMPLATE),
        ("resources/list", {}),
    ],
)
def test_a_request_of_the_right_shape_has_no_fault(method: str, params: Mapping[str, Json]) -> None:
    assert fault_of(method, params) is None


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {}),
        ("resources/unsubscribe", {"uri": 1}),
        ("prompts/get", {"name": None}),
        ("prompts/get", {"name": "greet", "arguments": []}),
        ("completion/complete", without(PROMPT, "ref")),
        ("completion/complete", without(PROMPT, "argument")),
        ("completion/complete", {**PROMPT, "ref": {"type": "ref/tool", "name": "x"}}),
        ("completion/complete", {**PROMPT, "ref": {"type": "ref/prompt", "uri": "x"}}),
        ("completion/complete", {**PROMPT, "argument": {"name": "who"}}),
        ("completion/complete", {**PROMPT, "argument": {"value": "A"}}),
        ("completion/complete", {**PROMPT, "context": []}),
        ("completion/complete", {**PROMPT, "context": {"arguments": []}}),
        ("completion/complete", {**PROMPT, "context": {"arguments": {"tone": 1}}}),
    ],
)
def test_a_request_of_another_shape_is_said_to_need_what_is_missing(
    method: str, params: Mapping[str, Json]
) -> None:
    fault = fault_of(method, params)
    assert fault is not None
    assert fault.startswith(f"{method} needs ")
    assert on_the_wire("notes", method, params) == Ground("invalid-params", fault)


@pytest.mark.parametrize("method", ["tools/call", "resources/list", "no/such"])
def test_a_method_that_is_not_decided_on_is_refused(method: str) -> None:
    found = on_the_wire("notes", method, {})
    assert isinstance(found, Ground)
    assert found.rule == "not-offered"


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("resources/read", {"uri": "note://1"}, ("resource", "note://1")),
        ("prompts/get", {"name": "greet"}, ("prompt", "greet")),
        ("completion/complete", PROMPT, ("prompt", "greet")),
        ("completion/complete", TEMPLATE, ("resource", "note://{id}")),
    ],
)
def test_a_request_names_a_resource_or_a_prompt(
    method: Method, params: Mapping[str, Json], named: tuple[str, str]
) -> None:
    assert named_by(method, params) == named


def test_a_resource_is_judged_by_its_uri_and_sent_under_the_server_s_own() -> None:
    asked = asked_of("resources/read", {"uri": "shown"}, "notes", "own")
    assert (asked.exposed_name, asked.tool) == ("shown", label("resources/read"))
    assert asked.arguments == asked.own == {"uri": "own"}
    assert asked.judged == {"uri"}


def test_a_prompt_is_judged_by_its_arguments() -> None:
    asked = asked_of("prompts/get", {"name": "n__greet", "arguments": {"who": "A"}}, "n", "greet")
    assert (asked.arguments, asked.own) == ({"who": "A"}, {"name": "greet"})
    assert asked_of("prompts/get", {"name": "greet"}, "n", "greet").arguments == {}


def test_a_completion_is_judged_with_the_arguments_so_far() -> None:
    asked = asked_of("completion/complete", PROMPT, "n", "own")
    assert asked.arguments == {"tone": "kind", "who": "A"}
    assert asked.own["ref"] == {"type": "ref/prompt", "name": "own"}
    template = asked_of("completion/complete", TEMPLATE, "n", "own")
    assert template.arguments == {"id": "7"}
    assert template.own["ref"] == {"type": "ref/resource", "uri": "own"}


def test_a_question_of_a_server_passes_on_only_what_the_protocol_names() -> None:
    params: Mapping[str, Json] = {"messages": [], "maxTokens": 5, "includeContext": "allServers"}
    asked = asked_by("notes", "sampling/createMessage", params)
    assert asked.arguments == {"messages": [], "maxTokens": 5}
    sent = operation_of(asked, RequestId("1")).params
    assert "includeContext" not in sent
    assert on_the_wire("notes", "sampling/createMessage", params) == asked


def test_an_operation_is_sent_with_the_server_s_own_names() -> None:
    asked = asked_of("resources/read", {"uri": "shown", "_meta": {"x": 1}}, "notes", "own")
    operation = operation_of(asked, RequestId("1"))
    assert operation.params == {"uri": "own"}
    assert operation.method == "resources/read"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "note://1"}),
        ("prompts/get", {"name": "greet", "arguments": {"who": "A"}}),
        ("completion/complete", PROMPT),
        ("completion/complete", TEMPLATE),
        ("elicitation/create", {"message": "Which?"}),
    ],
)
def test_a_record_tells_which_request_it_was(method: str, params: Mapping[str, Json]) -> None:
    asked = on_the_wire("notes", method, params)
    assert isinstance(asked, ParsedRequest)
    again = recorded_as("notes", asked.tool, asked.arguments)
    assert again is not None
    assert (again.method, again.tool, again.arguments) == (
        asked.method,
        asked.tool,
        asked.arguments,
    )


@pytest.mark.parametrize("tool", ["read_file", "tools/call"])
def test_a_record_of_a_tool_call_is_of_no_other_request(tool: str) -> None:
    assert recorded_as("notes", tool, {}) is None
