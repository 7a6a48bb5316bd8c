"""Rules that keep their calls for reviewers."""

import pytest

from ironcurtain_proxy.decision.containment import rule_for_reviewers
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import PathCondition, Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue

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
