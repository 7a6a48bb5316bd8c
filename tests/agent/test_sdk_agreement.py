"""Whatever an agent sends, the SDK's own server and ours answer alike, but for what is meant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.agent.operations import LISTS, REQUESTS
from ironcurtain_proxy.agent.rounds import TASK_METHODS
from ironcurtain_proxy.model.values import Json
from tests.agent.connected import HELLO, Wire, an_agent
from tests.agent.sdk_server import the_sdk
from tests.examples import examples

Outcome: TypeAlias = list[tuple[Json, Json]]
"""The answers to one line: each id, and the result or the number of the error."""

SERVED: Final = ("tools/call", "tools/list", "logging/setLevel")
BESIDES: Final = frozenset({*LISTS, *REQUESTS, *TASK_METHODS, "subscriptions/listen"})
"""Methods for which the SDK's server here has no handler."""
TOOL: Final[dict[str, Json]] = {"name": "echo", "inputSchema": {"type": "object"}}


@dataclass(frozen=True)
class Sent:
    """One line, and what it was sent to."""

    line: bytes
    is_ready: bool
    """Whether the agent has been introduced by then."""

    @property
    def message(self) -> dict[str, Json]:
        try:
            found = orjson.loads(self.line)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Difference:
    """One that is meant."""

    why: str
    applies: Callable[[Sent], bool]
    theirs: Callable[[Outcome], bool]
    ours: Callable[[Outcome], bool]
    example: Sent


def silent(outcome: Outcome) -> bool:
    return not outcome


def told(*codes: int) -> Callable[[Outcome], bool]:
    return lambda outcome: len(outcome) == 1 and outcome[0][1] in codes


def served(outcome: Outcome) -> bool:
    return len(outcome) == 1 and isinstance(outcome[0][1], dict)


def is_request(sent: Sent) -> bool:
    request_id = sent.message.get("id")
    return (
        sent.message.get("jsonrpc") == "2.0"
        and isinstance(request_id, int | str)
        and not isinstance(request_id, bool)
        and isinstance(sent.message.get("method"), str)
        and isinstance(sent.message.get("params"), dict | None)
    )


def method(sent: Sent) -> Json:
    return sent.message.get("method")


