"""What the agent's end makes of what is not MCP: an error that says so, and nothing more."""

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, at, text
from tests.tables import table

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        pytest.param(b"hello", PARSE_ERROR, None, id="no JSON"),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":"ping"', PARSE_ERROR, "a", id="cut off"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":"b","method":"ping","params":{"x":"\xff\xfe"}}',
            PARSE_ERROR,
            "b",
            id="not UTF-8",
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":"c","method":"ping","params":{"x":NaN}}',
            PARSE_ERROR,
            "c",
            id="not a number",
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":"s","method":"ping","params":{"x":"\\ud800"}}',
            PARSE_ERROR,
            "s",
            id="half a surrogate pair",
        ),
        pytest.param(b"[" * 100_000, PARSE_ERROR, None, id="nested without end"),
        pytest.param(b"[]", INVALID_REQUEST, None, id="a batch"),
        pytest.param(b"17", INVALID_REQUEST, None, id="a number"),
        pytest.param(b'{"id":"d","method":"ping"}', INVALID_REQUEST, "d", id="no version"),
        pytest.param(b'{"jsonrpc":"2.0","id":"e","method":5}', INVALID_REQUEST, "e", id="method 5"),
        pytest.param(b'{"jsonrpc":"2.0","id":"f"}', INVALID_REQUEST, "f", id="no method"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":"g","method":"ping","params":[]}',
            INVALID_REQUEST,
            "g",
            id="params in a row",
        ),
    ],
)
def test_what_is_no_request_is_answered_as_such(
    line: bytes, code: int, request_id: Json, agent: RawClient
) -> None:
    before = len(agent.arrived)
    agent.write(line + b"\n")
    answer = agent.until(lambda one: one in agent.arrived[before:] and "error" in one, "error")
    assert at(answer, "error", "code") == code
    assert answer["id"] == request_id
    assert_no_internals(agent)
    assert text(agent.call("answer", {"text": "still here"})) == "still here"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 5},
        {"name": None, "arguments": {}},
        {"name": "answer", "arguments": []},
        {"name": "answer", "arguments": "text"},
    ],
    ids=["nothing", "a number for a name", "no name", "a row of arguments", "text for arguments"],
)
def test_a_call_of_the_wrong_shape_is_invalid_and_reaches_nobody(
    params: dict[str, Json], agent: RawClient, shared: Installation
) -> None:
    before = len(shared.received())
    answer = agent.answer(agent.request("tools/call", params))
    assert at(answer, "error", "code") == INVALID_PARAMS
    assert len(shared.received()) == before
    assert_no_internals(agent)


@pytest.mark.parametrize(
    ("method", "params"),
    table("e2e/protocol.a_method_that_is_not_decided_is_not", list[tuple[str, dict[str, str]]]),
)
def test_a_method_that_is_not_decided_is_not_offered(
    method: str, params: dict[str, Json], agent: RawClient
) -> None:
    answer = agent.answer(agent.request(method, params))
    assert at(answer, "error", "code") == METHOD_NOT_FOUND


def test_nothing_is_served_before_the_handshake_which_may_be_in_an_old_version(
    scripted: Installation,
) -> None:
    agent = scripted.launch()
    early = agent.answer(agent.start_call("answer", {"text": "early"}))
    assert "error" in early
    assert scripted.received() == []
    assert agent.initialize("2024-11-05")["protocolVersion"] == "2024-11-05"
    assert text(agent.call("answer", {"text": "now"})) == "now"


def test_a_client_that_asks_for_discovery_first_is_told_to_shake_hands(
    scripted: Installation,
) -> None:
    agent = scripted.launch()
    answer = agent.answer(agent.request("server/discover", {}))
    assert "error" in answer
    agent.initialize()
    assert text(agent.call("answer", {"text": "hello"})) == "hello"


@pytest.mark.parametrize("has_gone", [False, True])
def test_what_no_server_has_is_not_declared_and_a_missing_server_is_told_with_its_reason(
    has_gone: bool, scripted: Installation
) -> None:
    if has_gone:
        scripted.add_server("gone", ["no-such-command-here"])
    said = scripted.launch().initialize()
    declared = at(said, "capabilities")
    assert isinstance(declared, dict)
    # What a server has that did not start is not known.
    assert ("prompts" in declared, "completions" in declared) == (has_gone, has_gone)
    assert "tools" in declared
    told = str(at(said, "instructions"))
    assert ("The server gone did not start" in told) is has_gone
    assert ("no-such-command-here. Tell the user." in told) is has_gone


def test_a_line_beyond_the_cap_is_refused_without_ending_the_session(
    scripted: Installation,
) -> None:
    agent = scripted.start(MAX_MESSAGE_BYTES="65536")
    request = agent.start_call("answer", {"text": "x" * 100_000})
    assert "error" in agent.answer(request)
    assert scripted.received() == []
    assert text(agent.call("answer", {"text": "small"})) == "small"


def assert_no_internals(agent: RawClient) -> None:
    """No exception, module or file of ours is in what the agent was sent."""
    sent = b"\n".join(agent.lines)
    for word in (b"Traceback", b"ironcurtain_proxy", b".py", b"Error:", b"pydantic", b"orjson"):
        assert word not in sent
