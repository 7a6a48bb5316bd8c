"""Decisions on operations that are no calls of tools, and why they are what they are."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.explanation import explain
from ironcurtain_proxy.model.conditions import UriCondition
from ironcurtain_proxy.model.decision import Deny, Escalate
from ironcurtain_proxy.model.operation import Method, label
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, ServerQuestion, TextValue
from ironcurtain_proxy.model.values import RealPath
from tests.decision.test_authorizer import path, request, said, within


def read(uri: str) -> AccessRequest:
    fact = ArgumentFact("uri", ("resource-uri",), (TextValue(uri),))
    asked = request(fact, server="notes", tool=label("resources/read"))
    return replace(asked, method="resources/read")


def prompt(name: str) -> AccessRequest:
    asked = request(server="notes", tool=label("prompts/get", name))
    return replace(asked, method="prompts/get")


def question(method: Method = "elicitation/create") -> AccessRequest:
    asked = request(server="notes", tool=label(method))
    return replace(asked, method=method, question=ServerQuestion(kind="form"))


def rule(name: str, **conditions: object) -> Rule:
    return replace(Rule(name=name, effect="allow", reason=""), **conditions)


def test_a_server_s_question_is_denied_until_its_entry_lets_it_ask() -> None:
    assert said(authorize(question(), Policy(rules=()))) == ("deny", "server-asks")
    opened = Policy(rules=(), may_ask={"notes": frozenset({"form"})})
    assert said(authorize(question(), opened)) == ("allow", "server-may-ask")


@pytest.mark.parametrize(
    ("call", "one", "words"),
    [
        (
            read("note://yours/a"),
            rule("r", uris=UriCondition(patterns=frozenset({"note://mine/*"}))),
            "it describes no such URI",
        ),
        (prompt("drop"), rule("r"), "does not speak of prompts/get"),
    ],
)
def test_a_rule_says_why_it_does_not_hold_for_the_operation(
    call: AccessRequest, one: Rule, words: str
) -> None:
    (trace,) = explain(call, Policy(rules=(one,))).roles
    assert [trial.why for trial in trace.trials] == [words]


@pytest.mark.parametrize(
    ("call", "one"),
    [
        (read("note:a"), rule("r", methods=frozenset({"prompts/get"}))),
        (prompt("drop"), rule("r", prompts=frozenset({"fetch"}))),
    ],
)
def test_a_rule_of_other_operations_is_counted_and_not_shown(
    call: AccessRequest, one: Rule
) -> None:
    explanation = explain(call, Policy(rules=(one,)))
    assert [trace.trials for trace in explanation.roles] == [()]
    assert explanation.other_rules == 1


def test_a_uri_is_allowed_by_its_own_words() -> None:
    call = read("note://mine/a")
    (change,) = explain(call, Policy(rules=())).change
    assert change.uris == UriCondition(patterns=frozenset({"note://mine/a"}))
    assert change.methods == frozenset({"resources/read"})
    assert said(authorize(call, Policy(rules=(change,))))[0] == "allow"
    assert said(authorize(read("note://mine/b"), Policy(rules=(change,))))[0] == "deny"


def test_a_prompt_is_allowed_by_its_name() -> None:
    (change,) = explain(prompt("fetch"), Policy(rules=())).change
    assert (change.prompts, change.tools, change.methods) == (frozenset({"fetch"}), None, None)
    assert said(authorize(prompt("drop"), Policy(rules=(change,))))[0] == "deny"


def floor(*rules: Rule, asks: bool = True) -> Floor:
    return Floor(rules=tuple(replace(one, layer="project") for one in rules), asks=asks)


def test_what_another_layer_restricts_is_named_as_what_no_rule_opens() -> None:
    call = request(path("p", ("read-path",), "/b/x"))
    policy = Policy(
        rules=(within("open", "allow", "read-path", "/b"),),
        floors=(floor(within("shut", "deny", "read-path", "/b")),),
    )
    explanation = explain(call, policy)
    assert isinstance(explanation.decision, Deny)
    assert explanation.advice.startswith("The rule shut of the project layer restricts this call.")


def test_an_escalation_names_what_the_rules_and_what_the_floors_ask_about() -> None:
    call = request(path("from", ("read-path",), "/b/x"), path("to", ("write-path",), "/c/x"))
    policy = Policy(
        rules=(
            within("ask-read", "escalate", "read-path", "/b"),
            within("open", "allow", "write-path", "/c"),
        ),
        workspace=RealPath.from_text("/work"),
        floors=(floor(within("ask-write", "escalate", "write-path", "/c")),),
    )
    decision = authorize(call, policy)
    assert isinstance(decision, Escalate)
    assert decision.ground.rule == "ask-read"
    assert set(decision.roles) == {"read-path", "write-path"}


def test_a_floor_that_asks_turns_what_rules_allow_into_a_question() -> None:
    call = request(path("p", ("read-path",), "/b/x"))
    policy = Policy(
        rules=(within("open", "allow", "read-path", "/b"),),
        floors=(floor(within("ask", "escalate", "read-path", "/b")),),
    )
    assert said(authorize(call, policy)) == ("escalate", "ask")


def test_a_floor_that_asks_about_a_tool_without_roles_names_none() -> None:
    asks = replace(rule("ask", tools=frozenset({"now"})), effect="escalate")
    policy = Policy(rules=(rule("open"),), floors=(floor(asks),))
    decision = authorize(request(server="time", tool="now"), policy)
    assert isinstance(decision, Escalate)
    assert (decision.ground.rule, decision.roles) == ("ask", ())


def test_a_floor_that_would_only_ask_is_not_why_a_call_is_denied() -> None:
    call = request(path("p", ("read-path",), "/b/x"), path("q", ("write-path",), "/c/x"))
    policy = Policy(
        rules=(within("open", "allow", "read-path", "/b"),),
        floors=(floor(within("ask", "escalate", "read-path", "/b")),),
    )
    explanation = explain(call, policy)
    assert isinstance(explanation.decision, Deny)
    assert "the project layer" not in explanation.advice


def test_a_floor_that_only_denies_leaves_what_it_would_ask_about() -> None:
    call = request(path("p", ("read-path",), "/b/x"))
    asks = within("ask", "escalate", "read-path", "/b")
    policy = Policy(
        rules=(within("open", "allow", "read-path", "/b"),), floors=(floor(asks, asks=False),)
    )
    assert said(authorize(call, policy)) == ("allow", "open")


def test_what_the_workspace_settles_is_not_asked_of_a_floor() -> None:
    call = request(path("p", ("read-path",), "/work/x"))
    policy = Policy(
        rules=(),
        workspace=RealPath.from_text("/work"),
        floors=(floor(within("ask", "escalate", "read-path", "/work")),),
    )
    assert said(authorize(call, policy)) == ("allow", "structural-sandbox-allow")
