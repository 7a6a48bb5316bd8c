"""Rules that keep their calls for reviewers."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import is_asked_to_read, quorums_of, rule_for_reviewers
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import NameCondition, PathCondition
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import RealPath

KEPT = Rule(name="kept", effect="escalate", reason="so", contained=False)
OTHER = Rule(name="other", effect="escalate", reason="so")


def request(*paths: str) -> AccessRequest:
    values = tuple([PathValue(path, RealPath.from_text(path)) for path in paths])
    facts = (ArgumentFact("path", ("write-path",), values),) if paths else ()
    return AccessRequest(
        server="box", tool="write", annotated=True, has_arguments=True, arguments=facts
    )


def within(directory: str) -> Rule:
    condition = PathCondition(roles=frozenset({"write-path"}), within=RealPath.from_text(directory))
    return Rule(name="kept", effect="escalate", reason="so", paths=condition, contained=False)


@pytest.mark.parametrize(
    ("rules", "asked", "kept"),
    [
        ((KEPT,), request(), True),
        ((OTHER, KEPT), request(), False),
        ((KEPT,), request("/a"), True),
        ((within("/a"), OTHER), request("/a/b"), True),
        ((within("/a"), OTHER), request("/b/c"), False),
        ((within("/a"), OTHER), request("/b/c", "/a/b"), True),
    ],
)
def test_a_rule_keeps_a_call_only_where_it_answers_for_it(
    rules: tuple[Rule, ...], asked: AccessRequest, kept: bool
) -> None:
    found = rule_for_reviewers(asked, Policy(rules=rules))
    assert (found is not None and found.name == "kept") is kept


READS: tuple[ArgumentRole, ...] = ("read-path", "write-path")
WHOLE_TOOL = Rule(name="unknown", effect="escalate", reason="so", contained_reads=True)
SECRETS = Rule(
    name="secrets",
    effect="escalate",
    reason="so",
    names=NameCondition(roles=frozenset({"read-path"}), matching=frozenset({".env"})),
)
BELOW_A = Rule(
    name="below",
    effect="allow",
    reason="so",
    paths=PathCondition(roles=frozenset({"read-path"}), within=RealPath.from_text("/a")),
)


@pytest.mark.parametrize(
    ("rules", "path", "asked"),
    [
        ((WHOLE_TOOL, SECRETS, BELOW_A), "/a/b", False),
        ((WHOLE_TOOL, SECRETS, BELOW_A), "/a/.env", True),
        ((WHOLE_TOOL, SECRETS, BELOW_A), "/b", True),
        ((WHOLE_TOOL, OTHER, BELOW_A), "/a/b", True),
        ((OTHER, BELOW_A), "/a/b", True),
        ((OTHER, WHOLE_TOOL, BELOW_A), "/a/b", True),
        ((WHOLE_TOOL,), "/a/b", True),
    ],
)
def test_a_rule_about_a_whole_tool_asks_about_no_read_that_others_allow(
    rules: tuple[Rule, ...], path: str, asked: bool
) -> None:
    fact = ArgumentFact("path", READS, (PathValue(path, RealPath.from_text(path)),))
    reading = AccessRequest(
        server="box", tool="write", annotated=True, has_arguments=True, arguments=(fact,)
    )
    assert is_asked_to_read(reading, Policy(rules=rules)) is asked


def test_a_projects_question_about_reading_stays() -> None:
    fact = ArgumentFact("path", READS, (PathValue("/a/b", RealPath.from_text("/a/b")),))
    reading = AccessRequest(
        server="box", tool="write", annotated=True, has_arguments=True, arguments=(fact,)
    )
    project = Floor(rules=(OTHER,), asks=True)
    assert is_asked_to_read(reading, Policy(rules=(WHOLE_TOOL, BELOW_A), floors=(project,)))


TWO = Rule(name="two", effect="escalate", reason="so", quorum=Quorum(2))
LEAD = Rule(name="lead", effect="escalate", reason="so", quorum=Quorum(1, frozenset({"lead"})))


@pytest.mark.parametrize(
    ("policy", "asked", "quorums"),
    [
        (Policy(rules=(OTHER,)), request("/a"), ()),
        (Policy(rules=(TWO,)), request("/a"), (Quorum(2),)),
        (Policy(rules=(TWO,)), request(), (Quorum(2),)),
        (Policy(rules=(OTHER, TWO)), request("/a"), ()),
        (Policy(rules=(TWO,)), replace(request("/a"), annotated=False), (Quorum(2),)),
        (Policy(rules=(TWO,)), replace(request(), annotated=False), (Quorum(2),)),
        (
            Policy(rules=(TWO,), floors=(Floor(rules=(LEAD,), asks=True),)),
            request("/a"),
            (Quorum(2), Quorum(1, frozenset({"lead"}))),
        ),
        (Policy(rules=(OTHER,), floors=(Floor(rules=(LEAD,), asks=False),)), request("/a"), ()),
    ],
)
def test_every_layer_that_asks_about_a_call_says_who_must_sign(
    policy: Policy, asked: AccessRequest, quorums: tuple[Quorum, ...]
) -> None:
    assert quorums_of(asked, policy) == quorums
