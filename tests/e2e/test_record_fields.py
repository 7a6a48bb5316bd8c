"""What the record says of who was asked, who answered, and who refused a call."""

import os
import pwd
import time

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, text

ROLES = {"ask": {"text": ["write-path"]}, "echo": {"text": ["write-path"]}}


@pytest.fixture
def person(installation: Installation) -> Person:
    """An installation in which `ask` escalates and `echo` is denied."""
    installation.add_scripted("scripted", ROLES)
    installation.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    person = Person(installation)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    return person


def outcome(installation: Installation) -> Message:
    return installation.outcomes()[-1]


def ask(agent: RawClient, path: str = "/srv/x") -> int:
    return agent.start_call("ask", {"text": path})


def ask_by_form(installation: Installation, content: Message) -> Message:
    """One call, about which the client shows a form that is filled in."""
    installation.variables["ESCALATION_CHANNELS"] = "elicitation"
    agent = installation.launch()
    agent.initialize(capabilities={"elicitation": {}})
    call = ask(agent)
    question = agent.until(lambda m: m.get("method") == "elicitation/create", "a question")
    # Nobody reads a question and answers it at once: wait as a person would.
    time.sleep(0.4)
    answer: Message = {"action": "accept", "content": content}
    agent.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    agent.result(call)
    return outcome(installation)


def test_an_answer_by_command_is_recorded_with_words_way_place_and_wait(
    installation: Installation, person: Person
) -> None:
    agent = installation.start()
    for answer, refused in (("approve", None), ("deny", "declined")):
        call = ask(agent)
        person.until_asked()
        words = f"{answer}: the ticket says so\x1b[2J"
        asked = str(person.until_asked()[0]["escalationId"])
        assert person.command(answer, asked, "--note", words).returncode == 0
        agent.result(call)
        found = outcome(installation)
        assert found["note"] == f"{answer}: the ticket says so[2J"
        assert found["channel"] == "mailbox"
        user = pwd.getpwuid(os.getuid()).pw_name
        assert str(found["answeredFrom"]).startswith(f"{user} on ")
        assert isinstance(found["waitedMs"], int)
        assert found["waitedMs"] > 0
        assert found.get("refusedBy") == refused
        assert "refusalRule" not in found, "the policy's rule is the one that holds"


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_an_answer_in_the_client_s_form_is_recorded_with_words_and_way(
    installation: Installation, person: Person, decision: str
) -> None:
    found = ask_by_form(installation, {"decision": decision, "note": "as agreed"})
    assert (found["note"], found["channel"]) == ("as agreed", "elicitation")
    assert "answeredFrom" not in found, "only a file says where it was written"
    assert found.get("refusedBy") == (None if decision == "approve" else "declined")


def test_the_client_is_named_as_it_names_itself_in_intent_and_outcome(
    installation: Installation, person: Person
) -> None:
    agent = installation.launch()
    agent.initialize(clientInfo={"name": "my\x1b[2J agent", "version": "9.1"})
    call = ask(agent)
    person.answer({"decision": "approved"})
    agent.result(call)
    said = {str(record["client"]) for record in installation.records()}
    assert len(installation.records()) == 2
    (name,) = said
    assert name.startswith("my")
    assert name.endswith("agent 9.1")
    assert "\x1b" not in name


def test_an_answer_without_words_leaves_no_empty_field(
    installation: Installation, person: Person
) -> None:
    agent = installation.start()
    call = ask(agent)
    person.answer({"decision": "denied"})
    agent.result(call)
    found = outcome(installation)
    assert [name for name in ("note", "answeredFrom", "autoApprover") if name in found] == []


def test_a_call_that_nobody_was_asked_about_says_who_refused_it_and_no_wait(
    installation: Installation, person: Person
) -> None:
    agent = installation.start()
    calls: tuple[tuple[str, dict[str, Json], str], ...] = (
        ("echo", {"text": "/srv/x"}, "policy"),
        ("nothing-of-the-kind", {}, "unknown-tool"),
        ("ask", {"other": "/srv/x"}, "arguments"),
    )
    for name, arguments, by in calls:
        agent.answer(agent.request("tools/call", {"name": name, "arguments": arguments}))
        found = outcome(installation)
        assert found["refusedBy"] == by
        assert [one for one in ("waitedMs", "channel", "note") if one in found] == []


def test_a_question_without_an_answer_in_time_says_so(
    installation: Installation, person: Person
) -> None:
    agent = installation.start(ESCALATION_TIMEOUT_SECONDS="5")
    agent.result(ask(agent))
    found = outcome(installation)
    assert (found["refusedBy"], found["decidedBy"]) == ("expired", "timeout")
    assert isinstance(found["waitedMs"], int)
    # The deadline counts from the question, the wait from when it was put to somebody.
    assert 4000 < found["waitedMs"], "it says how long reviewers had"
    assert "channel" not in found, "nobody answered by any way"


def test_a_question_without_anyone_to_ask_says_so(
    installation: Installation, person: Person
) -> None:
    del installation.variables["ESCALATION_DIR"]
    agent = installation.start()
    agent.result(ask(agent))
    found = outcome(installation)
    assert found["refusedBy"] == "no-reviewer"
    assert [one for one in ("waitedMs", "channel", "note") if one in found] == []


def test_a_held_call_is_recorded_as_held(installation: Installation, person: Person) -> None:
    file = installation.root / "config.json"
    file.write_bytes(orjson.dumps({"escalation": {"mode": "held", "holdAfterSeconds": 0.1}}))
    agent = installation.start(IRONCURTAIN_CONFIG=str(file))
    assert "HELD" in text(agent.result(ask(agent)))
    found = outcome(installation)
    assert (found["refusedBy"], "escalationResult" in found) == ("held", False)


def test_a_refusal_for_another_reason_than_the_policy_s_names_its_rule(
    installation: Installation, person: Person
) -> None:
    link = installation.root / "link"
    link.symlink_to(installation.root / "harmless")
    agent = installation.start()
    call = ask(agent, str(link))
    person.until_asked()
    link.unlink()
    link.symlink_to(installation.root / "secret")
    person.answer({"decision": "approved", "note": "go"})
    agent.result(call)
    found = outcome(installation)
    assert at(found, "policyDecision", "rule") == "ask-first"
    assert found["refusalRule"] == "changed-meanwhile"
    assert found["refusedBy"] == "policy"
    assert installation.received() == []
