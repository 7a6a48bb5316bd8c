"""Each kind of condition: what it is read from, printed as, and said to be."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.condition_reading import ConditionSpot, read_name_patterns, read_role
from ironcurtain_proxy.model.conditions import (
    VALUE_CONDITIONS,
    Condition,
    DomainCondition,
    ExceptingNames,
    ListCondition,
    NameCondition,
    PathCondition,
    SqlCondition,
    UriCondition,
)
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.request import AccessRequest, TextValue
from ironcurtain_proxy.model.values import Json, RealPath

READ: frozenset[ArgumentRole] = frozenset({"read-path"})
NO_CALL = AccessRequest(
    server="s", tool="t", annotated=True, has_arguments=False, arguments=(), repository=None
)


@dataclass
class AFile:
    """What surrounds a condition in a file: directories and hosts are taken as they are written."""

    asked: list[str] = field(default_factory=list)

    def directory(self, node: ConditionSpot) -> RealPath:
        return RealPath.from_text(node.name())

    def hosts(self, nodes: Sequence[ConditionSpot]) -> frozenset[str]:
        return frozenset(self.entries(nodes))

    def names(
        self, nodes: Sequence[ConditionSpot], unless: frozenset[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        return read_name_patterns(nodes), unless

    def entries(self, nodes: Sequence[ConditionSpot]) -> tuple[str, ...]:
        self.asked += [node.name() for node in nodes]
        return tuple(self.asked)


WRITTEN: dict[str, tuple[Json, str]] = {
    "paths": ({"roles": ["read-path"], "within": "/srv"}, "within /srv"),
    "names": (
        {"roles": ["read-path"], "matching": ["*.key"], "unless": ["a.key"]},
        "named like 1 patterns",
    ),
    "domains": ({"roles": ["fetch-url"], "allowed": ["a.org"]}, "hosts a.org"),
    "lists": (
        {"roles": ["github-owner"], "allowed": ["Acme"], "matchType": "identifiers"},
        "identifiers Acme",
    ),
    "sql": ("writes", "SQL that at most writes"),
    "uris": ({"schemes": ["memo"], "patterns": ["demo://*"]}, "resources memo:*, demo://*"),
    "namedBy": ({"roles": ["email-address"], "by": ["own", "user"]}, "named by own, user"),
}


def read(kind: str, document: Json) -> tuple[Condition, list[str]]:
    """Read one condition of a kind, with what is wrong with it."""
    report = Report()
    (found,) = [one for one in VALUE_CONDITIONS if one.key == kind]
    node = DocumentNode([document] if kind == "lists" else document, "policy.json", report)
    made = found.read(node, AFile())
    problems = [str(problem) for problem in report.problems]
    if isinstance(made, tuple):
        return made[0], problems
    return SqlCondition(bound=made) if isinstance(made, str) else made, problems


def test_every_kind_is_tried() -> None:
    assert [*WRITTEN] == [kind.key for kind in VALUE_CONDITIONS]


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_condition_is_printed_as_it_was_read_and_says_what_it_is(kind: str) -> None:
    document, words = WRITTEN[kind]
    condition, problems = read(kind, document)
    assert problems == []
    assert condition.as_json() == document
    assert condition.words() == words
    assert condition.why_not()
    assert condition.about


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_rule_with_one_condition_is_about_the_roles_of_that_condition(kind: str) -> None:
    condition, _ = read(kind, WRITTEN[kind][0])
    value: object = condition
    if isinstance(condition, ListCondition):
        value = (condition,)
    elif isinstance(condition, SqlCondition):
        value = condition.bound
    rule = Rule(name="r", effect="allow", reason="", **{kind: value})  # type: ignore[arg-type]
    assert rule.conditions == (condition,)
    assert rule.about == condition.about


@pytest.mark.parametrize(
    ("kind", "document", "words"),
    [
        ("names", {"roles": ["read-path"], "matching": ["a//b"]}, "must be the last names"),
        ("names", {"roles": ["read-path"], "matching": ["*"]}, "describes every name"),
        ("names", {"roles": ["read-path"], "matching": ["a?"]}, "no wildcard but *"),
        ("names", {"roles": ["read-path"], "matching": ["*a*b*c*"]}, "3 times at most"),
        ("uris", {"schemes": ["https"]}, "judged by its path or host"),
        ("uris", {"schemes": ["A!"]}, "a scheme in lower case"),
        ("uris", {"patterns": ["insights"]}, "a URI with a scheme"),
        ("uris", {"patterns": ["file:///x"]}, "judged by its path or host"),
        ("uris", {"patterns": ["a:*b*c*d*"]}, "at most 3 times"),
        ("sql", "runs", "is not one of"),
        ("lists", {"roles": ["x"], "allowed": [], "matchType": "emails"}, "is not one of"),
    ],
)
def test_what_would_match_too_much_or_nothing_is_a_mistake_with_its_place(
    kind: str, document: Json, words: str
) -> None:
    _, problems = read(kind, document)
    assert any(words in problem for problem in problems), problems


def test_hosts_of_a_list_are_compared_in_lower_case_and_names_as_they_are_written() -> None:
    hosts: dict[str, Json] = {
        "roles": ["fetch-url"],
        "allowed": ["A.org/X"],
        "matchType": "domains",
    }
    assert read("lists", hosts)[0].as_json() == {**hosts, "allowed": ["a.org/X"]}


@pytest.mark.parametrize(
    ("condition", "empty"),
    [
        (PathCondition(roles=frozenset(), within=RealPath(())), ["roles"]),
        (NameCondition(roles=READ, matching=frozenset()), ["matching"]),
        (DomainCondition(roles=READ, allowed=frozenset()), ["allowed"]),
        (ListCondition(roles=READ, allowed=frozenset(), kind="emails"), ["allowed"]),
        (ExceptingNames(roles=READ, matching=frozenset()), []),
        (SqlCondition(bound="reads"), []),
        (UriCondition(), []),
    ],
)
def test_what_matches_nothing_because_it_is_empty_is_named(
    condition: Condition, empty: list[str]
) -> None:
    assert [key for key, found in condition.collections() if not found] == empty


def test_names_that_are_left_out_concern_every_role_and_narrow_nothing() -> None:
    leaves = ExceptingNames(roles=READ, matching=frozenset({".env"}))
    assert leaves.words() == "except 1 patterns"
    assert leaves.why_not().startswith("leaves out")
    assert not leaves.narrows
    assert leaves.named == frozenset()
    assert "fetch-url" in leaves.about
    assert leaves.may_hold(None, frozenset())
    assert leaves.covers(TextValue(".env"))


def test_a_condition_on_paths_cannot_hold_for_a_tool_without_resource_roles() -> None:
    owners = ListCondition(
        roles=frozenset({"email-address"}), allowed=frozenset({"a@b"}), kind="emails"
    )
    assert owners.may_hold(None, frozenset({"email-address"}))
    assert not owners.may_hold(None, READ)
    assert not PathCondition(roles=READ, within=RealPath(())).may_hold(None, READ)
    assert not UriCondition().holds_unseen(NO_CALL, None)
    assert UriCondition().holds(NO_CALL, None)
    assert SqlCondition(bound="reads").covers(TextValue("x"))
    assert SqlCondition(bound="reads").may_hold("sql", frozenset())
    assert SqlCondition(bound="reads").named == frozenset()
    leaves = ExceptingNames(roles=READ, matching=frozenset({".env"}))
    assert leaves.holds_unseen(NO_CALL, None)


def test_a_role_is_a_word_of_the_vocabulary() -> None:
    report = Report()
    assert read_role(DocumentNode("write-path", "f", report)) == "write-path"
    assert not report.problems
