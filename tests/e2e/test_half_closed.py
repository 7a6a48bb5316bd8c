"""An agent that sends its calls and closes its end gets an answer to each of them."""

from collections.abc import Mapping, Sequence

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.installation import Installation
from tests.e2e.raw_client import NEWEST, Message, at, text
from tests.program import PATIENCE, PROXY

HELLO: Message = {
    "protocolVersion": NEWEST,
    "capabilities": {},
    "clientInfo": {"name": "cat", "version": "1"},
}


def message(number: int, method: str, params: Message) -> Message:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def calls(*given: tuple[str, Mapping[str, Json]]) -> list[Message]:
    return [
        message(number, "tools/call", {"name": name, "arguments": dict(arguments)})
        for number, (name, arguments) in enumerate(given, 1)
    ]


def answers(
    installation: Installation, messages: Sequence[Message], **variables: str
) -> tuple[dict[Json, Message], int]:
    """What comes out of `cat messages | ironcurtain-proxy`, by id, and the exit code."""
    installation.write_policy()
    hello = [message(0, "initialize", HELLO)]
    lines = b"".join([orjson.dumps(one) + b"\n" for one in (*hello, *messages)])
    environment = {**installation.environment(), **variables}
    done = program.run(PROXY, environment, given=lines)
    found = [orjson.loads(line) for line in done.stdout.splitlines()]
    return {one["id"]: one for one in found if "id" in one}, done.returncode


def test_every_call_that_was_sent_before_the_end_is_answered(scripted: Installation) -> None:
    sent = calls(*[("echo", {"text": f"call {number}"}) for number in range(200)])
    found, code = answers(scripted, [*sent, message(999, "tools/list", {})])
    assert code == 0
    assert found.keys() == {*range(201), 999}
    assert all("result" in one for one in found.values())
    assert len(scripted.outcomes()) == 200


def test_large_answers_are_whole_although_the_agent_has_closed_its_end(
    scripted: Installation,
) -> None:
    found, code = answers(scripted, calls(*[("fill", {"bytes": 8_000_000})] * 4))
    assert code == 0
    sizes = [len(text(at(found[number], "result"))) for number in range(1, 5)]
    assert sizes == [8_000_000] * 4


def test_a_call_that_does_not_end_is_answered_and_recorded_before_the_proxy_ends(
    scripted: Installation,
) -> None:
    config = scripted.root / "config.json"
    config.write_text('{"drainSeconds": 0.5}', encoding="utf-8")
    sent = calls(("hold", {"key": "k"}), ("answer", {"text": "x"}))
    found, code = answers(scripted, sent, IRONCURTAIN_CONFIG=str(config))
    assert code == 0
    assert text(at(found[2], "result")) == "x"
    assert at(found[1], "result", "isError") is True
    assert "may have been carried out" in text(at(found[1], "result"))
    assert sorted(str(one["toolName"]) for one in scripted.outcomes()) == ["answer", "hold"]


def test_a_call_that_the_agent_has_withdrawn_is_not_answered(scripted: Installation) -> None:
    withdrawn: Message = {"requestId": 1, "reason": "enough"}
    sent: list[Message] = [
        *calls(("hold", {"key": "k"})),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": withdrawn},
        message(2, "ping", {}),
    ]
    found, code = answers(scripted, sent)
    assert code == 0
    assert found.keys() == {0, 2}


@pytest.mark.parametrize("end", [b"", b"\n", b'{"jsonrpc":"2.0","id":3'])
def test_an_input_that_ends_in_the_middle_is_answered_up_to_there(
    end: bytes, scripted: Installation
) -> None:
    agent = scripted.start()
    first = agent.start_call("answer", {"text": "x"})
    agent.write(end)
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    assert text(agent.result(first)) == "x"
    assert agent.process.wait(PATIENCE) == 0
