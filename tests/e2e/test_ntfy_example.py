"""The reviewer on a phone of docs/examples, through a server of topics, behind a running proxy."""

import sys
from collections.abc import Iterator
from urllib.request import urlopen

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, RawClient, texts
from tests.e2e.test_auto_confirm import OUTSIDE, Office
from tests.e2e.topics import Topics, open_topics
from tests.program import ROOT


@pytest.fixture
def topics() -> Iterator[Topics]:
    with open_topics() as made:
        yield made


@pytest.fixture
def office(installation: Installation) -> Office:
    return Office(installation)


def start(office: Office, topics: Topics) -> RawClient:
    program = str(ROOT / "docs/examples/ntfy_reviewer.py")
    command: list[Json] = [sys.executable, program, f"{topics.url}/ask", f"{topics.url}/answer"]
    return office.start({"name": "phone", "kind": "process", "session_type": "high-level",
                         "command": command},
                        escalation_targets={"high_risk": "phone", "medium_risk": "phone"},
                        fallback_escalation="phone")  # fmt: skip


def buttons(message: Message) -> dict[str, Message]:
    actions = message["actions"]
    assert isinstance(actions, list)
    return {str(one["label"]): one for one in actions if isinstance(one, dict)}


def press(button: Message) -> None:
    """As the app does it on the phone."""
    assert button["action"] == "http"
    urlopen(str(button["url"]), str(button["body"]).encode()).close()  # noqa: S310  our server's


def forged(message: Message) -> Iterator[str]:
    """Approvals of somebody who sees the answers' topic, and knows all but the token."""
    answer = orjson.loads(str(buttons(message)["Deny"]["body"]))
    proof = answer.pop("proof")
    approval = {**answer, "decision": "approve"}
    yield "approve"
    yield orjson.dumps(approval).decode()
    yield orjson.dumps({**approval, "proof": proof}).decode()
    yield orjson.dumps({**approval, "proof": ""}).decode()
    yield orjson.dumps({**approval, "proof": None, "token": "guess"}).decode()
    yield orjson.dumps({**approval, "token": "guess"}).decode() + "\n{}"


def test_only_a_button_of_the_message_approves_the_call(office: Office, topics: Topics) -> None:
    agent = start(office, topics)
    denied = agent.start_call("delete_file", {"path": OUTSIDE})
    first = topics.next_message()
    assert first["topic"] == "ask"
    assert OUTSIDE in str(first["message"])
    for text in forged(first):
        topics.publish("answer", text)
    press(buttons(first)["Deny"])
    assert agent.result(denied)["isError"] is True
    assert office.installation.received("files") == []

    approved = agent.start_call("delete_file", {"path": OUTSIDE})
    second = topics.next_message()
    press(buttons(first)["Approve"])  # of another question
    for text in forged(second):
        topics.publish("answer", text)
    press(buttons(second)["Approve"])
    assert "isError" not in agent.result(approved)
    assert office.outcome()["decidedBy"] == "reviewer:phone"
    assert len(office.installation.received("files")) == 1
    log = "".join(file.read_text() for file in office.installation.root.rglob("session.log"))
    assert "its proof is wrong" in log + agent.errors.read_text()


def test_a_call_that_is_not_shown_whole_cannot_be_approved(office: Office, topics: Topics) -> None:
    agent = start(office, topics)
    call = agent.start_call("delete_file", {"path": "/srv/" + "deep/" * 600 + "file"})
    message = topics.next_message()
    assert [*buttons(message)] == ["Deny"]
    press(buttons(message)["Deny"])
    assert "denied" in texts(agent.result(call))[0].lower()
