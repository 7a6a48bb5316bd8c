"""What needs no rule of its own: arguments that were left out, and what lies in the workspace."""

import pytest

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.rules import answering_rules
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import ArgumentFact, TextValue, UrlValue
from tests.decision.test_authorizer import WORK, path, request, said, within


def test_a_gate_asks_about_hosts_and_not_about_other_arguments() -> None:
    policy = Policy(
        rules=(Rule(name="all", effect="allow", reason=""),),
        domain_allowlists={"web": frozenset({"a.org"})},
    )
    body = ArgumentFact("body", ("none",), (TextValue("b.org"),))
    for host, rule in (("a.org", "all"), ("b.org", "structural-domain-escalate")):
        url = ArgumentFact("url", ("fetch-url",), (UrlValue(f"https://{host}/", (host,)),))
        decision = authorize(request(body, url, server="web"), policy)
        assert decision.ground.rule == rule


def test_an_argument_that_was_left_out_is_neither_inside_the_workspace_nor_outside() -> None:
    call = request(path("a", ("read-path",), "/work/a"), path("b", ("read-path",)))
    decision = authorize(call, Policy(rules=(), workspace=WORK))
    assert said(decision) == ("allow", "structural-sandbox-allow")


def test_a_resource_that_was_left_out_is_answered_by_the_first_rule_without_a_place() -> None:
    call = request(path("a", ("read-path",)), server="s")
    somewhere = within("somewhere", "allow", "read-path", "/a")
    anywhere = Rule(name="anywhere", effect="escalate", reason="")
    everything = within("root", "escalate", "read-path", "/")
    assert said(authorize(call, Policy(rules=(somewhere,)))) == ("deny", "default-deny")
    assert said(authorize(call, Policy(rules=(somewhere, anywhere)))) == ("escalate", "anywhere")
    assert said(authorize(call, Policy(rules=(everything,)))) == ("escalate", "root")


def test_of_one_role_the_paths_in_the_workspace_need_no_rule_and_the_others_do() -> None:
    call = request(path("p", ("read-path",), "/work/a", "/etc/a"))
    etc = within("etc", "escalate", "read-path", "/etc")
    for rules, effect in (((), "deny"), ((etc,), "escalate")):
        assert effect_of(authorize(call, Policy(rules=rules, workspace=WORK))) == effect


def test_inside_and_outside_settled_for_different_arguments_of_one_role_are_both_settled() -> None:
    call = request(path("a", ("read-path",), "/work/a"), path("b", ("read-path",), "/etc/a"))
    policy = Policy(rules=(within("etc", "allow", "read-path", "/etc"),), workspace=WORK)
    assert said(authorize(call, policy)) == ("allow", "etc")


@pytest.mark.parametrize("role", ["github-owner", "fetch-url", "git-remote-url", "proxy-domain"])
@pytest.mark.parametrize("server", ["filesystem", "git"])
def test_the_workspace_settles_no_role_but_those_of_paths(server: str, role: ArgumentRole) -> None:
    """An argument may be a path in the workspace and name something else besides."""
    call = request(path("place", ("read-path", role), "/work/a"), server=server)
    decision = authorize(call, Policy(rules=(), workspace=WORK))
    assert said(decision)[0] == "deny"


@pytest.mark.parametrize("role", ["read-path", None])
def test_the_rule_that_answers_for_what_was_left_out_is_named(role: ArgumentRole | None) -> None:
    left_out = request(path("path", ("read-path",)), server="s", tool="t")
    call = left_out if role else request(server="s", tool="t")
    rule = Rule(name="by-name", effect="allow", reason="", tools=frozenset({"t"}))
    late = Rule(name="late", effect="allow", reason="", tools=frozenset({"t"}))
    assert answering_rules(call, Policy(rules=(rule, late)), role) == (rule,)
    assert answering_rules(call, Policy(rules=()), role) == ()
