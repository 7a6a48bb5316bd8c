"""What a hostile or confused client of the front does with what was given to others."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.agent.connected import ENVELOPE
from tests.e2e.http_front import BOTH, FrontAddress, HttpAgent, an_http_front
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import Message, at
from tests.e2e.test_modern_rounds import CALLED, META, answers, wanted
from tests.e2e.test_operations import SAID, add_whole
from tests.e2e.test_server_questions import ASKED
from tests.program import PATIENCE


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    built = Installation(tmp_path_factory.mktemp("hostile"))
    add_whole(built, "whole", {**SAID, "questions": [ASKED]}, ask=["form"])
    built.annotations["whole"] = {"ask": {}, "notify": {}}
    built.rules.append(rule("whole", server=["whole"], tool=["ask", "notify"]))
    built.variables["PINS"] = "off"
    yield built
    built.end()


@pytest.fixture(scope="module")
def front(built: Installation) -> Iterator[FrontAddress]:
    with an_http_front(built) as found:
        yield found


def called(agent: HttpAgent, **more: Json) -> Message:
    answer = agent.alone("tools/call", {"_meta": META, **CALLED, **more})
    found = orjson.loads(answer.content)
    assert isinstance(found, dict)
    return found


def changed(state: str) -> dict[str, str]:
    """The state, as somebody without the key could write it."""
    raw = base64.urlsafe_b64decode(state.removeprefix("v1."))
    mac, said = raw[:32], orjson.loads(raw[32:])
    more = orjson.dumps({**said, "leg": -99})
    return {
        "more legs": "v1." + base64.urlsafe_b64encode(mac + more).decode(),
        "one bit": "v1." + base64.urlsafe_b64encode(bytes([raw[0] ^ 1]) + raw[1:]).decode(),
        "cut": state[:-4],
        "cut to its seal": "v1." + base64.urlsafe_b64encode(mac).decode(),
        "cut to its head": "v1.",
        "empty": "",
        "longer": state + "AAAA",
        "twice": state + state,
        "blanks": f" {state}",
        "another version": state.replace("v1.", "v2."),
    }


def test_a_state_that_was_edited_cut_or_stolen_goes_on_with_no_call(
    built: Installation, front: FrontAddress
) -> None:
    alice, bob = front.agent("alice"), front.agent("bob")

    def sent() -> int:
        file = built.journal_file("whole")
        return file.read_bytes().count(b'"tools/call"') if file.exists() else 0

    before = sent()
    first = at(called(alice), "result")
    assert isinstance(first, dict)
    state = str(first["requestState"])
    given: Json = {**answers(wanted(first))}
    for name, one in changed(state).items():
        assert "error" in called(alice, requestState=one, inputResponses=given), name
    assert "error" in called(bob, requestState=state, inputResponses=given), "another principal"
    other: Message = {"arguments": {"more": 1}, "requestState": state, "inputResponses": given}
    assert "state-of-another-call" in orjson.dumps(called(alice, **other)).decode()

    def race(_number: int) -> Message:
        return called(alice, requestState=state, inputResponses=given)

    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(race, range(8))]
    assert len([one for one in found if "result" in one]) == 1
    assert "error" in called(alice, requestState=state, inputResponses=given), "it ran once"
    assert sent() == before + 1


def test_two_clients_that_listen_hear_what_each_asked_for_under_its_own_id(
    front: FrontAddress,
) -> None:
    one, other = front.agent("alice"), front.agent("alice")
    wants: tuple[Json, Json] = ({"toolsListChanged": True}, {"promptsListChanged": True})
    with one.open() as first, other.open() as second:
        own, foreign = listening(first, one, wants[0]), listening(second, other, wants[1])
        with own as mine, foreign as theirs:
            for stream, want in ((mine, wants[0]), (theirs, wants[1])):
                told = heard(stream)
                assert at(told, "params", "notifications") == want
                named = at(told, "params", "_meta", "io.modelcontextprotocol/subscriptionId")
                assert named == 1, "each client's own number"


def listening(
    client: httpx.Client, agent: HttpAgent, want: Json
) -> AbstractContextManager[httpx.Response]:
    params: Message = {"_meta": {**ENVELOPE}, "notifications": want}
    return client.stream(
        "POST",
        agent.url,
        content=orjson.dumps(agent.message("subscriptions/listen", params)),
        headers={
            "Content-Type": "application/json",
            "Accept": BOTH,
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "subscriptions/listen",
        },
        timeout=PATIENCE,
    )


def heard(stream: httpx.Response) -> Json:
    """The first message of a stream."""
    for line in stream.iter_lines():
        if line.startswith("data: {"):
            found: Json = orjson.loads(line.removeprefix("data: "))
            return found
    raise AssertionError("the stream has ended")


def test_the_session_that_all_clients_share_can_be_neither_entered_nor_ended(
    built: Installation, front: FrontAddress
) -> None:
    alice = front.agent("alice")
    alice.alone("tools/list")
    first = at(called(alice), "result")
    assert isinstance(first, dict)
    given: Json = {**answers(wanted(first))}
    # The server answers one call after the other: the next test's would wait for it.
    called(alice, requestState=first["requestState"], inputResponses=given)
    logs = [built.records(file) for file in built.audit.parent.glob("audit.jsonl*")]
    names = {str(one["session"]) for log in logs for one in log if "session" in one}
    name = next(one for one in names if one.startswith("alice-"))
    thief = HttpAgent(alice.url, alice.headers, {"Mcp-Session-Id": name})
    assert thief.post(thief.message("tools/list")).status_code == 404
    with thief.open() as client:
        assert client.get(thief.url).status_code == 404
    assert thief.delete() == 404
    assert alice.alone("tools/list").status_code == 200


def test_a_state_that_another_policy_judges_by_then_sends_no_call_over_http(
    tmp_path: Path,
) -> None:
    built = Installation(tmp_path)
    add_whole(built, "whole", {**SAID}, ask=["form"])
    built.annotations["whole"] = {"ask": {}, "notify": {}}
    ask = rule("ask", "escalate", "a person must agree", server=["whole"], tool=["ask"])
    built.rules.append(ask)
    built.variables |= {"ESCALATION_CHANNELS": "elicitation", "PINS": "off"}
    with an_http_front(built) as front:
        alice = front.agent("alice")
        first = at(called(alice), "result")
        assert isinstance(first, dict)
        alice.alone("tools/list")
        with (
            alice.open() as client,
            listening(client, alice, {"promptsListChanged": True}) as stream,
        ):
            lines = stream.iter_lines()
            next(line for line in lines if "acknowledged" in line)
            built.rules = [rule("no", "deny", "not any more", server=["whole"], tool=["ask"])]
            built.write_policy()
            next(line for line in lines if '"complete"' in line)
        given: Json = {**answers(wanted(first))}
        done = called(alice, requestState=first["requestState"], inputResponses=given)
        assert "not any more" in orjson.dumps(done).decode()
        assert b'"tools/call"' not in built.journal_file("whole").read_bytes()
    built.end()
