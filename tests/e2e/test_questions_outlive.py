"""A held question outlives its proxy: the same call joins it at the next one."""

import os
import signal
from collections.abc import Callable

import orjson
import pytest

from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, texts

HELD = {"ESCALATION_MODE": "held", "ESCALATION_HOLD_AFTER_SECONDS": "0.2"}


@pytest.fixture
def shared(installation: Installation) -> Person:
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
    installation.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    person = Person(installation)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    return person


def ask(agent: RawClient, text: str = "/srv/x") -> Message:
    return agent.result(agent.start_call("ask", {"text": text}))


def waiting(person: Person) -> list[str]:
    listed = orjson.loads(person.command("pending", "--json").stdout)
    return [str(one["id"]) for one in listed]


def killed(agent: RawClient) -> None:
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()


def terminated(agent: RawClient) -> None:
    agent.process.send_signal(signal.SIGTERM)
    agent.process.wait()


def left(agent: RawClient) -> None:
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    agent.process.wait()


ENDS: dict[str, Callable[[RawClient], None]] = {
    "killed": killed, "terminated": terminated, "left by its agent": left,
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_question_is_joined_after_its_proxy_was(shared: Person, end: str) -> None:
    installation = shared.installation
    first = installation.start(**HELD)
    assert texts(ask(first))[0].startswith("HELD: ")
    (identifier,) = waiting(shared)
    ENDS[end](first)
    assert waiting(shared) == [identifier]
    second = installation.start(**HELD)
    assert waiting(shared) == [identifier]
    ask(second, "/srv/other")
    other = set(waiting(shared)) - {identifier}
    assert len(other) == 1
    assert identifier in texts(ask(second))[0]
    assert shared.command("approve", identifier).returncode == 0
    assert "isError" not in ask(second)
    assert [at(one, "arguments") for one in installation.received()] == [{"text": "/srv/x"}]
    assert at(installation.outcomes()[-1], "escalationId") == identifier
    assert waiting(shared) == [*other]


@pytest.mark.requirement("T-23")
def test_an_answer_that_came_while_no_proxy_lived_counts_once(shared: Person) -> None:
    installation = shared.installation
    first = installation.start(**HELD)
    ask(first)
    (identifier,) = waiting(shared)
    killed(first)
    assert shared.command("approve", identifier).returncode == 0
    second, third = installation.start(**HELD), installation.start(**HELD)
    assert "isError" not in ask(second)
    assert "isError" in ask(third)
    assert identifier not in waiting(shared)
    assert len(installation.received()) == 1


EDITS: dict[str, tuple[str, Json]] = {
    "arguments": ("arguments", {"text": "/srv/harmless"}),
    "the tool": ("toolName", "look"),
    "what it does": ("told", ["Reads a file of yours."]),
    "why it is asked": ("reason", "it is harmless"),
    "whom it is asked alone": ("alone", []),
    "more": ("context", {"Working directory": "/srv/other"}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_answer_to_a_question_that_was_edited_after_its_proxy_ended_does_not_count(
    shared: Person, edit: str
) -> None:
    """What a person is shown is what is carried out, also where the next proxy reads it."""
    installation = shared.installation
    first = installation.start(**HELD)
    ask(first)
    (identifier,) = waiting(shared)
    killed(first)
    (request,) = shared.directory.glob("request-*.json")
    name, value = EDITS[edit]
    request.write_bytes(orjson.dumps({**orjson.loads(request.read_bytes()), name: value}))
    assert shared.command("approve", identifier).returncode == 0
    second = installation.start(**HELD)
    assert texts(ask(second))[0].startswith("HELD: ")
    assert installation.received() == []
    (asked,) = waiting(shared)
    assert asked != identifier
    assert shared.command("approve", asked).returncode == 0
    assert "isError" not in ask(second)
    assert len(installation.received()) == 1


def test_a_question_of_a_session_of_its_own_moves_to_the_next(shared: Person) -> None:
    installation = shared.installation
    del installation.variables["ESCALATION_DIR"]
    sessions = installation.home / ".ironcurtain/sessions"
    Mailboxes([], sessions).listen()
    first = installation.start(**HELD, IRONCURTAIN_SESSION_ID="one")
    ask(first)
    (request,) = sessions.glob("*/request-*.json")
    assert request.parent.name == "one"
    killed(first)
    second = installation.start(**HELD, IRONCURTAIN_SESSION_ID="two")
    ask(second)
    (moved,) = sessions.glob("*/request-*.json")
    assert (moved.parent.name, moved.name) == ("two", request.name)
    assert (
        shared.run("approve", str(orjson.loads(moved.read_bytes())["escalationId"])).returncode == 0
    )
    assert "isError" not in ask(second)


def test_only_one_of_two_proxies_adopts_a_question(shared: Person) -> None:
    installation = shared.installation
    first = installation.start(**HELD)
    ask(first)
    (identifier,) = waiting(shared)
    killed(first)
    agents = [installation.start(**HELD) for _ in range(2)]
    told = [texts(ask(agent))[0] for agent in agents]
    assert [identifier in one for one in told] == [True, False]
    assert len(waiting(shared)) == 2


def test_a_call_that_its_agent_withdraws_leaves_no_question(shared: Person) -> None:
    installation = shared.installation
    agent = installation.start(ESCALATION_MODE="held", ESCALATION_HOLD_AFTER_SECONDS="60")
    number = agent.start_call("ask", {"text": "/srv/x"})
    shared.until_asked()
    agent.notify("notifications/cancelled", {"requestId": number})
    killed_at = agent.process
    while shared.requests():
        assert killed_at.poll() is None
    assert shared.is_tidy()


@pytest.mark.parametrize("end", ENDS)
def test_an_approval_that_no_call_came_back_for_is_used_once_by_the_next_proxy(
    shared: Person, end: str
) -> None:
    installation = shared.installation
    first = installation.start(**HELD)
    assert texts(ask(first))[0].startswith("HELD: ")
    (identifier,) = waiting(shared)
    assert shared.command("approve", identifier).returncode == 0
    assert waiting(shared) == []
    ENDS[end](first)
    assert waiting(shared) == []
    second = installation.start(**HELD)
    assert "isError" not in ask(second)
    assert texts(ask(second))[0].startswith("HELD: ")
    assert at(installation.outcomes()[0], "escalationId") == identifier
    killed(second)
    third = installation.start(**HELD)
    assert texts(ask(third))[0].startswith("HELD: ")
    assert len(installation.received()) == 1


def test_an_approval_whose_file_cannot_be_removed_is_not_used(shared: Person) -> None:
    """Another proxy would adopt it, and use it again."""
    installation = shared.installation
    agent = installation.start(**HELD)
    ask(agent)
    (identifier,) = waiting(shared)
    request = shared.directory / f"request-{identifier}.json"
    assert shared.command("approve", identifier).returncode == 0
    request.unlink()
    request.mkdir()
    (request / "in the way").touch()
    assert "isError" in ask(agent)
    assert "could be used twice" in str(installation.outcomes()[-1])
    assert installation.received() == []


def test_an_approval_that_lapsed_while_no_proxy_ran_is_asked_for_again(shared: Person) -> None:
    installation = shared.installation
    first = installation.start(**HELD)
    ask(first)
    (identifier,) = waiting(shared)
    assert shared.command("approve", identifier).returncode == 0
    killed(first)
    (settled,) = shared.directory.glob("settled-*.json")
    long_ago = settled.stat().st_mtime - 301
    os.utime(settled, (long_ago, long_ago))
    second = installation.start(**HELD)
    assert texts(ask(second))[0].startswith("HELD: ")
    assert set(waiting(shared)).isdisjoint({identifier})
    assert installation.received() == []
