"""Why a decision is what it is."""

import pytest

from ironcurtain_proxy.decision.explanation import explain, shown
from ironcurtain_proxy.decision.rules import DEFAULT_DENY, combine
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import DomainCondition, ListCondition
from ironcurtain_proxy.model.policy import Policy, ProtectedPath, Rule
from ironcurtain_proxy.model.request import ArgumentFact, PathValue, TextValue, UrlValue
from ironcurtain_proxy.model.values import RealPath
from tests.decision.test_authorizer import path, request, within

READ: tuple[ArgumentRole, ...] = ("read-path",)


def test_no_answers_at_all_are_a_denial() -> None:
    assert combine([]) == DEFAULT_DENY


def test_several_paths_are_allowed_by_their_common_directory() -> None:
    call = request(path("paths", READ, "/a/b/x", "/a/b/y/z"))
    (rule,) = explain(call, Policy(rules=())).change
    assert rule.paths is not None
    assert str(rule.paths.within) == "/a/b"


def test_only_the_roles_that_are_not_settled_or_allowed_get_a_rule() -> None:
    call = request(
        path("source", READ, "/work/a"),
        path("copy", ("delete-path",), "/ok/a"),
        path("destination", ("write-path",), "/b/a"),
    )
    policy = Policy(
        rules=(within("ok", "allow", "delete-path", "/ok"),), workspace=RealPath.from_text("/work")
    )
    (rule,) = explain(call, policy).change
    assert rule.roles == frozenset({"write-path"})


def test_urls_and_names_are_allowed_by_their_own_words() -> None:
    call = request(
        ArgumentFact("url", ("fetch-url",), (UrlValue("https://a.org/x", ("a.org",)),)),
        ArgumentFact("owner", ("github-owner",), (TextValue("acme"),)),
        server="web",
        tool="get",
    )
    url, owner = explain(call, Policy(rules=())).change
    assert url.domains is not None
    assert url.domains.allowed == {"a.org"}
    assert owner.lists[0].allowed == {"acme"}


def test_a_tool_without_resources_is_allowed_by_its_name() -> None:
    (rule,) = explain(request(server="time", tool="now"), Policy(rules=())).change
    assert rule.servers == frozenset({"time"})
    assert rule.tools == frozenset({"now"})
    assert rule.roles is None


@pytest.mark.parametrize(
    ("policy", "annotated", "words"),
    [
        (
            Policy(rules=(), protected_paths=(ProtectedPath(path=RealPath.from_text("/a")),)),
            True,
            "No rule can open a protected path",
        ),
        (Policy(rules=()), False, "Describe the tool"),
    ],
)
def test_what_no_rule_can_change_comes_with_advice(
    policy: Policy, annotated: bool, words: str
) -> None:
    explanation = explain(request(path("p", READ, "/a/x"), annotated=annotated), policy)
    assert explanation.change == ()
    assert words in explanation.advice


def test_a_host_outside_the_gate_comes_with_advice() -> None:
    call = request(
        ArgumentFact("url", ("fetch-url",), (UrlValue("https://b.org/", ("b.org",)),)), server="web"
    )
    policy = Policy(rules=(), domain_allowlists={"web": frozenset({"a.org"})})
    assert "allowedDomains of the server web" in explain(call, policy).advice


def test_a_path_that_is_also_a_url_can_be_allowed_by_no_narrow_rule() -> None:
    both = ArgumentFact(
        "x", ("read-path", "fetch-url"), (PathValue("/a", RealPath.from_text("/a")),)
    )
    explanation = explain(request(both, server="s"), Policy(rules=()))
    assert explanation.advice == "No single rule for each argument role would allow it."


def test_a_value_that_is_no_path_is_in_no_directory() -> None:
    url = UrlValue("https://a.org/", ("a.org",))
    both = ArgumentFact(
        "x", ("read-path", "fetch-url"), (PathValue("/a", RealPath.from_text("/a")), url)
    )
    assert explain(request(both, server="s"), Policy(rules=())).change == ()


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("branch-name", "says allow"),
        ("commit-message", "is about argument roles that the tool does not have"),
    ],
)
def test_a_rule_on_what_names_no_resource_is_about_the_tools_own_roles(
    role: ArgumentRole, words: str
) -> None:
    call = request(ArgumentFact("b", ("branch-name",), (TextValue("main"),)), server="git")
    rule = Rule(name="r", effect="allow", reason="", roles=frozenset({role}))
    (trace,) = explain(call, Policy(rules=(rule,))).roles
    assert trace.role is None
    assert trace.trials[0].why.startswith(words)


