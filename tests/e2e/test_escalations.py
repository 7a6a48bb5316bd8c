"""Calls that need a person: the proxy in one process, the person in another."""

import os
import time
from collections.abc import Iterator
from typing import TypeAlias

import orjson
import pytest

from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, text, texts
from tests.program import wait_until

NOT_APPROVED = "tool 'ask' execution denied: user did not approve the action"


Asked: TypeAlias = tuple[Installation, RawClient, Person]


def with_person(installation: Installation) -> Person:
    """Let `ask` escalate; it names a file."""
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}, "echo": {}})
    installation.rules = [
        rule("ask-first", "escalate", "a person must agree", tool=["ask"]),
        rule("echo", "allow", tool=["echo"]),
    ]
    person = Person(installation)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    return person


@pytest.fixture
def asked(installation: Installation) -> Asked:
    """A session of the test's own."""
    person = with_person(installation)
    return installation, installation.start(), person


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    built = Installation(tmp_path_factory.mktemp("asked"))
    person = with_person(built)
    yield built, built.start(), person
    built.end()


@pytest.fixture
def one_of_many(session: Asked) -> Asked:
    """The session of the tests that remember nothing; its server has received nothing so far."""
    os.truncate(session[0].journal_file(), 0)
    return session


@pytest.mark.requirement("C-6", "A-1", "A-91")
def test_an_approval_in_the_original_s_files_lets_the_call_go(one_of_many: Asked) -> None:
    installation, agent, person = one_of_many
    call = agent.start_call("ask", {"text": "/srv/x"})
    (request,) = person.until_asked()
    assert request["serverName"] == "scripted"
    assert request["toolName"] == "ask"
    assert request["arguments"] == {"text": "/srv/x"}
    assert request["reason"] == "a person must agree"
    person.answer({"decision": "approved"})
    agent.result(call)
    assert [at(params, "arguments") for params in installation.received()] == [{"text": "/srv/x"}]
    outcome = installation.outcomes()[-1]
    assert outcome["decidedBy"] == "human"
    assert outcome["escalationResult"] == "approved"
    assert installation.last_decision() == ("allow", "ask-first")
    assert "autoApproved" not in outcome
    assert person.is_tidy()


@pytest.mark.requirement("C-6", "E-24", "E-26")
def test_a_denial_reaches_the_agent_with_the_reviewer_s_word(one_of_many: Asked) -> None:
    installation, agent, person = one_of_many
    call = agent.start_call("ask", {"text": "/srv/x"})
    person.until_asked()
    assert person.command("deny", "all", "--note", "use the scratch directory").returncode == 0
    result = agent.result(call)
    first, second = texts(result)
    assert first == NOT_APPROVED
    assert second.startswith("ESCALATION DENIED: a person must agree.")
    assert "use the scratch directory" in second
    assert installation.received() == []
    assert installation.last_decision() == ("deny", "ask-first")
    assert person.is_tidy()


@pytest.mark.requirement("X-8", "X-16")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"true",
        b'"approved"',
        b'["approved"]',
        b'{"decision":"approve"}',
        b'{"decision":"Approved"}',
        b'{"decision":"approved"',
        b'{"decision":null}',
        b'{"approved":true}',
    ],
)
def test_what_is_no_approval_refuses_that_call_and_leaves_no_files(
    one_of_many: Asked, raw: bytes
) -> None:
    """G12."""
    installation, agent, person = one_of_many
    call = agent.start_call("ask", {"text": "/srv/x"})
    person.answer(None, raw=raw)
    assert texts(agent.result(call))[0] == NOT_APPROVED
    assert installation.received() == []
    assert person.is_tidy()


@pytest.mark.requirement("E-21", "E-22", "E-23", "X-12")
def test_a_remembered_approval_covers_the_directory_and_nothing_beside_it(asked: Asked) -> None:
    """G14."""
    installation, agent, person = asked
    (installation.root / "out" / "deep").mkdir(parents=True)
    (installation.root / "out-old").mkdir()
    first = agent.start_call("ask", {"text": str(installation.root / "out" / "a")})
    person.until_asked()
    person.approve("--remember")
    agent.result(first)
    agent.result(agent.start_call("ask", {"text": str(installation.root / "out" / "deep" / "b")}))
    assert str(installation.outcomes()[-1]["decidedBy"]).startswith("grant:")
    assert installation.outcomes()[-1]["whitelistApproved"] is True
    beside = agent.start_call("ask", {"text": str(installation.root / "out-old" / "c")})
    person.until_asked()
    person.answer({"decision": "denied"})
    assert texts(agent.result(beside))[0] == NOT_APPROVED


