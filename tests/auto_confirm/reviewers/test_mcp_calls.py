"""The dialect of an MCP server that reviews: the handshake, the calls, what a result comes to."""

from collections.abc import Callable, Mapping

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.briefing import view_of
from ironcurtain_proxy.auto_confirm.engine.evaluation import UNDECIDED
from ironcurtain_proxy.auto_confirm.reviewers.json_lines import (
    MAX_ANSWER,
    MAX_LISTING,
    MAX_PAGES,
    NOTHING_OPEN,
    PROTOCOL_VERSION,
    TOO_LONG,
    CallDialect,
    NoAnswer,
    ParsedOutput,
    ProcessAnswer,
    review_fields,
)
from ironcurtain_proxy.auto_confirm.reviewers.process import redact
from ironcurtain_proxy.downstream import eras
from ironcurtain_proxy.jsonrpc.pipes import Oversize
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.values import Json
from tests.mailbox.mailbox_fixture import escalation

TOKEN = "the-token"  # noqa: S105  nobody else's
BRIEFING = replace(UNDECIDED, operation="delete", risk=80)
TOOLS: Json = {"tools": [{"name": "other"}, {"name": "review"}]}


def line(request_id: Json, result: Json) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "result": result})


def said(lines: bytes) -> list[dict[str, Json]]:
    return [orjson.loads(one) for one in lines.splitlines()]


def begun() -> CallDialect:
    """Greeted, and asked for its tools in request 2."""
    dialect = CallDialect(TOKEN, "review")
    dialect.hello()
    dialect.hear(line(1, {"protocolVersion": "2024-11-05", "capabilities": {}}))
    return dialect


def opened() -> CallDialect:
    dialect = begun()
    dialect.hear(line(2, TOOLS))
    assert dialect.is_open
    return dialect


def asked(dialect: CallDialect, question: Escalation) -> int:
    """The id of the call."""
    (call,) = said(dialect.question(question, BRIEFING, view_of(question, BRIEFING, redact)))
    assert isinstance(call["id"], int)
    return call["id"]


def fields(question: Escalation, **changes: Json) -> dict[str, Json]:
    return {
        "id": question.id,
        "argumentsHash": question.fingerprint,
        "decision": "approve",
        "reviewer": "model-7",
        "token": TOKEN,
        "note": "seen",
        **changes,
    }


def as_text(answer: Mapping[str, Json]) -> Json:
    return {"content": [{"type": "text", "text": orjson.dumps(dict(answer)).decode()}]}


def approval(question: Escalation) -> ProcessAnswer:
    return ProcessAnswer(
        id=question.id,
        decision="approve",
        arguments_hash=question.fingerprint,
        reviewer="model-7",
        note="seen",
    )


# --- the handshake -------------------------------------------------------------------------------


def test_it_is_greeted_as_the_servers_behind_us_are_and_offered_nothing() -> None:
    (hello,) = said(CallDialect(TOKEN, "review").hello())
    params = hello["params"]
    assert isinstance(params, dict)
    assert hello["method"] == "initialize"
    assert params["protocolVersion"] == PROTOCOL_VERSION == eras.PROTOCOL_VERSION
    assert params["capabilities"] == {}


def test_it_is_open_once_it_has_shown_its_tool_and_not_before() -> None:
    dialect = CallDialect(TOKEN, "review")
    dialect.hello()
    assert not dialect.is_open
    heard = dialect.hear(line(1, {"protocolVersion": "1999-01-01"}))
    methods = [message["method"] for message in said(heard.reply)]
    assert methods == ["notifications/initialized", "tools/list"]
    assert not dialect.is_open
    assert dialect.hear(line(2, TOOLS)) == ParsedOutput()
    assert dialect.is_open


