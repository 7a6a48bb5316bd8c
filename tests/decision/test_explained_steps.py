"""The steps of an explanation: what was asked, in which order, and what answered."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import CONTAINED
from ironcurtain_proxy.decision.explanation import Trial, deciding_layer, explain, shown
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import DomainCondition, ExceptingNames, ListCondition
from ironcurtain_proxy.model.decision import Allow, Deny, Effect, Ground
from ironcurtain_proxy.model.policy import Floor, LayerName, Policy, ProtectedPath, Rule
from ironcurtain_proxy.model.request import ArgumentFact, SqlValue, TextValue, UrlValue
from ironcurtain_proxy.model.values import RealPath, SqlEffect
from tests.decision.test_authorizer import WORK, path, request, within

READ: tuple[ArgumentRole, ...] = ("read-path",)
NOW = request(server="time", tool="now")


def rule(name: str, effect: Effect = "allow", layer: LayerName = "user") -> Rule:
    return Rule(name=name, effect=effect, reason=name, layer=layer)


def test_the_first_invariant_that_answers_ends_the_questions() -> None:
    closed = ProtectedPath(path=RealPath.from_text("/a"))
    found = explain(request(path("p", READ, "/a/x")), Policy(rules=(), protected_paths=(closed,)))
    *before, last = found.invariants
    assert {answer for _, answer in before} <= {"does not decide"}
    assert last[1].startswith("deny: ")
    assert found.roles == ()


def test_where_no_invariant_answers_each_is_named_and_the_roles_follow() -> None:
    found = explain(request(path("p", READ, "/a/x")), Policy(rules=()))
    assert {answer for _, answer in found.invariants} == {"does not decide"}
    assert [trace.role for trace in found.roles] == ["read-path"]


def test_a_role_in_the_workspace_is_contained_and_another_is_judged() -> None:
    call = request(path("p", READ, "/work/a"), path("q", ("write-path",), "/etc/a"))
    policy = Policy(rules=(within("etc", "deny", "write-path", "/etc"),), workspace=WORK)
    inside, outside = explain(call, policy).roles
    assert (inside.contained, inside.answer, inside.trials) == (True, CONTAINED, ())
    assert not outside.contained
    assert isinstance(outside.answer, Deny)
    assert outside.answer.ground.rule == "etc"


def test_rules_of_other_servers_tools_and_prompts_are_counted_and_not_shown() -> None:
    others = (
        Rule(name="s", effect="allow", reason="", servers=frozenset({"files"})),
        Rule(name="t", effect="allow", reason="", tools=frozenset({"later"})),
        Rule(name="p", effect="allow", reason="", prompts=frozenset({"greet"})),
        Rule(name="m", effect="allow", reason="", methods=frozenset({"resources/read"})),
    )
    asks = replace(rule("calls", "deny"), methods=frozenset({"tools/call"}))
    found = explain(NOW, Policy(rules=(*others, asks)))
    assert found.other_rules == len(others)
    assert [trial.rule for trace in found.roles for trial in trace.trials] == ["calls"]


def test_after_the_rule_that_answers_a_call_without_values_no_other_is_asked() -> None:
    (trace,) = explain(NOW, Policy(rules=(rule("first"), rule("second", "deny")))).roles
    assert not trace.contained
    assert trace.trials == (Trial("first", holds=True, why="says allow for the call"),)


def test_a_rule_that_is_not_asked_or_describes_no_path_of_the_call_does_not_hold() -> None:
    rules = (
        within("elsewhere", "allow", "read-path", "/b"),
        within("it", "allow", "read-path", "/a"),
        within("late", "allow", "read-path", "/a"),
    )
    (trace,) = explain(request(path("p", READ, "/a/x")), Policy(rules=rules)).roles
    assert [trial.holds for trial in trace.trials] == [False, True, False]


def test_a_rule_on_places_speaks_of_no_call_without_a_path_unless_it_closes_everything() -> None:
    call = request(path("p", READ), server="s", tool="t")
    allows, closes = (within(effect, effect, "read-path", "/") for effect in ("allow", "deny"))
    (trace,) = explain(call, Policy(rules=(allows, closes))).roles
    assert [(trial.rule, trial.holds, trial.why) for trial in trace.trials] == [
        ("allow", False, "the call has no path that is within /"),
        ("deny", True, "says deny for the call"),
    ]
    nowhere = explain(NOW, Policy(rules=(closes,)))
    assert [trial.holds for trial in nowhere.roles[0].trials] == [False]
    assert nowhere.decision.ground.rule == "default-deny"


def test_a_rule_that_leaves_names_out_still_holds_for_the_others() -> None:
    excepting = ExceptingNames(roles=frozenset(READ), matching=frozenset({".env"}))
    open_all = replace(within("all", "allow", "read-path", "/"), excepting=excepting)
    policy = Policy(rules=(open_all,))
    (both,) = explain(request(path("p", READ, "/a/x", "/a/.env")), policy).roles
    assert [(trial.holds, trial.why) for trial in both.trials] == [(True, "says allow for /a/x")]
    (nothing,) = explain(request(path("p", READ)), policy).roles
    assert [trial.why for trial in nothing.trials] == ["the call has no path that is within /"]


def test_a_rule_on_hosts_holds_for_a_url_that_leads_to_one_of_them() -> None:
    url = ArgumentFact("u", ("fetch-url",), (UrlValue("https://a.org/", ("a.org",)),))
    roles: frozenset[ArgumentRole] = frozenset({"fetch-url"})
    hosts = DomainCondition(roles=roles, allowed=frozenset({"a.org"}))
    policy = Policy(rules=(replace(rule("hosts"), domains=hosts),))
    (trace,) = explain(request(url, server="web"), policy).roles
    assert [trial.holds for trial in trace.trials] == [True]


def test_the_layer_is_that_of_the_rule_that_decided() -> None:
    mine, shipped = rule("a"), rule("b", "deny", "shipped")
    assert explain(NOW, Policy(rules=(mine, shipped))).layer == "user"
    assert explain(NOW, Policy(rules=(shipped, mine))).layer == "shipped"
    assert explain(NOW, Policy(rules=())).layer is None


def test_a_rule_of_the_same_name_and_another_reason_is_another_rule() -> None:
    policy = Policy(rules=(rule("a", layer="project"),))
    assert deciding_layer(Allow(Ground("a", "a")), policy) == "project"
    assert deciding_layer(Allow(Ground("a", "other")), policy) is None
    assert deciding_layer(Allow(Ground("other", "a")), policy) is None


@pytest.mark.parametrize(("asks", "layer"), [(True, "project"), (False, None)])
def test_a_floor_decides_where_its_questions_hold(asks: bool, layer: LayerName | None) -> None:
    floor = Floor(rules=(rule("f", "escalate", "project"),), asks=asks)
    policy = Policy(rules=(), floors=(floor,))
    assert deciding_layer(Allow(Ground("f", "f")), policy) == layer


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (NOW, "says deny for the call"),
        (request(path("p", READ, "/a"), server="time"), "says deny for read-path"),
    ],
)
def test_a_restriction_of_another_layer_says_what_it_is_about(call: object, words: str) -> None:
    floor = Floor(rules=(rule("never", "deny", "project"),), asks=False)
    found = explain(call, Policy(rules=(rule("all"),), floors=(floor,)))  # type: ignore[arg-type]
    assert found.restrictions == (Trial("never", holds=True, why=words, layer="project"),)
    assert found.change == ()
    assert found.advice.startswith("The rule never of the project layer restricts this call.")


def test_what_is_allowed_without_a_resource_needs_no_change() -> None:
    found = explain(NOW, Policy(rules=(rule("all"),)))
    assert (found.change, found.advice) == ((), "")


def test_advice_is_given_only_where_no_rule_would_help() -> None:
    found = explain(NOW, Policy(rules=()))
    assert [one.name for one in found.change] == ["allow-now"]
    assert found.advice == ""


@pytest.mark.parametrize(
    ("effect", "reason", "words"),
    [("reads", "", "select (reads)"), ("runs", "COPY", "select (runs: COPY)")],
)
def test_sql_is_shown_with_what_it_does(effect: SqlEffect, reason: str, words: str) -> None:
    assert shown(SqlValue("select", effect, reason)) == words


def test_a_rule_on_sql_is_said_to_be_about_less_only_where_it_is() -> None:
    value = SqlValue("x", "reads", "")
    call = request(ArgumentFact("q", ("sql",), (value,)), server="db", tool="query")
    reads = replace(rule("reads"), roles=frozenset({"sql"}), sql="reads")
    (allowed,) = explain(call, Policy(rules=(reads,))).roles
    assert [trial.holds for trial in allowed.trials] == [True]
    text = request(ArgumentFact("q", ("sql",), (TextValue("x"),)), server="db", tool="query")
    (unread,) = explain(text, Policy(rules=(reads,))).roles
    assert [trial.why for trial in unread.trials] == [
        "the SQL does more than the rule is about (reads)"
    ]


def test_a_list_of_two_roles_is_held_against_each_by_itself() -> None:
    roles: frozenset[ArgumentRole] = frozenset({"github-owner", "github-repo"})
    entry = ListCondition(roles=roles, allowed=frozenset({"acme"}), kind="identifiers")
    call = request(
        ArgumentFact("owner", ("github-owner",), (TextValue("acme"),)),
        ArgumentFact("repo", ("github-repo",), (TextValue("other"),)),
        server="github",
    )
    owner, repo = explain(call, Policy(rules=(replace(rule("listed"), lists=(entry,)),))).roles
    assert [trial.holds for trial in owner.trials] == [True]
    assert [trial.holds for trial in repo.trials] == [False]
