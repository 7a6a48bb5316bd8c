"""A rule that leaves out names of files, whatever it allows."""

import pytest

from ironcurtain_proxy.decision.rules import covers
from ironcurtain_proxy.model.conditions import ExceptingNames, PathCondition
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.request import PathValue, TextValue
from ironcurtain_proxy.model.values import RealPath

NAMES = ExceptingNames(
    roles=frozenset({"read-path"}),
    matching=frozenset({".env*"}),
    unless=frozenset({".env.example"}),
)
RULE = Rule(
    name="r",
    effect="allow",
    reason="",
    paths=PathCondition(roles=frozenset({"read-path"}), within=RealPath.from_text("/srv")),
    excepting=NAMES,
)


def value(text: str, link: str | None = None) -> PathValue:
    came_by = None if link is None else RealPath.from_text(link)
    return PathValue(text, RealPath.from_text(text), came_by)


@pytest.mark.parametrize(
    ("path", "link", "covered"),
    [
        ("/srv/a.txt", None, True),
        ("/srv/.env.example", None, True),
        ("/srv/.ENV", None, False),
        ("/srv/deep/.env.local", None, False),
        ("/srv/.env", "/srv/harmless.txt", False),
        ("/srv/harmless.txt", "/srv/.env", False),
        ("/other/a.txt", None, False),
    ],
)
def test_a_path_is_left_out_by_its_name_or_that_of_its_link(
    path: str, link: str | None, covered: bool
) -> None:
    assert covers(RULE, value(path, link)) is covered


def test_a_value_that_is_no_path_has_no_name() -> None:
    plain = Rule(name="r", effect="allow", reason="", excepting=NAMES)
    assert covers(plain, TextValue(".env"))
