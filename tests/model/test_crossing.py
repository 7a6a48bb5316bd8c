"""What of a call's `params` reaches a server, and what does not."""

from typing import Final

import pytest

from ironcurtain_proxy.model.crossing import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_WITHHELD,
    bound_meta,
    divide,
    meta_of,
)
from ironcurtain_proxy.model.operation import ENVELOPE
from ironcurtain_proxy.model.values import Json

TRACE: Final[dict[str, Json]] = {
    "progressToken": "t",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "a=1",
    "baggage": "user=1",
}

DEEP: Json = "x"
for _ in range(MAX_DEPTH + 1):
    DEEP = [DEEP]


def test_name_arguments_and_the_standard_keys_cross_in_their_order() -> None:
    params: dict[str, Json] = {"_meta": {**TRACE}, "arguments": {"a": 1}, "name": "x"}
    crossing = divide(params)
    assert list(crossing.params.items()) == list(params.items())
    assert crossing.withheld == ()


@pytest.mark.parametrize(
    "key", ["task", "inputResponses", "requestState", "futureParam", "Name", "__proto__"]
)
def test_every_other_key_of_the_params_stays_and_is_named(key: str) -> None:
    crossing = divide({"name": "x", key: {"delete": "everything"}})
    assert crossing.params == {"name": "x"}
    assert crossing.withheld == (key,)


def test_keys_of_meta_that_nobody_named_stay() -> None:
    params: dict[str, Json] = {"_meta": {"exfil": "secret", "baggage": "a=1"}}
    crossing = divide(params)
    assert crossing.params == {"_meta": {"baggage": "a=1"}}
    assert crossing.withheld == ("_meta.exfil",)
    assert divide({"_meta": {"exfil": 1}}).params == {}


@pytest.mark.parametrize("key", sorted(ENVELOPE))
def test_what_a_request_says_of_itself_is_read_by_the_proxy_and_crosses_to_no_server(
    key: str,
) -> None:
    crossing = divide({"name": "x", "_meta": {key: "2026-07-28", "baggage": "a=1"}})
    assert crossing.params == {"name": "x", "_meta": {"baggage": "a=1"}}
    assert crossing.withheld == ()


@pytest.mark.parametrize("value", [1, {"a": [1.5, None, True]}, "text", None, []])
def test_a_key_that_the_operator_names_crosses_with_any_small_value(value: Json) -> None:
    crossing = divide({"_meta": {"vendor/key": value}}, frozenset({"vendor/key"}))
    assert crossing.params == {"_meta": {"vendor/key": value}}


@pytest.mark.parametrize(
    "value",
    [
        "x" * MAX_BYTES,
        "é" * (MAX_BYTES // 2 + 1),
        ["x" * (MAX_BYTES // 2)] * 2,
        {"x" * MAX_BYTES: 1},
        [0] * (MAX_BYTES + 1),
        10**40_000,
        DEEP,
    ],
    ids=["text", "bytes", "texts", "key", "items", "number", "deep"],
)
def test_what_no_record_can_hold_as_a_whole_stays(value: Json) -> None:
    named = frozenset({"vendor/key", "baggage"})
    for key in sorted(named):
        assert divide({"_meta": {key: value}}, named).withheld == (f"_meta.{key}",)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("progressToken", True),
        ("progressToken", {"data": "x"}),
        ("progressToken", None),
        ("progressToken", "x" * MAX_BYTES),
        ("traceparent", 5),
        ("tracestate", ["a=1"]),
        ("baggage", None),
    ],
)
def test_a_standard_key_with_a_value_of_another_kind_stays(key: str, value: Json) -> None:
    assert divide({"_meta": {key: value}}).withheld == (f"_meta.{key}",)


@pytest.mark.parametrize("meta", [None, "text", ["traceparent"], 5])
def test_a_meta_that_is_no_object_stays(meta: Json) -> None:
    crossing = divide({"name": "x", "_meta": meta})
    assert crossing.params == {"name": "x"}
    assert crossing.withheld == ("_meta",)
    assert meta_of({"_meta": meta}) == {}


def test_the_names_of_what_stays_are_bounded() -> None:
    crossing = divide({"y" * 5000: 1, **{f"key{number}": 1 for number in range(100)}})
    assert len(crossing.withheld) == MAX_WITHHELD + 1
    assert crossing.withheld[-1] == f"and {101 - MAX_WITHHELD} more"
    assert len(crossing.withheld[0]) < 100


@pytest.mark.parametrize("token", [7, -1, 0])
def test_an_approval_is_bound_to_all_of_meta_but_a_token_that_counts(token: int) -> None:
    meta: dict[str, Json] = {**TRACE, "progressToken": token}
    rest = {key: value for key, value in TRACE.items() if key != "progressToken"}
    assert bound_meta({"_meta": meta}) == rest
    assert bound_meta({"_meta": {**TRACE}}) == TRACE


@pytest.mark.parametrize("token", ["a message", 1.5, 1 << 60])
def test_a_token_that_can_hold_a_message_is_part_of_the_approval(token: Json) -> None:
    assert bound_meta({"_meta": {"progressToken": token}}) == {"progressToken": token}


@pytest.mark.parametrize("token", [0, 7, -1, 1.5, 1 << 60])
def test_a_progress_token_that_is_a_number_crosses(token: Json) -> None:
    params: dict[str, Json] = {"_meta": {"progressToken": token}}
    assert divide(params).params == params


@pytest.mark.parametrize("token", [True, None, [1], {"a": 1}])
def test_a_progress_token_of_another_kind_stays(token: Json) -> None:
    crossing = divide({"_meta": {"progressToken": token}})
    assert crossing.params == {}
    assert crossing.withheld == ("_meta.progressToken",)
