"""A client without a handshake before servers with one: a call over all of its requests."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.agent.connected import ENVELOPE
from tests.e2e.installation import ROOT, Installation, rule
from tests.e2e.raw_client import Message, RawClient, at, text
from tests.e2e.test_operations import SAID, add_whole
from tests.e2e.test_server_questions import ASKED, page, sampling
from tests.program import PATIENCE
from tests.tables import table

ABLE: Final[Message] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
META: Final[Message] = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": ABLE}
ROOTS: Final[Message] = {"method": "roots/list", "params": {}}
CALLED: Final[Message] = {"name": "ask", "arguments": {}}
MEMO: Final = "memo://insights"
MODERN_ONLY: Final = ROOT / "tests/downstream/modern_only_server.py"
MODERN_SERVER: Final = MODERN_ONLY.with_name("modern_server.py")
SAYS: Final[Mapping[str, Json]] = table("e2e/modern_rounds.says", dict[str, dict[str, Json]])


def alone(agent: RawClient, method: str, **params: Json) -> int:
    return agent.request(method, {"_meta": META, **params})


def wanted(result: Message) -> dict[str, Message]:
    found = result.get("inputRequests", {})
    assert isinstance(found, dict)
    return {key: one for key, one in found.items() if isinstance(one, dict)}


def answers(asked: Mapping[str, Message]) -> dict[str, Json]:
    """What the user says to each question, no faster than a person reads."""
    found: dict[str, Json] = {}
    for key, one in asked.items():
        kind = str(one["method"])
        params = one["params"]
        assert isinstance(params, dict)
        if b'"decision"' in orjson.dumps(params):
            time.sleep(0.4)
            kind = "review"
        found[key] = SAYS["url" if params.get("mode") == "url" else kind]
    return found


def carried(agent: RawClient, first: Message, **more: Json) -> tuple[list[str], Message]:
    """Answer all questions of a call. Returns what was asked, and the call's result."""
    asked, result = [], first
    while result["resultType"] == "input_required":
        now = wanted(result)
        asked += [str(one["method"]) for one in now.values()]
        given: dict[str, Json] = {**more, **answers(now)}
        state = result["requestState"]
        result = agent.result(
            alone(agent, "tools/call", **CALLED, requestState=state, inputResponses=given)
        )
    return asked, result


def asking(built: Installation, *questions: Message) -> RawClient:
    network: Json = {"allowedDomains": ["auth.example.com"]}
    sandbox: Json = {"network": network, "filesystem": {"allowWrite": [str(built.root)]}}
    ask: Json = ["form", "url", "sampling"]
    said: Message = {**SAID, "questions": [*questions]}
    add_whole(built, "whole", said, ask=ask, sandbox=sandbox)
    built.annotations["whole"] = {"ask": {}, "notify": {}}
    built.variables |= {"ESCALATION_CHANNELS": "elicitation", "PINS": "off"}
    return built.launch()


@pytest.mark.parametrize(
    ("questions", "asked", "heard"),
    [
        ([ASKED], ["elicitation/create"], [SAYS["elicitation/create"]]),
        ([page("https://auth.example.com/a")], ["elicitation/create"], [{"action": "accept"}]),
        (
            [sampling()],
            ["elicitation/create", "sampling/createMessage"],
            [SAYS["sampling/createMessage"]],
        ),
        ([ASKED, ASKED], ["elicitation/create"] * 2, [SAYS["elicitation/create"]] * 2),
        ([ROOTS, ASKED], ["elicitation/create"], [None, SAYS["elicitation/create"]]),
    ],
    ids=["form", "page", "sampling", "two rounds", "roots"],
)
@pytest.mark.requirement("T-16")
@pytest.mark.requirement("T-20")
def test_each_question_of_a_server_comes_to_a_client_that_gets_no_requests(
    questions: list[Message], asked: list[str], heard: list[Json], installation: Installation
) -> None:
    installation.rules.append(rule("whole", server=["whole"], tool=["ask"]))
    agent = asking(installation, *questions)
    first = agent.result(alone(agent, "tools/call", **CALLED))
    strange: dict[str, Json] = {"nobody": {"action": "accept"}, "q0": {"action": "accept"}}
    state = first["requestState"]
    again = agent.result(
        alone(agent, "tools/call", **CALLED, requestState=state, inputResponses=strange)
    )
    assert wanted(again) == wanted(first), "nobody was asked under these keys"
    found, result = carried(agent, again, **strange)
    assert found == asked
    told: list[Json] = orjson.loads(text(result))
    for said, expected in zip(told, heard, strict=True):
        if expected is None:
            assert isinstance(at(said, "roots"), list), "answered from the policy"
        else:
            assert said == expected
    assert not [one for one in agent.arrived if "method" in one and "id" in one]