@pytest.mark.requirement("X-12")
def test_what_is_remembered_covers_the_same_call_that_waited_beside_it(asked: Asked) -> None:
    installation, agent, person = asked
    (installation.root / "out").mkdir()
    both = [
        agent.start_call("ask", {"text": str(installation.root / "out" / "a")}) for _ in range(2)
    ]
    agent.answer(agent.request("ping"))
    person.until_asked()
    person.approve("--remember")
    assert not any(agent.result(call).get("isError") for call in both)
    human, grant = sorted(
        installation.outcomes(), key=lambda one: str(one["decidedBy"]), reverse=True
    )
    assert human["decidedBy"] == "human"
    assert str(grant["decidedBy"]).startswith("grant:")
    assert human["escalationId"]
    assert person.requests() == []


@pytest.mark.requirement("X-12")
def test_grants_are_listed_and_taken_back(asked: Asked) -> None:
    installation, agent, person = asked
    place = installation.root / "out"
    place.mkdir()
    first = agent.start_call("ask", {"text": str(place / "a")})
    person.answer({"decision": "approved", "whitelistSelection": 0})
    agent.result(first)
    listed = orjson.loads(person.command("grants", "list", "--json").stdout)
    assert [grant["description"] for grant in listed] == [
        f"Let ask change files below {place} until this session ends (server scripted)"
    ]
    assert person.command("grants", "clear").returncode == 0
    wait_until(lambda: orjson.loads(person.command("grants", "list", "--json").stdout) == [])
    again = agent.start_call("ask", {"text": str(installation.root / "out" / "b")})
    person.answer({"decision": "denied"})
    assert texts(agent.result(again))[0] == NOT_APPROVED


def test_a_call_that_is_cancelled_withdraws_its_request(one_of_many: Asked) -> None:
    installation, agent, person = one_of_many
    call = agent.start_call("ask", {"text": "/srv/x"})
    person.until_asked()
    agent.notify("notifications/cancelled", {"requestId": call})
    wait_until(person.is_tidy, "the request is gone")
    agent.answer(agent.request("ping"))
    assert installation.received() == []


@pytest.mark.requirement("X-8")
def test_nobody_answering_in_time_is_a_refusal(installation: Installation) -> None:
    person = with_person(installation)
    agent = installation.start(ESCALATION_TIMEOUT_SECONDS="1")
    result = agent.result(agent.start_call("ask", {"text": "/srv/x"}))
    assert texts(result)[0] == "tool 'ask' execution denied: nobody answered in time"
    assert "Nobody answered in time" in texts(result)[1]
    assert installation.outcomes()[-1]["decidedBy"] == "timeout"
    assert person.is_tidy()


def test_other_calls_go_on_while_one_waits(one_of_many: Asked) -> None:
    """G27."""
    installation, agent, person = one_of_many
    waiting = agent.start_call("ask", {"text": "/srv/x"})
    person.until_asked()
    other = agent.result(agent.start_call("echo", {}))
    assert other.get("isError") is not True, texts(other)
    assert [one["name"] for one in installation.received()] == ["echo"]
    person.answer({"decision": "approved"})
    agent.result(waiting)


@pytest.mark.requirement("X-11")
def test_what_changed_while_a_person_thought_is_not_carried_out(one_of_many: Asked) -> None:
    installation, agent, person = one_of_many
    (installation.root / "harmless").mkdir()
    (installation.root / "secret").mkdir()
    link = installation.root / "link"
    link.symlink_to(installation.root / "harmless")
    call = agent.start_call("ask", {"text": str(link / "x")})
    person.until_asked()
    link.unlink()
    link.symlink_to(installation.root / "secret")
    person.answer({"decision": "approved"})
    assert text(agent.result(call)).startswith("DENIED: what it names changed while waiting")
    assert installation.received() == []