def ask(name: str, params: Json, *, is_ready: bool = True) -> Sent:
    message: Json = {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
    return Sent(orjson.dumps(message), is_ready)


DIFFERENCES: Final = (
    Difference(
        "what is no JSON-RPC message is answered, where the SDK is silent and the agent waits",
        lambda sent: not is_request(sent),
        silent,
        told(-32700, -32600),
        Sent(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', is_ready=True),
    ),
    Difference(
        "a request with a fractional id is answered, where the SDK is silent and the agent waits",
        lambda sent: isinstance(sent.message.get("id"), float),
        silent,
        lambda outcome: len(outcome) == 1,
        Sent(b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', is_ready=True),
    ),
    Difference(
        "what the SDK's server here does not offer is offered",
        lambda sent: is_request(sent) and method(sent) in BESIDES,
        told(-32601, -32602),
        lambda outcome: served(outcome) or told(-32600, -32602)(outcome),
        ask("prompts/list", {}),
    ),
    Difference(
        "what is not read is not checked: metadata, and what is inside of declared capabilities",
        lambda sent: is_request(sent) and method(sent) in {*SERVED, "ping", "initialize"},
        told(-32602),
        served,
        ask("ping", {"_meta": 5}),
    ),
)


async def outcome(agent: Wire, line: bytes, turn: str) -> Outcome:
    """What comes back for one line, until pings behind it are answered."""
    before = len(agent.arrived)
    agent.write(line + b"\n")
    for mark in (f"{turn}a", f"{turn}b"):
        agent.send(id=mark, method="ping")
        await agent.answer(mark)
    answers = [one for one in agent.arrived[before:] if not str(one.get("id")).startswith(turn)]
    return [(one.get("id"), _said(one)) for one in answers]


def _said(answer: dict[str, Json]) -> Json:
    error, result = answer.get("error"), answer.get("result")
    if isinstance(error, dict):
        return error["code"]
    assert isinstance(result, dict)
    # What a call results in is its server's; here it tells only that it was carried out.
    if "protocolVersion" in result:
        # What is offered differs, because the SDK's server here has tools alone.
        return {name: value for name, value in result.items() if name != "capabilities"}
    return {"content": result["content"]} if "content" in result else result


async def both(lines: Sequence[bytes]) -> list[tuple[Sent, Outcome, Outcome]]:
    """Each line with what the SDK and what we answer to it."""
    found = []
    is_ready = False
    async with the_sdk() as sdk, an_agent() as agent:
        agent.calls.tools = [TOOL]
        for number, line in enumerate(lines):
            sent = Sent(line, is_ready)
            turn = f"mark {number} "
            theirs, ours = await outcome(sdk, line, turn), await outcome(agent, line, turn)
            found.append((sent, theirs, ours))
            is_ready = is_ready or (method(sent) == "initialize" and served(ours))
    return found


# --- what agents send

IDS: Final[tuple[Json, ...]] = (0, 1, -5, 2**53, "", "a", "1", None, 1.5, True, [], {})
NO_METHODS: Final[tuple[Json, ...]] = (None, 5, ["ping"])
NO_VERSIONS: Final[tuple[Json, ...]] = ("1.0", 2.0, None, "2")
PARAMS: Final[tuple[Json, ...]] = (
    HELLO,
    {**HELLO, "protocolVersion": "2024-11-05"},
    {**HELLO, "protocolVersion": "1999-01-01", "extra": 1},
    {**HELLO, "protocolVersion": 5},
    {**HELLO, "capabilities": {"roots": {"listChanged": True}, "x": {}, "elicitation": {}}},
    {**HELLO, "capabilities": {"roots": 5}},
    {**HELLO, "clientInfo": {"name": "a"}},
    {"name": "echo"},
    {"name": "echo", "arguments": {"a": 1}, "_meta": {"progressToken": "p"}},
    {"name": "echo", "arguments": None},
    {"name": "echo", "arguments": []},
    {"name": 5},
    {"cursor": "2"},
    {"cursor": None},
    {"level": "error"},
    {"level": "loud"},
    {"_meta": {}},
    {"_meta": 5},
    {"uri": "file:///x"},
    {"requestId": 7},
    {},
    None,
    [],
    "text",
)
METHODS: Final = (
    *("initialize", "ping", *SERVED, *SERVED),
    *("resources/list", "resources/read", "prompts/get", "completion/complete", "tasks/get"),
    *("notifications/initialized", "notifications/cancelled", "notifications/progress"),
    *("notifications/roots/list_changed", "no/such", "", "roots/list", "subscriptions/listen"),
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """One that may lack or have anything."""
    message: dict[str, Json] = {"jsonrpc": "2.0", "id": draw(st.integers(0, 9))}
    message["method"] = draw(st.sampled_from(METHODS))
    if draw(st.booleans()):
        message["params"] = draw(st.sampled_from(PARAMS))
    change = draw(st.sampled_from(["", "", "", "id", "less", "method", "version", "answer"]))
    match change:
        case "id":
            # The SDK takes no id for the null of a notification that ends its greeting; we do not.
            is_end = message["method"] == "notifications/initialized"
            ids = [one for one in IDS if one is not None or not is_end]
            message["id"] = draw(st.sampled_from(ids))
        case "less":
            del message[draw(st.sampled_from(sorted(message)))]
        case "method":
            message["method"] = draw(st.sampled_from(NO_METHODS))
        case "version":
            message["jsonrpc"] = draw(st.sampled_from(NO_VERSIONS))
        case "answer":
            message["result"] = {}
            del message["method"]
        case _:
            pass
    return orjson.dumps(message)


HELLO_LINE: Final = ask("initialize", HELLO).line
BROKEN: Final = (
    b"nothing",
    b"[]",
    b"7",
    b'"ping"',
    b'{"jsonrpc":"2.0","id":1,"method":"ping"',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}]',
    b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x","method":"ping"}',
    b"[" * 3000,
)
LINES = st.one_of(messages(), messages(), messages(), st.sampled_from(BROKEN))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans(), st.lists(LINES, min_size=1, max_size=12))
def test_the_sdks_server_and_ours_answer_alike(introduced: bool, lines: list[bytes]) -> None:
    given_lines = [HELLO_LINE, *lines] if introduced else lines
    for sent, theirs, ours in anyio.run(both, given_lines):
        assert ours == theirs or any(
            one.applies(sent) and one.theirs(theirs) and one.ours(ours) for one in DIFFERENCES
        ), f"{sent}: the SDK {theirs}, we {ours}"


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.why)
def test_each_difference_that_is_meant_is_one(difference: Difference) -> None:
    example = difference.example
    lines = [HELLO_LINE, example.line] if example.is_ready else [example.line]
    sent, theirs, ours = anyio.run(both, lines)[-1]
    assert sent == example
    assert difference.applies(sent)
    assert difference.theirs(theirs)
    assert difference.ours(ours)


@pytest.mark.parametrize("line", [*BROKEN, *(ask(name, {}).line for name in METHODS)])
def test_one_line_does_not_keep_the_next_from_being_answered(line: bytes) -> None:
    for _, theirs, ours in anyio.run(both, [HELLO_LINE, line, HELLO_LINE])[::2]:
        assert ours == theirs
        assert len(ours) == 1
