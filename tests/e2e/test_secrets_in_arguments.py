"""Calls that would send a secret: a person is asked each time, where the operator says so."""

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, text, texts
from tests.e2e.test_operations import SAID, add_whole, annotate
from tests.program import PROXY

KEY = "ghp_" + "a1B2" * 9
ASKS: Json = {"askAboutSecrets": True}
RULE = "secret-in-arguments"


@pytest.fixture
def person(installation: Installation) -> Person:
    installation.variables["ESCALATION_DIR"] = str(installation.root / "escalations")
    return Person(installation)


def started(installation: Installation) -> RawClient:
    installation.add_scripted(arguments=ASKS)
    installation.allow_scripted()
    return installation.start()


def test_a_secret_passes_unless_the_operator_says_otherwise(scripted: Installation) -> None:
    scripted.start().call("echo", {"text": KEY})
    assert scripted.received()[0]["arguments"] == {"text": KEY}


def test_a_person_is_asked_by_argument_and_kind_and_the_record_is_masked(
    installation: Installation, person: Person
) -> None:
    agent = started(installation)
    call = agent.start_call("echo", {"text": f"use {KEY}"})
    (question,) = person.until_asked()
    assert at(question, "reason") == 'What is sent holds a secret: "text" (key of a provider)'
    assert question["origins"] == ["secrets"]
    assert "whitelistCandidates" not in question
    assert installation.received() == []
    person.answer({"decision": "approved"})
    agent.result(call)
    assert installation.received()[0]["arguments"] == {"text": f"use {KEY}"}
    assert KEY.encode() not in installation.audit.read_bytes()
    assert installation.last_decision() == ("allow", RULE)


def test_an_approval_does_not_cover_the_next_secret(
    installation: Installation, person: Person
) -> None:
    agent = started(installation)
    call = agent.start_call("echo", {"text": KEY})
    person.until_asked()
    person.answer({"decision": "approved"})
    agent.result(call)
    again = agent.start_call("echo", {"text": KEY})
    person.until_asked()
    person.answer({"decision": "denied"})
    assert "denied" in text(agent.result(again))
    assert len(installation.received()) == 1


def test_calls_without_a_secret_are_not_asked_about(installation: Installation) -> None:
    agent = started(installation)
    assert agent.call("answer", {"text": "no secret"}) == agent.call(
        "answer", {"text": "no secret"}
    )


@pytest.mark.parametrize(
    ("arguments", "more"),
    [({"text": "x"}, {"_meta": {"baggage": f"k={KEY}"}}), ({"text": "password: hunter2"}, {})],
    ids=["beside the arguments", "with its name"],
)
def test_without_a_reviewer_nothing_leaves(
    arguments: Message, more: Message, installation: Installation
) -> None:
    agent = started(installation)
    result = agent.call("echo", arguments, **more)
    assert RULE in " ".join(texts(result))
    assert KEY not in str(result)
    assert installation.received() == []


def test_resources_prompts_and_completions_are_searched_too(installation: Installation) -> None:
    add_whole(installation, "whole", SAID, arguments=ASKS)
    installation.rules = [rule("memo", uris={"schemes": ["memo"]}), rule("greet", prompt=["greet"])]
    annotate(installation)
    client = installation.start()
    completion: Message = {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": KEY},
    }
    requests: list[tuple[str, Message]] = [
        ("resources/read", {"uri": f"memo://a?token={KEY}"}),
        ("prompts/get", {"name": "greet", "arguments": {"name": KEY}}),
        ("completion/complete", completion),
    ]
    for method, params in requests:
        assert "error" in client.answer(client.request(method, params))
    rules = [at(one, "policyDecision", "rule") for one in installation.outcomes()]
    assert rules == [RULE, RULE, "completion-of-asked"]


def test_it_is_explained_as_it_is_decided(installation: Installation) -> None:
    installation.add_scripted(arguments=ASKS)
    installation.allow_scripted()
    installation.write_policy()
    given = orjson.dumps({"text": KEY}).decode()
    command = [*PROXY, "explain", "scripted/echo", "--args", given]
    done = program.run([*command, "--json"], installation.environment())
    found = orjson.loads(done.stdout)
    assert (found["decision"], found["rule"]) == ("escalate", RULE)
    told = program.run(command, installation.environment()).stdout
    assert '"askAboutSecrets": false' in told