def test_a_server_without_a_handshake_asks_a_client_without_one_in_two_rounds(
    installation: Installation,
) -> None:
    command = [sys.executable, str(MODERN_ONLY), sys.executable, str(MODERN_SERVER)]
    installation.add_server("modern", command, ask=["form"])
    installation.annotations["modern"] = {"greet": {}}
    installation.rules.append(rule("modern", server=["modern"], tool=["greet"]))
    installation.variables["PINS"] = "off"
    agent = installation.launch()
    greet: Message = {"name": "greet", "arguments": {}}
    first = agent.result(alone(agent, "tools/call", **greet))
    while not (asked := wanted(first)):  # its server has not started yet
        state = first["requestState"]
        first = agent.result(alone(agent, "tools/call", **greet, requestState=state))
    assert [*asked] == ["name"], "roots are answered from the policy"
    assert at(asked["name"], "params", "message") == "[modern] Who are you?"
    state = first["requestState"]
    assert len(str(state)) < 1000, "the server's own is kept here"
    again = {**greet, "requestState": state, "inputResponses": answers(asked)}
    done = agent.result(alone(agent, "tools/call", **again))
    assert text(done) == "näme/65005 accept {'name': 'Ann'}"
    assert "error" in agent.answer(alone(agent, "tools/call", **again))


@pytest.mark.parametrize("is_denied", [True, False])
@pytest.mark.requirement("T-18")
def test_an_approval_of_a_call_that_another_policy_judges_by_then_is_worth_nothing(
    is_denied: bool, installation: Installation
) -> None:
    ask = rule("ask", "escalate", "a person must agree", server=["whole"], tool=["ask"])
    installation.rules.append(ask)
    agent = asking(installation)
    first = agent.result(alone(agent, "tools/call", **CALLED))
    assert len(wanted(first)) == 1
    if is_denied:
        agent.result(alone(agent, "tools/list"))
        listening = alone(agent, "subscriptions/listen", notifications={"promptsListChanged": True})
        agent.notification("notifications/subscriptions/acknowledged")
        installation.rules = [rule("no", "deny", "not any more", server=["whole"], tool=["ask"])]
        installation.write_policy()
        assert agent.result(listening)["resultType"] == "complete"
    _, result = carried(agent, first)
    assert (result.get("isError") is True) is is_denied
    assert ("not any more" in text(result)) is is_denied if is_denied else True
    journal = installation.journal_file("whole").read_bytes()
    assert (b'"tools/call"' in journal) is not is_denied


@pytest.mark.requirement("T-26")
def test_news_come_of_what_may_be_read_also_after_the_server_was_started_again(
    installation: Installation,
) -> None:
    installation.rules += [
        rule("memo", uris={"schemes": [], "patterns": [MEMO]}),
        rule("notify", server=["whole"], tool=["notify"]),
    ]
    agent = asking(installation)
    wants: Json = {"resourceSubscriptions": [MEMO, "secret://key"]}
    listening = alone(agent, "subscriptions/listen", notifications=wants)
    told = agent.notification("notifications/subscriptions/acknowledged")
    assert at(told, "params", "notifications") == {"resourceSubscriptions": [MEMO]}

    def news() -> list[Message]:
        return agent.notifications("notifications/resources/updated")

    def subscribed() -> int:
        return installation.journal_file("whole").read_bytes().count(b'"resources/subscribe"')

    notify: Message = {"name": "notify", "arguments": {}}
    agent.result(alone(agent, "tools/call", **notify))
    agent.until(lambda _: len(news()) == 1, "news")
    for process in installation.processes(agent):
        # All that carry its name: with one of them the others may have gone.
        with suppress(OSError):
            if b"whole.py" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)
    end = time.monotonic() + PATIENCE
    while subscribed() < 2:
        assert time.monotonic() < end, agent.errors.read_text()
        agent.wait(0.05)
    agent.until(lambda _: len(news()) == 2, "news of what may have been missed")
    agent.result(alone(agent, "tools/call", **notify))
    agent.until(lambda _: len(news()) == 3, "news")
    assert {str(at(one, "params", "uri")) for one in news()} == {MEMO}
    agent.notify("notifications/cancelled", {"requestId": listening})
