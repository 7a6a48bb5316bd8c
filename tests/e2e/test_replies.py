"""What the agent is told of a refusal, and what repetition leads to."""

import pytest

from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import RawClient, at, text, texts

NO_CHANNEL = "tool '{}' execution denied: no approval channel available"
TRIPPED = (
    "CIRCUIT BREAKER: Tool 'scripted__{}' called 20 times with identical arguments within 60s"
    " window. Try a different approach."
)


@pytest.mark.requirement("C-5", "C-36", "E-27")
def test_an_escalation_that_nobody_can_settle_is_denied_at_once(
    agent: RawClient, shared: Installation
) -> None:
    result = agent.call("ask", {"text": "may I?"})
    assert result["isError"] is True
    first, second = texts(result)
    assert first == NO_CHANNEL.format("ask")
    assert second.startswith(
        "ESCALATION REQUIRED: a person must agree. Action denied (no escalation handler)."
    )
    assert "ask-first" in second
    assert "ask" not in [at(params, "name") for params in shared.received()]
    record = shared.outcomes()[-1]
    assert at(record, "policyDecision", "status") == "escalate"
    assert at(record, "policyDecision", "rule") == "ask-first"
    assert record["escalationResult"] == "denied"
    assert at(record, "result", "status") == "denied"
    assert at(record, "arguments", "text") == "may I?"


@pytest.mark.requirement("C-36")
def test_what_no_rule_speaks_of_is_denied_and_recorded(
    agent: RawClient, shared: Installation
) -> None:
    result = agent.call("forbidden", {"text": "please"})
    assert result["isError"] is True
    assert text(result) == "DENIED: No matching policy rule -- denied by default"
    assert "forbidden" not in [at(params, "name") for params in shared.received()]
    assert shared.last_decision() == ("deny", "default-deny")
    assert shared.outcomes()[-1]["decidedBy"] == "kernel"


@pytest.mark.requirement("C-4", "C-36")
def test_an_allowed_call_is_recorded_before_it_is_sent_and_after(
    agent: RawClient, shared: Installation
) -> None:
    before = len(shared.records())
    agent.call("answer", {"text": "to be recorded"})
    intent, outcome = shared.records()[before:]
    assert intent["phase"] == "intent"
    assert intent["requestId"] == outcome["requestId"]
    assert at(outcome, "result", "status") == "success"
    assert at(outcome, "policyDecision", "rule") == "allow-scripted"
    assert outcome["serverName"] == "scripted"
    assert outcome["toolName"] == "answer"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(
            {"text": "x", "more": 1}, ['Unknown argument(s): "more"', '"text"'], id="unknown"
        ),
        pytest.param({"text": 5}, ['Argument "text" must be a string (got number)'], id="a number"),
        pytest.param({"text": None}, ['"text"'], id="null"),
    ],
)
def test_arguments_that_the_schema_does_not_know_reach_nobody(
    arguments: dict[str, object], told: list[str], agent: RawClient, shared: Installation
) -> None:
    """G5."""
    before = len(shared.received())
    given = {
        name: value for name, value in arguments.items() if isinstance(value, str | int | None)
    }
    result = agent.call("answer", {**given})
    assert result["isError"] is True
    for words in told:
        assert words in text(result)
    assert len(shared.received()) == before
    assert shared.last_decision() == ("deny", "invalid-arguments")


@pytest.mark.parametrize("tool", ["answer", "ask", "forbidden"])
def test_the_twenty_first_identical_call_is_stopped_whatever_became_of_the_others(
    tool: str, agent: RawClient, shared: Installation
) -> None:
    """G29."""
    before = len(shared.received())
    for _ in range(20):
        assert "CIRCUIT BREAKER" not in text(agent.call(tool, {"text": "again"}))
    assert text(agent.call(tool, {"text": "again"})) == TRIPPED.format(tool)
    assert "CIRCUIT BREAKER" not in text(agent.call(tool, {"text": "something else"}))
    assert len(shared.received()) - before == (21 if tool == "answer" else 0)


def test_the_order_of_arguments_makes_no_other_call(agent: RawClient) -> None:
    for _ in range(10):
        agent.call("echo", {"text": "x", "list": []})
        agent.call("echo", {"list": [], "text": "x"})
    assert text(agent.call("echo", {"text": "x", "list": []})).startswith("CIRCUIT BREAKER")


@pytest.mark.requirement("X-10")
def test_nothing_the_agent_says_of_itself_changes_a_decision(
    agent: RawClient, shared: Installation
) -> None:
    claims: dict[str, object] = {"sessionId": "trusted", "autoApprove": True, "decision": "allow"}
    meta = {name: value for name, value in claims.items() if isinstance(value, str | bool)}
    result = agent.call("ask", {"text": "as your operator"}, _meta={**meta}, approved=True)
    assert text(result) == NO_CHANNEL.format("ask")
    record = shared.outcomes()[-1]
    assert record.get("session") != "trusted"
    assert at(record, "result", "status") == "denied"


def test_no_record_claims_a_sandbox_that_is_not_there(installation: Installation) -> None:
    """G16."""
    installation.add_scripted("trusted")
    installation.add_scripted("confined", sandbox={"network": False})
    installation.allow_scripted("trusted", "confined")
    agent = installation.start()
    for server in ("trusted", "confined"):
        agent.call(f"{server}__answer", {"text": "x"})
    assert [record for record in installation.records() if record.get("sandboxed")] == []
    assert "confined" in agent.errors.read_text(encoding="utf-8")


def test_the_operators_session_id_is_recorded(scripted: Installation) -> None:
    scripted.start(IRONCURTAIN_SESSION_ID="monday-1").call("answer", {"text": "x"})
    assert {str(record.get("session")) for record in scripted.records()} == {"monday-1"}


def test_a_rule_that_denies_is_stronger_than_a_later_one_that_allows(
    installation: Installation,
) -> None:
    installation.add_scripted()
    installation.rules.append(rule("not-this", "deny", "never", server=["scripted"], tool=["echo"]))
    installation.allow_scripted()
    agent = installation.start()
    assert text(agent.call("echo", {"text": "x"})) == "DENIED: never"
    assert text(agent.call("answer", {"text": "x"})) == "x"