def test_signs_of_life_flow_while_a_person_is_awaited(one_of_many: Asked) -> None:
    _, agent, person = one_of_many
    call = agent.start_call("ask", {"text": "/srv/x"}, _meta={"progressToken": "t"})
    person.until_asked()
    progress = agent.notification("notifications/progress")
    assert at(progress, "params", "progressToken") == "t"
    assert "waiting for approval" in str(at(progress, "params", "message"))
    person.answer({"decision": "denied"})
    agent.result(call)


def test_a_held_call_is_joined_and_runs_once(installation: Installation) -> None:
    person = with_person(installation)
    agent = installation.start(ESCALATION_MODE="held", ESCALATION_HOLD_AFTER_SECONDS="0.2")
    first = agent.result(agent.start_call("ask", {"text": "/srv/x"}))
    assert text(first).startswith("HELD: ")
    assert text(agent.result(agent.start_call("ask", {"text": "/srv/x"}))) == text(first)
    assert len(person.until_asked()) == 1
    status = agent.result(agent.start_call("ironcurtain_escalation_status", {}))
    assert "waits for an approval" in text(status)
    person.answer({"decision": "approved"})
    wait_until(
        lambda: (
            "approved" in text(agent.result(agent.start_call("ironcurtain_escalation_status", {})))
        )
    )
    agent.result(agent.start_call("ask", {"text": "/srv/x"}))
    assert len(installation.received()) == 1
    again = agent.start_call("ask", {"text": "/srv/x"})
    assert text(agent.result(again)).startswith("HELD: ")
    person.answer({"decision": "denied"})


def test_the_denial_of_a_held_call_is_recorded_though_the_call_is_never_made_again(
    installation: Installation,
) -> None:
    person = with_person(installation)
    agent = installation.start(ESCALATION_MODE="held", ESCALATION_HOLD_AFTER_SECONDS="0.2")
    held = agent.result(agent.start_call("ask", {"text": "/srv/x"}))
    assert text(held).startswith("HELD: ")
    (question,) = person.until_asked()
    person.answer({"decision": "denied"})
    wait_until(lambda: installation.outcomes()[-1]["toolName"] == "held_call")
    *_, first, denial = installation.outcomes()
    assert denial["serverName"] == "ironcurtain"
    assert denial["arguments"] == {
        "escalationId": question["escalationId"],
        "serverName": "scripted",
        "toolName": "ask",
    }
    assert denial["escalationId"] == first["escalationId"] == question["escalationId"]
    assert denial["decidedBy"] == "human"
    assert denial["escalationResult"] == "denied"
    assert at(denial, "result", "status") == "denied"


def test_the_client_itself_is_asked_and_not_believed_when_faster_than_a_person(
    installation: Installation,
) -> None:
    with_person(installation)
    installation.variables["ESCALATION_CHANNELS"] = "elicitation"
    agent = installation.launch()
    agent.initialize(capabilities={"elicitation": {}})
    for number, seconds in enumerate((0.4, 0.0)):
        call = agent.start_call("ask", {"text": f"/srv/{number}"})
        question = agent.until(lambda m: m.get("method") == "elicitation/create", "a question")
        agent.arrived.remove(question)
        assert f"/srv/{number}" in str(at(question, "params", "message"))
        time.sleep(seconds)  # a person reads a question before answering it
        answer: Message = {"action": "accept", "content": {"decision": "approve"}}
        agent.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        if seconds:
            agent.result(call)
            assert installation.outcomes()[-1]["decidedBy"] == "human"
        else:
            assert "no approval channel available" in texts(agent.result(call))[0]
    assert len(installation.received()) == 1


@pytest.mark.requirement("C-5", "A-55")
def test_without_a_listener_a_call_is_denied_at_once_and_no_file_is_left(
    installation: Installation,
) -> None:
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
    installation.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    agent = installation.start()
    result = agent.result(agent.start_call("ask", {"text": "/srv/x"}))
    assert "no approval channel available" in texts(result)[0]
    assert list(installation.home.rglob("request-*")) == []
