"""Every part of MCP under the default policy: decided and recorded, or named in the documents."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import ROOT, Installation
from tests.e2e.probes import AGENT, DROPPED, SERVER, Asked, Probe, call
from tests.e2e.raw_client import Message, RawClient, at
from tests.e2e.test_operations import add_whole

DOCUMENT = ROOT / "docs" / "protocol.md"
MESSAGE: Message = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
}
TOOLS: list[Json] = [
    {"name": "echo", "inputSchema": MESSAGE},
    {"name": "get-env", "inputSchema": {"type": "object"}},
    {"name": "ask", "inputSchema": MESSAGE},
]
DECIDED = ("tools/call", "resources/read", "resources/subscribe", "resources/unsubscribe")
PROMPTS = ("prompts/get", "completion/complete")


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation without a policy of its own, and a server that has and asks everything."""
    built = Installation(tmp_path_factory.mktemp("probes"))
    scripts: dict[str, Json] = {
        name: {
            "questions": [*asked.questions],
            "notifications": [*asked.notifications],
            **({} if asked.answer is None else {"answer": asked.answer}),
            **({} if asked.error is None else {"error": asked.error}),
        }
        for name, asked in SERVER.items()
    }
    said: Message = {"tools": TOOLS, "prompts": [{"name": "simple-prompt"}], "scripts": scripts}
    file = built.root / "said.json"
    file.write_bytes(orjson.dumps(said))
    add_whole(built, "everything", said)
    env = at(built.servers["everything"], "env")
    assert isinstance(env, dict)
    env["WHOLE"] = str(file)
    yield built
    built.end()


@pytest.fixture(scope="module")
def client(probed: Installation) -> RawClient:
    """An agent whose client takes every question."""
    started = probed.launch()
    started.initialize(capabilities={"elicitation": {"form": {}, "url": {}}, "sampling": {}})
    started.until_listed("echo")
    return started


def reached(probed: Installation) -> list[Message]:
    """Whatever the server got."""
    return [orjson.loads(line) for line in journal(probed).read_bytes().splitlines()]


def journal(probed: Installation) -> Path:
    return probed.journal_file("everything")


def documented() -> str:
    """The page about the protocol, without line breaks."""
    return " ".join(DOCUMENT.read_text(encoding="utf-8").split())


def test_there_are_at_least_45_probes() -> None:
    assert len(AGENT) + len(SERVER) + len(DROPPED) >= 45


@pytest.mark.parametrize("probe", AGENT.values(), ids=AGENT)
def test_what_the_agent_asks_is_decided_recorded_and_sent_by_a_rule_alone(
    probe: Probe, client: RawClient, probed: Installation
) -> None:
    before, records = len(reached(probed)), len(probed.outcomes())
    found = client.answer(client.request(probe.method, probe.params))
    assert kind(found) == probe.answer
    sent = [one for one in reached(probed)[before:] if one.get("method") == probe.method]
    is_list = probe.method.endswith("/list") or probe.method == "initialize"
    assert [one["params"] for one in sent if not is_list] == (
        [] if probe.reaches is None else [probe.reaches]
    )
    rules = [at(one, "policyDecision", "rule") for one in probed.outcomes()[records:]]
    assert rules == ([probe.rule] if probe.rule else [])
    assert (probe.documented or f"`{probe.method}`") in documented()


def kind(answer: Message) -> str | int:
    """What an answer is."""
    if "error" in answer:
        code = at(answer, "error", "code")
        assert isinstance(code, int)
        return code
    result = at(answer, "result")
    assert isinstance(result, dict)
    return "refused" if result.get("isError") else "result"


@pytest.mark.parametrize("name", SERVER)
def test_what_a_server_asks_or_says_is_decided_or_documented(
    name: str, client: RawClient, probed: Installation
) -> None:
    asked: Asked = SERVER[name]
    records, arrived = len(probed.outcomes()), len(client.arrived)
    found = client.answer(client.request("tools/call", call("echo", name)))
    rules = [at(one, "policyDecision", "rule") for one in probed.outcomes()[records:]]
    assert rules == [*([asked.rule] if asked.rule else []), "allow-everything-samples"]
    if asked.questions:
        (answer,) = [one for one in reached(probed) if one.get("id") == f"{name} 0"]
        error = answer.get("error")
        result = answer.get("result")
        given = [*result] if isinstance(result, dict) else at(error, "code")
        assert given == asked.answered
    assert (kind(found) == "refused") == asked.is_withheld
    assert ("asked" in probed.outcomes()[-1]) == asked.is_withheld
    if asked.arrives:
        # What tells of a list comes after the list has been read again, so after the answer.
        client.until(
            lambda one: one.get("method") == asked.arrives and one in client.arrived[arrived:],
            asked.arrives,
        )
    told = [one["method"] for one in client.arrived[arrived:] if "method" in one]
    assert told == ([asked.arrives] if asked.arrives else [])
    assert asked.documented in documented()


@pytest.mark.parametrize("method", DROPPED)
def test_a_notification_that_goes_nowhere_is_named_in_the_documents(
    method: str, client: RawClient, probed: Installation
) -> None:
    before = len(reached(probed))
    client.notify(method, {})
    client.result(client.request("ping"))
    client.result(client.request("tools/call", call("echo")))
    assert [one["method"] for one in reached(probed)[before:]] == ["tools/call"]
    assert DROPPED[method] in documented()


def test_a_request_before_the_handshake_is_recorded(installation: Installation) -> None:
    installation.add_scripted()
    client = installation.launch()
    answer = client.answer(client.request("tools/call", call("echo")))
    assert kind(answer) == -32602
    assert installation.last_decision() == ("deny", "invalid-params")


def test_all_that_reached_the_server_has_an_intent_with_a_rule_that_allows(
    client: RawClient, probed: Installation
) -> None:
    client.result(client.request("tools/call", call("echo")))
    sent = [one["method"] for one in reached(probed) if one.get("method") in (*DECIDED, *PROMPTS)]
    intents = [one for one in probed.records() if one.get("phase") == "intent"]
    assert len(sent) == len(intents)
    assert {at(one, "policyDecision", "status") for one in intents} == {"allow"}
