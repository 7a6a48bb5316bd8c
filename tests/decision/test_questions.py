"""A server's own questions to the user: nothing passes that no setting allows."""

import pytest

from ironcurtain_proxy.decision.authorizer import (
    MAX_TOKENS,
    authorize,
    decide_question,
    unsafe_question,
)
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, effect_of
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest, QuestionKind, ServerQuestion

METHODS = {
    "form": "elicitation/create",
    "url": "elicitation/create",
    "sampling": "sampling/createMessage",
}


def asking(question: ServerQuestion | None) -> AccessRequest:
    return AccessRequest(
        server="notes",
        tool="",
        annotated=True,
        has_arguments=False,
        arguments=(),
        method=METHODS["form" if question is None else question.kind],  # type: ignore[arg-type]
        question=question,
    )


def unsafe(question: ServerQuestion, policy: Policy | None = None) -> str | None:
    found = unsafe_question(asking(question), policy or Policy(rules=()))
    return found.ground.reason if isinstance(found, Deny) else None


def test_a_call_that_asks_nothing_is_not_a_question() -> None:
    assert unsafe_question(asking(None), Policy(rules=())) is None


def test_a_form_for_a_credential_is_denied_whatever_is_allowed() -> None:
    policy = Policy(rules=(), may_ask={"notes": frozenset({"form"})})
    assert unsafe(ServerQuestion(kind="form"), policy) is None
    said = unsafe(ServerQuestion(kind="form", asks_for="API key"), policy)
    assert said == 'The form asks for a credential: "API key"'


def test_a_page_is_opened_only_on_a_host_that_the_server_may_reach() -> None:
    policy = Policy(rules=(), domain_allowlists={"notes": frozenset({"notes.example"})})
    assert unsafe(ServerQuestion(kind="url", host="notes.example"), policy) is None
    for host in ("notes.example.evil.example", "evil.example", ""):
        assert unsafe(ServerQuestion(kind="url", host=host), policy) is not None
    assert unsafe(ServerQuestion(kind="url", host="notes.example")) is not None


def test_the_model_is_asked_for_little_and_without_tools() -> None:
    little = ServerQuestion(kind="sampling", tokens=MAX_TOKENS)
    assert unsafe(little) is None
    assert unsafe(ServerQuestion(kind="sampling", tokens=MAX_TOKENS + 1)) is not None
    tools = ServerQuestion(kind="sampling", with_tools=True)
    assert unsafe(tools) == "The server wants to hand tools to the model"
    named = Policy(rules=(), may_ask={"notes": frozenset({"sampling-tools"})})
    assert unsafe(tools, named) is None


@pytest.mark.parametrize("kind", ["form", "url", "sampling"])
def test_a_question_that_no_setting_allows_is_denied(kind: QuestionKind) -> None:
    question = ServerQuestion(kind=kind)
    decision = decide_question(asking(question), question, Policy(rules=()))
    assert isinstance(decision, Deny)
    assert decision.ground.rule == "server-asks"


@pytest.mark.parametrize(("kind", "effect"), [("form", Allow), ("sampling", Escalate)])
def test_an_allowed_question_to_the_model_still_goes_to_a_person(
    kind: QuestionKind, effect: type
) -> None:
    question = ServerQuestion(kind=kind)
    policy = Policy(rules=(), may_ask={"notes": frozenset({kind})})
    assert isinstance(decide_question(asking(question), question, policy), effect)


def test_a_rule_that_denies_counts_before_the_servers_entry() -> None:
    question = ServerQuestion(kind="form")
    no = Rule(name="no", effect="deny", reason="", methods=frozenset({"elicitation/create"}))
    policy = Policy(rules=(no,), may_ask={"notes": frozenset({"form"})})
    assert effect_of(decide_question(asking(question), question, policy)) == "deny"


@pytest.mark.parametrize(
    "question",
    [
        ServerQuestion(kind="form", asks_for="password"),
        ServerQuestion(kind="url", host="evil.example"),
        ServerQuestion(kind="sampling", tokens=MAX_TOKENS + 1),
    ],
)
def test_no_rule_and_no_entry_lets_an_unsafe_question_pass(question: ServerQuestion) -> None:
    yes = Rule(name="yes", effect="allow", reason="")
    policy = Policy(rules=(yes,), may_ask={"notes": frozenset({question.kind})})
    decision = authorize(asking(question), policy)
    assert isinstance(decision, Deny)
    assert decision.ground.rule == "structural-server-question"
