"""Rules about URIs that are neither files nor URLs."""

import pytest

from ironcurtain_proxy.model.conditions import UriCondition
from ironcurtain_proxy.model.request import PathValue, TextValue
from ironcurtain_proxy.model.values import RealPath

NOTES = UriCondition(patterns=frozenset({"note://mine/*", "memo:insights"}))


@pytest.mark.parametrize(
    ("uri", "described"),
    [
        ("memo:insights", True),
        ("memo:insights2", False),
        ("note://mine/a/b", True),
        ("note://yours/a", False),
        ("note://mine/../yours", False),
        ("note://mine/%2e%2e/yours", False),
    ],
)
def test_a_pattern_describes_only_uris_that_can_be_read_in_one_way(
    uri: str, *, described: bool
) -> None:
    assert NOTES.covers(TextValue(uri)) is described


def test_a_scheme_stands_for_all_that_its_server_has() -> None:
    schemes = UriCondition(schemes=frozenset({"memo"}))
    assert schemes.covers(TextValue("memo:anything/../else"))
    assert not schemes.covers(TextValue("note:memo:"))
    assert not UriCondition().covers(TextValue("memo:x"))


def test_a_path_is_no_uri() -> None:
    assert not NOTES.covers(PathValue("memo:x", RealPath.from_text("/memo:x")))
