"""Tools without an annotation, where the operator wants to be asked; and rules about SQL."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.explanation import explain
from ironcurtain_proxy.model.conditions import DomainCondition
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.policy import Policy, ProtectedPath, Rule
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    SqlValue,
    TextValue,
    UrlValue,
)
from ironcurtain_proxy.model.values import SqlEffect
from tests.decision.test_authorizer import path, request, said, within
from tests.tables import table

ASKS = Policy(rules=(), unknown_tools="ask")
UNKNOWN = ("escalate", "structural-unknown-tool")


def unknown(*facts: ArgumentFact) -> AccessRequest:
    return replace(request(*facts, server="notes"), annotated=False)


def url(*hosts: str) -> ArgumentFact:
    values = tuple([UrlValue(f"https://{host}", (host,)) for host in hosts])
    return ArgumentFact("to", ("fetch-url",), values)


def test_a_tool_that_nobody_described_is_asked_about() -> None:
    text = ArgumentFact("x", ("unclear",), (TextValue("hello"),))
    assert said(authorize(unknown(text), ASKS)) == UNKNOWN
    assert said(authorize(unknown(), ASKS)) == UNKNOWN
    denied = authorize(unknown(text), replace(ASKS, unknown_tools="deny"))
    assert said(denied) == ("deny", "structural-unknown-tool")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Nobody has described the tool notes/"),
        (("odd",), "Nobody has described the argument odd of the tool notes/"),
        (("odd", "b", "c"), "Nobody has described the argument odd and 2 more of the tool notes/"),
    ],
)
def test_the_reason_names_what_nobody_has_described(arguments: tuple[str, ...], words: str) -> None:
    asked = authorize(replace(unknown(), undescribed=arguments), ASKS)
    assert asked.ground.reason.startswith(words)


def test_no_rule_allows_it() -> None:
    everything = Rule(name="all", effect="allow", reason="all")
    policy = replace(ASKS, rules=(everything, within("in", "allow", "read-path", "/")))
    assert said(authorize(unknown(path("p", ("read-path",), "/work/x")), policy)) == UNKNOWN


def test_a_protected_path_is_denied_all_the_same() -> None:
    guess = path("p", ("read-path", "write-path"), "/home/me/.ssh/id")
    protected = ProtectedPath(path=path("p", ("read-path",), "/home/me/.ssh").values[0].path)  # type: ignore[union-attr]
    policy = replace(ASKS, protected_paths=(protected,))
    assert said(authorize(unknown(guess), policy)) == ("deny", "structural-protected-path")


def test_a_rule_denies_one_path_or_one_host_among_others() -> None:
    closed = Rule(
        name="closed",
        effect="deny",
        reason="closed",
        domains=DomainCondition(
            roles=frozenset({"fetch-url"}), allowed=frozenset({"evil.example"})
        ),
    )
    places = within("places", "deny", "write-path", "/etc")
    policy = replace(ASKS, rules=(places, closed))
    one = path("p", ("read-path", "write-path"), "/work/a", "/etc/passwd")
    assert said(authorize(unknown(one), policy)) == ("deny", "places")
    other = path("p", ("read-path", "write-path"), "/work/a", "/srv/a")
    assert said(authorize(unknown(other), policy)) == UNKNOWN
    assert said(authorize(unknown(url("good.example", "evil.example")), policy)) == (
        "deny",
        "closed",
    )
    assert said(authorize(unknown(url("good.example")), policy)) == UNKNOWN


def test_a_rule_that_denies_the_tool_by_name_denies_it() -> None:
    rule = Rule(name="never", effect="deny", reason="never", servers=frozenset({"notes"}))
    assert said(authorize(unknown(), replace(ASKS, rules=(rule,)))) == ("deny", "never")


def test_an_explanation_names_the_command_that_describes_a_tool() -> None:
    denied = explain(unknown(), replace(ASKS, unknown_tools="deny"))
    assert "annotate" in denied.advice


def test_an_explanation_names_the_rule_that_denies_a_tool_that_nobody_described() -> None:
    places = within("places", "deny", "write-path", "/etc")
    named = path("p", ("read-path", "write-path"), "/work/a", "/etc/passwd")
    (trace,) = explain(unknown(named), replace(ASKS, rules=(places,))).roles
    assert (trace.role, said(trace.answer)) == ("write-path", ("deny", "places"))
    assert [(one.rule, one.holds, one.why) for one in trace.trials] == [
        ("places", True, "says deny for /work/a, /etc/passwd")
    ]
    never = Rule(name="never", effect="deny", reason="never", servers=frozenset({"notes"}))
    (trace,) = explain(unknown(), replace(ASKS, rules=(never,))).roles
    assert (trace.role, trace.trials[0].why) == (None, "says deny for the call")
    assert explain(unknown(), ASKS).roles == ()


def sql(*effects: SqlEffect) -> AccessRequest:
    values = tuple([SqlValue(f"-- {effect}", effect, effect) for effect in effects])
    return request(ArgumentFact("query", ("sql",), values), server="db")


def bounded(bound: SqlEffect, effect: Effect = "allow") -> Policy:
    rule = Rule(name="sql", effect=effect, reason="sql", sql=bound)
    other = Rule(name="other", effect="escalate", reason="other")
    return Policy(rules=(rule, other))


@pytest.mark.parametrize(
    ("effects", "bound", "rule"),
    table(
        "decision/unknown_tools.a_rule_about_sql_holds_for_what_does",
        list[tuple[tuple[str, ...], str, str]],
    ),
)
def test_a_rule_about_sql_holds_for_what_does_at_most_that(
    effects: tuple[SqlEffect, ...], bound: SqlEffect, rule: str
) -> None:
    assert authorize(sql(*effects), bounded(bound)).ground.rule == rule


def test_a_rule_about_sql_says_nothing_of_other_arguments() -> None:
    both = replace(
        sql("reads"), arguments=(*sql("reads").arguments, path("p", ("read-path",), "/x"))
    )
    assert authorize(both, bounded("reads")).ground.rule == "other"
    assert authorize(request(server="db"), bounded("reads")).ground.rule == "other"


def test_an_explanation_says_what_the_sql_does_and_proposes_no_wider_rule() -> None:
    told = explain(sql("writes"), bounded("reads"))
    assert "more than the rule is about" in told.roles[0].trials[0].why
    assert "(writes: writes)" in told.roles[0].values[0]
    (change,) = told.change
    assert change.sql == "writes"
    (anything,) = explain(sql("runs"), bounded("reads")).change
    assert anything.sql is None


def test_an_explanation_of_a_command_proposes_no_rule_for_every_command() -> None:
    command = ArgumentFact("command", ("command",), (TextValue("ls"),))
    asked = Policy(rules=(Rule(name="ask", effect="escalate", reason="ask"),))
    told = explain(request(command, server="sh"), asked)
    assert told.change == ()
    assert "remember its kind" in told.advice
