"""What a person had settled of a call beforehand."""

from hypothesis import HealthCheck, given, settings

from ironcurtain_proxy.decision.authorizer import authorize, prior_consent_of
from ironcurtain_proxy.decision.rules import (
    DEFAULT_DENY,
    answering_rules,
    decide_role,
    decide_without_roles,
    resource_roles,
)
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import DomainCondition, ListCondition, PathCondition
from ironcurtain_proxy.model.decision import SEVERITY, Allow, PriorConsent, effect_of
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, TextValue, UrlValue
from tests.decision.test_authorizer import WORK, path, request, within
from tests.examples import examples
from tests.strategies import policies, requests

ALL = Rule(name="all", effect="allow", reason="")
MOVE = Rule(name="move", effect="allow", reason="", tools=frozenset({"move_file"}))
DELETE = Rule(name="delete", effect="allow", reason="", roles=frozenset({"delete-path"}))

thorough = settings(
    max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow], deadline=None
)


def standing(call: AccessRequest, *rules: Rule, trusted: bool = False) -> PriorConsent:
    policy = Policy(
        rules=rules,
        workspace=WORK,
        trusted_servers=frozenset({call.server}) if trusted else frozenset(),
    )
    return prior_consent_of(call, policy, authorize(call, policy))


def test_what_lies_in_the_workspace_is_contained_and_no_rule_allowed_it() -> None:
    call = request(path("p", ("read-path", "delete-path"), "/work/a"))
    assert standing(call, MOVE) == PriorConsent(contained=frozenset({"read-path", "delete-path"}))


def test_of_a_repository_in_the_workspace_no_rule_is_asked_either() -> None:
    call = request(path("p", ("write-history",), "/work/a"), server="git")
    assert standing(call, MOVE) == PriorConsent(contained=frozenset({"write-history"}))


def test_a_rule_that_names_the_tool_names_each_role_too() -> None:
    call = request(path("p", ("delete-path",), "/etc/a"))
    assert standing(call, MOVE) == PriorConsent(
        names_tool=True, names_roles=frozenset({"delete-path"})
    )


def test_a_rule_that_names_the_role_does_not_name_the_tool() -> None:
    call = request(path("p", ("delete-path",), "/etc/a"))
    assert standing(call, DELETE) == PriorConsent(names_roles=frozenset({"delete-path"}))


def test_a_rule_that_names_another_role_or_none_names_nothing() -> None:
    call = request(path("p", ("delete-path",), "/etc/a"))
    assert standing(call, ALL) == PriorConsent()
    both = request(path("p", ("delete-path",), "/etc/a"), path("q", ("write-path",), "/etc/b"))
    assert standing(both, DELETE, ALL) == PriorConsent(names_roles=frozenset({"delete-path"}))


def test_one_general_rule_among_several_is_no_rule_that_names_the_tool() -> None:
    call = request(path("p", ("delete-path",), "/etc/a", "/srv/a"))
    in_etc = Rule(
        name="etc",
        effect="allow",
        reason="",
        tools=frozenset({"move_file"}),
        paths=PathCondition(roles=frozenset({"delete-path"}), within=WORK.from_text("/etc")),
    )
    assert standing(call, in_etc, ALL) == PriorConsent()
    assert standing(call, in_etc, MOVE).names_tool


def test_the_role_may_be_named_by_any_condition() -> None:
    url = request(
        ArgumentFact("u", ("git-remote-url",), (UrlValue("https://a.org/x", ("a.org",)),)),
        server="git",
    )
    owner = request(ArgumentFact("o", ("github-owner",), (TextValue("acme"),)), server="github")
    role: frozenset[ArgumentRole] = frozenset({"git-remote-url"})
    by_host = Rule(
        name="host",
        effect="allow",
        reason="",
        domains=DomainCondition(roles=role, allowed=frozenset({"a.org"})),
    )
    by_list = Rule(
        name="list",
        effect="allow",
        reason="",
        lists=(
            ListCondition(
                roles=frozenset({"github-owner"}), allowed=frozenset({"acme"}), kind="identifiers"
            ),
        ),
    )
    etc = within("etc", "allow", "delete-path", "/etc")
    assert standing(url, by_host).names_roles == role
    assert standing(owner, by_list).names_roles == {"github-owner"}
    assert standing(request(path("p", ("delete-path",), "/etc/a")), etc).names_roles == {
        "delete-path"
    }


def test_a_tool_without_resources_has_a_rule_of_its_own_or_none() -> None:
    call = request(server="memory", tool="move_file")
    assert standing(call, MOVE) == PriorConsent(names_tool=True)
    assert standing(call, ALL) == PriorConsent()


def test_what_was_not_allowed_by_a_rule_was_allowed_by_none() -> None:
    call = request(path("p", ("delete-path",), "/etc/a"))
    assert standing(call) == PriorConsent()
    escalating = Rule(name="e", effect="escalate", reason="", tools=frozenset({"move_file"}))
    assert standing(call, escalating) == PriorConsent()
    # The server is trusted as a whole; nobody spoke of this tool.
    assert standing(call, MOVE, trusted=True) == PriorConsent()


@thorough
@given(requests(), policies())
def test_the_answering_rules_are_those_that_the_answer_came_from(
    call: AccessRequest, policy: Policy
) -> None:
    for role in resource_roles(call):
        decision = decide_role(call, policy, role)
        rules = answering_rules(call, policy, role)
        if decision == DEFAULT_DENY:
            continue
        if not rules:
            assert decision.ground.rule == "structural-sandbox-allow"
            continue
        strictest = max(SEVERITY[rule.effect] for rule in rules)
        assert strictest == SEVERITY[effect_of(decision)]
        assert decision.ground.rule in {rule.name for rule in rules}
    alone = answering_rules(call, policy, None)
    decision = decide_without_roles(call, policy)
    assert [rule.name for rule in alone] == (
        [] if decision == DEFAULT_DENY else [decision.ground.rule]
    )


@thorough
@given(requests(), policies())
def test_nothing_but_an_allow_stands_on_a_rule(call: AccessRequest, policy: Policy) -> None:
    decision = authorize(call, policy)
    found = prior_consent_of(call, policy, decision)
    if not isinstance(decision, Allow) or not policy.rules:
        assert not found.names_tool
        assert found.names_roles == frozenset()
    assert found.names_roles.isdisjoint(found.contained)