def test_each_rule_says_why_it_does_not_hold() -> None:
    call = request(path("p", READ, "/b/x"), server="s", tool="t")
    on_list = Rule(
        name="listed",
        effect="allow",
        reason="",
        lists=(ListCondition(roles=frozenset(READ), allowed=frozenset(), kind="identifiers"),),
    )
    rules = (
        within("other-place", "allow", "read-path", "/a"),
        within("other-role", "allow", "write-path", "/b"),
        on_list,
        Rule(name="other-tool", effect="allow", reason="", tools=frozenset({"u"})),
        within("it", "escalate", "read-path", "/b"),
        within("late", "allow", "read-path", "/b"),
    )
    explanation = explain(call, Policy(rules=rules))
    (trace,) = explanation.roles
    assert [(trial.rule, trial.why) for trial in trace.trials] == [
        ("other-place", "no path is within /a"),
        ("other-role", "is not about read-path"),
        ("listed", "a value of read-path is not on its list"),
        ("it", "says escalate for /b/x"),
        ("late", "not asked: every value has its answer"),
    ]
    assert explanation.other_rules == 1


def test_a_rule_on_two_lists_names_the_one_that_fails() -> None:
    call = request(
        ArgumentFact("owner", ("github-owner",), (TextValue("acme"),)),
        ArgumentFact("repo", ("github-repo",), (TextValue("other"),)),
        server="github",
    )
    pair = Rule(
        name="pair",
        effect="allow",
        reason="",
        lists=(
            ListCondition(
                roles=frozenset({"github-owner"}), allowed=frozenset({"acme"}), kind="identifiers"
            ),
            ListCondition(
                roles=frozenset({"github-repo"}), allowed=frozenset({"mine"}), kind="identifiers"
            ),
        ),
    )
    owner, _ = explain(call, Policy(rules=(pair,))).roles
    assert owner.trials[0].why == "a value of github-repo is not on its list"


def test_a_tool_without_roles_shows_the_rules_that_ask_for_roles() -> None:
    policy = Policy(
        rules=(
            Rule(name="roles", effect="allow", reason="", roles=frozenset(READ)),
            Rule(name="it", effect="deny", reason=""),
        )
    )
    (trace,) = explain(request(server="s", tool="t"), policy).roles
    assert trace.role is None
    assert trace.trials[0].why == "is about argument roles that the tool does not have"
    assert trace.trials[1].holds


def test_values_are_shown_as_they_were_judged() -> None:
    assert shown(PathValue("/a", RealPath.from_text("/a"))) == "/a"
    assert shown(UrlValue("origin", ("a.org/x", "b.org"))) == "origin (leads to a.org/x, b.org)"
    assert shown(TextValue("acme")) == "acme"


def test_a_rule_says_which_of_its_conditions_does_not_hold() -> None:
    url = ArgumentFact("url", ("fetch-url",), (UrlValue("https://b.org/", ("b.org",)),))
    domains = DomainCondition(roles=frozenset({"fetch-url"}), allowed=frozenset({"a.org"}))
    rules = (
        Rule(name="hosts", effect="allow", reason="", domains=domains),
        Rule(name="server", effect="allow", reason="", servers=frozenset({"other"})),
    )
    explanation = explain(request(url, server="s"), Policy(rules=rules))
    (trace,) = explanation.roles
    assert [(trial.rule, trial.why) for trial in trace.trials] == [
        ("hosts", "a URL leads to a host that it does not name")
    ]
    assert explanation.other_rules == 1


def test_a_rule_about_roles_does_not_speak_of_a_tool_without_any() -> None:
    rule = Rule(name="reads", effect="allow", reason="", roles=frozenset(READ))
    call = request(ArgumentFact("zone", ("none",), (TextValue("UTC"),)), server="s")
    (trace,) = explain(call, Policy(rules=(rule,))).roles
    assert [trial.why for trial in trace.trials] == [
        "is about argument roles that the tool does not have"
    ]


def test_what_is_allowed_needs_no_change() -> None:
    call = request(path("p", READ, "/a/x"))
    explanation = explain(call, Policy(rules=(within("a", "allow", "read-path", "/a"),)))
    assert (explanation.change, explanation.advice) == ((), "")


def test_a_rule_for_two_paths_of_which_one_holds_the_other_is_for_the_outer_one() -> None:
    for texts in (("/a/b", "/a/b/c"), ("/a/b/c", "/a/b"), ("/a/b", "/a/b")):
        (rule,) = explain(request(path("paths", READ, *texts)), Policy(rules=())).change
        assert rule.paths is not None
        assert str(rule.paths.within) == "/a/b"


def test_each_proposed_rule_has_a_name_of_its_own() -> None:
    call = request(path("source", READ, "/a/a"), path("to", ("write-path",), "/b/a"), tool="move")
    first, second = explain(call, Policy(rules=())).change
    assert (first.name, second.name) == ("allow-move-read-path", "allow-move-write-path")
