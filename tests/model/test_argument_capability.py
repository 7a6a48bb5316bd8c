"""What the arguments of a call add to what its tool needs."""

import pytest

from ironcurtain_proxy.model.annotation import ArgumentCapabilities, capabilities_by_argument
from ironcurtain_proxy.model.values import Json
from tests.tables import table

RULES = table("model/argument_capability.rules", tuple[ArgumentCapabilities, ...])


@pytest.mark.requirement("D-10")
def test_a_value_adds_what_stands_for_it() -> None:
    cases: list[tuple[Json, set[str]]] = [
        ("write", {"fs.write"}),
        ("Write", set()),
        ("read", set()),
        (True, {"proc.exec"}),
        ("true", {"proc.exec"}),
        (False, set()),
        (None, {"data.user"}),
        (2, {"net.egress"}),
        (2.0, {"net.egress"}),
        (2.5, set()),
        (float("inf"), set()),
        (["read", "write", 2], {"fs.write", "net.egress"}),
        ([["write"]], set()),
        ({"write": 1}, set()),
    ]
    assert [
        (value, added)
        for value, added in cases
        if capabilities_by_argument(RULES, {"mode": value, "other": "write"}) != added
    ] == []


@pytest.mark.requirement("D-10")
@pytest.mark.parametrize("value", ["x", "", None, False, [], {}, 0])
def test_a_star_holds_for_every_value_of_an_argument_that_is_there(value: Json) -> None:
    assert capabilities_by_argument(RULES, {"upload": value}) == {"net.egress", "secrets.access"}


def test_an_argument_that_is_not_there_adds_nothing() -> None:
    assert capabilities_by_argument(RULES, {}) == frozenset()


def test_an_object_has_no_word_of_its_own_and_is_there_all_the_same() -> None:
    rules = (ArgumentCapabilities("a", {"{}": ("x",), "*": ("y",)}),)
    assert capabilities_by_argument(rules, {"a": {}}) == {"y"}
    assert capabilities_by_argument(rules, {"a": [[], {"b": 1}]}) == {"y"}