def test_a_tool_on_a_later_page_is_found() -> None:
    dialect = begun()
    heard = dialect.hear(line(2, {"tools": [{"name": "x"}], "nextCursor": "\U0001f600"}))
    (page,) = said(heard.reply)
    assert (page["id"], page["params"]) == (3, {"cursor": "\U0001f600"})
    # A cursor is the process's own affair, even if it is no text.
    heard = dialect.hear(b'{"id":3,"result":{"tools":[],"nextCursor":"\\ud800"}}')
    assert b'{"cursor":"\\ud800"}' in heard.reply
    dialect.hear(line(4, TOOLS))
    assert dialect.is_open


def test_pages_without_end_come_to_an_end() -> None:
    dialect = begun()
    answers = [dialect.hear(line(n + 2, {"nextCursor": "more"})) for n in range(MAX_PAGES)]
    assert [bool(heard.failed) for heard in answers] == [False] * (MAX_PAGES - 1) + [True]


ERROR = b'{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"the agent\'s words"}}'
FAILURES: dict[str, tuple[bytes, str]] = {
    "another tool": (line(2, {"tools": [{"name": "Review"}]}), "it offers no tool 'review'"),
    "no tools": (line(2, {}), "it offers no tool 'review'"),
    "tools that are none": (line(2, {"tools": ["review", 1]}), "it offers no tool 'review'"),
    "a cursor that is none": (line(2, {"nextCursor": 7}), "it offers no tool 'review'"),
    "an error": (ERROR, "it refuses tools/list"),
    "both": (ERROR[:-1] + b',"result":{"tools":[]}}', "it refuses tools/list"),
    "a text": (line(2, "review"), "it refuses tools/list"),
    "a key twice": (b'{"id":2,"result":{},"result":{}}', "its answer to tools/list cannot be read"),
    "too long": (line(2, "x" * MAX_LISTING), "its answer to tools/list cannot be read"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_who_does_not_show_the_tool_cannot_be_asked_and_why_is_said(name: str) -> None:
    dialect = begun()
    sent, words = FAILURES[name]
    heard = dialect.hear(sent)
    assert heard.failed.startswith(words)
    assert "agent" not in heard.failed
    assert not dialect.is_open


def test_what_answers_no_step_of_the_handshake_takes_none() -> None:
    dialect = begun()
    strange: list[Json] = [1, 3, "2", 2.0, True, None, [2]]
    for request_id in strange:
        assert dialect.hear(line(request_id, TOOLS)) == ParsedOutput(answer=NoAnswer(NOTHING_OPEN))
    assert not dialect.is_open


def test_a_long_list_of_tools_is_read() -> None:
    dialect = begun()
    tools: Json = [{"name": "x", "description": "y" * (2 * MAX_ANSWER)}, {"name": "review"}]
    dialect.hear(line(2, {"tools": tools}))
    assert dialect.is_open


# --- the calls -----------------------------------------------------------------------------------


@pytest.mark.requirement("B-99", "B-100")
def test_a_call_says_what_a_line_says() -> None:
    dialect, question = opened(), escalation(arguments={"path": "/etc/hosts"})
    view = view_of(question, BRIEFING, redact)
    sent = dialect.question(question, BRIEFING, view)
    assert sent.count(b"\n") == 1
    assert orjson.loads(sent) == {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "review", "arguments": review_fields(question, BRIEFING, view)},
    }
    assert TOKEN.encode() not in sent


WAYS: dict[str, Json] = {
    "an object": {"structuredContent": "the answer", "content": []},
    "a text": {"content": "the answer"},
    "both": {"structuredContent": "the answer", "content": [{"type": "text", "text": "{}"}]},
    "no error": {"structuredContent": "the answer", "isError": False},
    "text that was made an object": {
        "structuredContent": {"result": "{}"},
        "content": "the answer",
    },
    "null beside text": {"structuredContent": None, "content": "the answer"},
}


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_the_object_of_a_result_or_its_one_text(way: str) -> None:
    dialect, question = opened(), escalation()
    shape = WAYS[way]
    assert isinstance(shape, dict)
    result = dict(shape)
    if result.get("structuredContent") == "the answer":
        result["structuredContent"] = fields(question)
    if result.get("content") == "the answer":
        text = as_text(fields(question))
        assert isinstance(text, dict)
        result |= text
    heard = dialect.hear(line(asked(dialect, question), result))
    assert heard == ParsedOutput(answer=approval(question), over=question.id)


def results(question: Escalation) -> dict[str, bytes]:
    """What a call may come to that settles nothing, by what is wrong."""
    good = orjson.dumps(fields(question)).decode()
    twice = good[:-1] + ',"decision":"approve"}'
    blocks: dict[str, Json] = {
        "no text": [],
        "two texts": [{"type": "text", "text": good}] * 2,
        "a picture": [{"type": "image", "text": good}],
        "no block": [good],
        "text that is no text": [{"type": "text", "text": fields(question)}],
        "text that is a list": [{"type": "text", "text": f"[{good}]"}],
        "a key twice in the text": [{"type": "text", "text": twice}],
    }
    made = {name: line(3, {"content": content}) for name, content in blocks.items()}
    wrong: dict[str, dict[str, Json]] = {
        "the wrong token": {"token": TOKEN + "x"},
        "no token": {"token": None},
        "another id": {"id": "other"},
        "another word": {"decision": "approved"},
        "a strange note": {"note": []},
        "no reviewer": {"reviewer": ""},
    }
    for name, change in wrong.items():
        made[name] = line(3, {"structuredContent": fields(question, **change)})
    body = f'"structuredContent":{twice}'.encode()
    return {
        **made,
        "an error": b'{"id":3,"error":{"code":1,"message":"x"}}',
        "an error with a result": b'{"id":3,"error":{},"result":{"structuredContent":%b}}'
        % good.encode(),
        "isError": line(3, {"isError": True, "structuredContent": fields(question)}),
        "a strange isError": line(3, {"isError": 0, "structuredContent": fields(question)}),
        "nothing": b'{"jsonrpc":"2.0","id":3}',
        "a list": line(3, [fields(question)]),
        "a key twice": b'{"jsonrpc":"2.0","id":3,"result":{%b}}' % body,
        "no JSON": b'{"jsonrpc":"2.0","id":3,"result":{',
        "no UTF-8": b'{"jsonrpc":"2.0","id":3,"result":{"a":"\xff"}}',
        "half a pair": b'{"id":3,"result":{"content":[{"type":"text","text":"\\ud800"}]}}',
        "deep": b'{"jsonrpc":"2.0","id":3,"result":' + b"[" * 60_000,
        "long": line(3, {"structuredContent": fields(question, note="x" * MAX_ANSWER)}),
    }


@pytest.mark.requirement("X-8")
@pytest.mark.parametrize("wrong", results(escalation()))
def test_a_result_that_does_not_count_ends_its_call_and_no_other(wrong: str) -> None:
    dialect, question, other = opened(), escalation(), escalation()
    assert (asked(dialect, question), asked(dialect, other)) == (3, 4)
    heard = dialect.hear(results(question)[wrong])
    assert isinstance(heard.answer, NoAnswer)
    assert heard == ParsedOutput(answer=heard.answer, over=question.id)
    # No second try, and the other call is as open as it was.
    again = dialect.hear(line(3, {"structuredContent": fields(question)}))
    assert again == ParsedOutput(answer=NoAnswer(NOTHING_OPEN))
    rest = dialect.hear(line(4, {"structuredContent": fields(other)}))
    assert rest == ParsedOutput(answer=approval(other), over=other.id)


def test_what_is_longer_than_is_kept_ends_its_call_too() -> None:
    dialect, question = opened(), escalation()
    asked(dialect, question)
    kept = Oversize(b'{"jsonrpc":"2.0","id":3,"result":{"x":"', b'aaaa"}}', 10_000_000)
    assert dialect.hear(kept) == ParsedOutput(answer=NoAnswer(TOO_LONG), over=question.id)


@pytest.mark.requirement("X-8", "X-16")
@pytest.mark.parametrize("request_id", [1, 2, 4, "3", 3.0, True, None, [3], {}])
def test_a_result_to_what_is_no_open_call_is_nothing(request_id: Json) -> None:
    dialect, question = opened(), escalation()
    asked(dialect, question)
    heard = dialect.hear(line(request_id, {"structuredContent": fields(question)}))
    assert heard == ParsedOutput(answer=NoAnswer(NOTHING_OPEN))


def test_a_question_that_is_withdrawn_cancels_its_call_and_a_late_result_is_nothing() -> None:
    dialect, question = opened(), escalation()
    call = asked(dialect, question)
    (cancel,) = said(dialect.release(question.id))
    params = cancel["params"]
    assert isinstance(params, dict)
    assert (cancel["method"], params["requestId"]) == ("notifications/cancelled", call)
    assert "id" not in cancel
    late = line(call, {"structuredContent": fields(question)})
    assert dialect.hear(late) == ParsedOutput()
    assert dialect.hear(late) == ParsedOutput(answer=NoAnswer(NOTHING_OPEN))
    assert dialect.release(question.id) == b""


def test_a_call_that_has_had_its_result_is_not_cancelled() -> None:
    dialect, question = opened(), escalation()
    dialect.hear(line(asked(dialect, question), {"structuredContent": fields(question)}))
    assert dialect.release(question.id) == b""


# --- what it says of its own accord --------------------------------------------------------------


@pytest.mark.parametrize("make", [begun, opened], ids=["at the start", "later"])
@pytest.mark.parametrize("request_id", [7, "seven", 3])
def test_a_ping_is_answered_and_every_other_request_refused(
    make: Callable[[], CallDialect], request_id: Json
) -> None:
    dialect = make()
    ping = dialect.hear(orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": "ping"}))
    assert ping.answer is None
    assert said(ping.reply) == [{"jsonrpc": "2.0", "id": request_id, "result": {}}]
    methods: list[Json] = ["sampling/createMessage", "elicitation/create", "roots/list", None, []]
    for method in methods:
        heard = dialect.hear(orjson.dumps({"id": request_id, "method": method}))
        (reply,) = said(heard.reply)
        assert isinstance(heard.answer, NoAnswer)
        assert (reply["id"], heard.over, heard.failed) == (request_id, "", "")
        assert reply["error"] == {"code": -32601, "message": "Method not found"}


def test_a_request_without_an_id_that_can_be_answered_is_not_answered() -> None:
    heard = opened().hear(b'{"id":null,"method":"ping"}')
    assert heard.reply == b""
    assert isinstance(heard.answer, NoAnswer)


def test_notifications_are_nothing() -> None:
    for method in ("notifications/message", "notifications/tools/list_changed", "x"):
        assert opened().hear(orjson.dumps({"method": method, "params": {}})) == ParsedOutput()


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
members = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 5) | values,
        "method": st.sampled_from(["ping", "notifications/x"]) | values,
        "result": st.fixed_dictionaries(
            {}, optional={"content": values, "structuredContent": values, "tools": values}
        )
        | values,
        "error": values,
    },
)


@pytest.mark.requirement("X-8")
@settings(deadline=None)
@given(st.lists(st.binary(max_size=40) | members.map(orjson.dumps), max_size=12))
def test_nothing_without_the_token_is_an_answer(lines: list[bytes]) -> None:
    dialect = opened()
    questions = [escalation(), escalation()]
    open_ones = {str(question.id) for question in questions}
    for question in questions:
        asked(dialect, question)
    for one in lines:
        heard = dialect.hear(one)
        assert not isinstance(heard.answer, ProcessAnswer)
        assert heard.failed == ""
        if heard.over:
            open_ones.remove(heard.over)
    # Whose call has had no result can still be called off.
    assert {bool(dialect.release(identifier)) for identifier in open_ones} <= {True}
