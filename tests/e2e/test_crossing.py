"""What crosses beside the arguments: named, recorded, and part of what was approved."""

from typing import TypeAlias

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, text, texts
from tests.tables import table

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

STRAY: Message = {
    "inputResponses": {"q": {"delete": "everything"}},
    "requestState": "sealed",
    "futureParam": 1,
}


Asked: TypeAlias = tuple[Installation, Person]


@pytest.fixture
def asked(installation: Installation) -> Asked:
    """An installation in which `ask` escalates."""
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
    installation.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    person = Person(installation)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    return installation, person


def test_no_key_of_the_params_but_the_named_reaches_the_server_and_the_records_say_so(
    agent: RawClient, shared: Installation
) -> None:
    meta: Json = {"traceparent": TRACE, "exfil": "secret", "progressToken": 7}
    agent.call("echo", {"text": "x"}, _meta=meta, **STRAY)
    crosses = {"traceparent": TRACE, "progressToken": 7}
    assert shared.received()[-1] == {"name": "echo", "arguments": {"text": "x"}, "_meta": crosses}
    for record in shared.records()[-2:]:
        assert record["meta"] == crosses
        assert record["withheld"] == ["_meta.exfil", *STRAY]
    assert b"secret" not in shared.audit.read_bytes()


def test_a_key_that_the_operator_names_crosses_and_is_recorded(scripted: Installation) -> None:
    config = scripted.root / "config.json"
    config.write_text('{"forwardMeta": ["vendor/tenant"]}', encoding="utf-8")
    agent = scripted.start(IRONCURTAIN_CONFIG=str(config))
    agent.call("echo", {"text": "x"}, _meta={"vendor/tenant": {"id": 5}, "vendor/other": 1})
    assert scripted.received()[0]["_meta"] == {"vendor/tenant": {"id": 5}}
    assert scripted.outcomes()[0]["meta"] == {"vendor/tenant": {"id": 5}}


def test_a_reviewer_sees_what_crosses_beside_the_arguments(asked: Asked) -> None:
    installation, person = asked
    agent = installation.start()
    call = agent.start_call("ask", {"text": "x"}, _meta={"baggage": "to=evil.example"})
    (question,) = person.until_asked()
    assert "to=evil.example" in str(at(question, "context"))
    person.answer({"decision": "denied"})
    agent.result(call)


def held(installation: Installation) -> RawClient:
    return installation.start(ESCALATION_MODE="held", ESCALATION_HOLD_AFTER_SECONDS="0.2")


def approve(agent: RawClient, person: Person) -> None:
    person.until_asked()
    person.answer({"decision": "approved"})
    for _ in range(20_000):
        if "approved" in text(agent.call("ironcurtain_escalation_status", {})):
            return
    raise AssertionError("the approval was not noticed")


@pytest.mark.parametrize(
    "meta", [{"baggage": "to=evil.example"}, {"progressToken": "a message"}, {"traceparent": TRACE}]
)
def test_an_approval_is_not_used_for_a_call_that_sends_more(meta: Message, asked: Asked) -> None:
    installation, person = asked
    agent = held(installation)
    agent.call("ask", {"text": "x"})
    approve(agent, person)
    assert text(agent.call("ask", {"text": "x"}, _meta=meta)).startswith("HELD: ")
    assert installation.received() == []


def test_an_approved_call_runs_with_the_next_number_as_its_progress_token(asked: Asked) -> None:
    installation, person = asked
    agent = held(installation)
    agent.call("ask", {"text": "x"}, _meta={"progressToken": 1})
    approve(agent, person)
    agent.call("ask", {"text": "x"}, _meta={"progressToken": 2, "vendor/call": "c2"})
    (received,) = installation.received()
    assert received["_meta"] == {"progressToken": 2}


@pytest.mark.parametrize(
    ("tool", "line"),
    table("e2e/crossing.an_answer_that_asks_is_denied", list[tuple[str, str]]),
    ids=["url elicitation", "input required", "task", "unknown type"],
)
def test_an_answer_that_asks_is_denied_and_recorded_as_such(
    tool: str, line: str, agent: RawClient, shared: Installation
) -> None:
    result = agent.call(tool, {"line": line})
    assert result["isError"] is True
    assert text(result).startswith("DENIED: the server's answer asks for something")
    assert "may have been carried out (rule: server-asks)" in texts(result)[1]
    assert b"https://evil" not in b"".join(agent.lines)
    assert b"password" not in b"".join(agent.lines)
    intent, outcome = shared.records()[-2:]
    assert at(outcome, "requestId") == intent["requestId"]
    assert at(outcome, "result", "status") == "denied"
    assert at(outcome, "result", "size") is not None
    assert outcome["asked"]


def test_a_server_tool_with_a_reserved_name_is_answered_like_one_that_is_not_there(
    installation: Installation,
) -> None:
    tools: list[Message] = [
        {"name": name, "inputSchema": {"type": "object"}}
        for name in ("echo", "ironcurtain_hidden", "esc\x1b[2J", "x" * 129)
    ]
    installation.add_scripted(tools=tools)
    installation.allow_scripted()
    agent = installation.start()
    assert agent.tool_names() == ["echo"]
    for name in ("ironcurtain_hidden", "esc\x1b[2J", "x" * 129, "nowhere"):
        answer = agent.call(name, {"text": "x"})
        assert answer == {
            "content": [{"type": "text", "text": f"Unknown tool: {name}"}],
            "isError": True,
        }
        assert installation.last_decision() == ("deny", "unknown-tool")
    assert installation.received() == []
    errors = agent.errors.read_text(encoding="utf-8")
    assert 'tool "esc\\u001b[2J" is hidden' in errors
    assert "longer than 128 characters" in errors
