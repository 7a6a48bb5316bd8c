"""Equal calls have equal fingerprints, others do not."""

import pytest

from ironcurtain_proxy.facts.live_catalogue import fingerprint
from ironcurtain_proxy.model.values import Json


def test_the_order_of_keys_does_not_matter_at_any_depth() -> None:
    one: dict[str, Json] = {"a": {"x": 1, "y": [2]}, "b": 3}
    other: dict[str, Json] = {"b": 3, "a": {"y": [2], "x": 1}}
    assert fingerprint("s", "t", one) == fingerprint("s", "t", other)


@pytest.mark.parametrize(
    ("server", "tool", "arguments"),
    [("s2", "t", {"a": 1}), ("s", "t2", {"a": 1}), ("s", "t", {"a": 2}), ("s", "t", {"a": "1"})],
)
def test_any_difference_counts(server: str, tool: str, arguments: dict[str, Json]) -> None:
    assert fingerprint("s", "t", {"a": 1}) != fingerprint(server, tool, arguments)


def test_names_do_not_run_together() -> None:
    assert fingerprint("a", "b__c", {}) != fingerprint("a__b", "c", {})


@pytest.mark.parametrize("value", [2**70, "\ud800", [1.5, None, True]])
def test_every_json_value_has_one(value: Json) -> None:
    assert len(fingerprint("s", "t", {"a": value})) == 64
