"""The memory of large calls and answers is bounded in their sum."""

import threading

import orjson
import pytest

from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, at, text
from tests.program import FRESH

SIZE = 4 << 20
COUNT = 24
LIMIT = SIZE * 5 // 4


@pytest.fixture
def narrow(scripted: Installation) -> RawClient:
    """A proxy that takes messages a quarter larger than these, and half as much again of calls."""
    scripted.command = FRESH
    return scripted.start(MAX_MESSAGE_BYTES=str(LIMIT))


def peak(agent: RawClient) -> int:
    """The most memory that the proxy has ever had, bytes."""
    with open(f"/proc/{agent.process.pid}/status", encoding="ascii") as file:  # noqa: PTH123
        (line,) = [one for one in file if one.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def test_many_large_calls_at_once_cost_no_more_memory_than_a_few(narrow: RawClient) -> None:
    narrow.call("answer", {"text": "x"})
    before = peak(narrow)
    line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"answer","arguments":'
    calls = [
        line % (1000 + number) + orjson.dumps({"text": f"{number}" + "x" * SIZE}) + b"}}\n"
        for number in range(COUNT)
    ]
    sender = threading.Thread(target=narrow.write, args=(b"".join(calls),))
    sender.start()
    for number in range(COUNT):
        said = text(at(narrow.answer(1000 + number), "result"))
        assert len(said) > SIZE or "too many large calls" in said
    sender.join()
    assert peak(narrow) - before < COUNT * SIZE


def test_large_answers_that_the_agent_does_not_read_wait_at_their_server(narrow: RawClient) -> None:
    narrow.call("answer", {"text": "x"})
    before = peak(narrow)
    calls = [narrow.start_call("fill", {"bytes": SIZE + turn}) for turn in range(COUNT)]
    for turn, call in enumerate(calls):
        assert len(text(narrow.result(call))) == SIZE + turn
    assert peak(narrow) - before < COUNT * SIZE


def test_a_call_that_finds_no_room_is_refused_and_recorded(
    scripted: Installation, narrow: RawClient
) -> None:
    held = [narrow.start_call("hold", {"key": f"{number}" + "x" * SIZE}) for number in range(2)]
    refused = text(narrow.result(held[1]))
    assert refused == "Error: too many large calls are under way at once"
    assert scripted.last_decision() == ("deny", "too-large-together")
    assert text(narrow.call("answer", {"text": "small"})) == "small"
    assert len(scripted.received()) == 2
