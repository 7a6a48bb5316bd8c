"""Answers whose id is not written as the proxy wrote it, and answers in a batch."""

from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.errors import CallTimedOutError, DownstreamError
from ironcurtain_proxy.model.values import Json
from tests.downstream.scripted_servers import OPTIONS, a_call, running, scripted, text_of
from tests.downstream.test_modern import Around, used
from tests.program import until

pytestmark = pytest.mark.anyio

RESULT = '"result":{"content":[{"type":"text","text":"%s"}]}'


@pytest.mark.parametrize("text", ["short", "x" * 2_000_000], ids=["short", "long"])
@pytest.mark.parametrize("written", ["ID.0", '"ID"'])
async def test_a_number_or_text_that_names_our_id_answers_it(text: str, written: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":{written},{RESULT % text}}}\n'
    async with running() as servers:
        assert await text_of(servers, "raw", {"bytes": line}) == text


@pytest.mark.parametrize("given", ["ID.0", "ID"])
@pytest.mark.parametrize("member", [RESULT % "x", '"error":{"code":1,"message":"no"}'])
async def test_an_answer_in_a_batch_is_an_error_at_once(given: str, member: str) -> None:
    note = '{"method":"notifications/message","params":{}}'
    batch = f'[1,{note},{{"id":99,{member}}},{{"id":{given},{member}}}]\n'
    async with running() as servers:
        with pytest.raises(DownstreamError, match="in a batch, which is not"):
            await servers.forward(a_call("raw", {"bytes": batch}))
        assert await text_of(servers, "echo", {"text": "on"}) == "on"


async def test_a_request_of_the_server_in_a_batch_ends_no_call() -> None:
    given: dict[str, Json] = {"bytes": '[{"id":ID,"method":"ping"}]\n', "answer": True}
    async with running() as servers:
        assert await text_of(servers, "raw", given) == "after"


REPLACED = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\ud83d", f"a{REPLACED}"),
        (r"\ude00b", f"{REPLACED}b"),
        (r"\ud83d\ud83d\ude00", f"{REPLACED}\U0001f600"),
        (r"\\ud83d \uDE00", rf"\ud83d {REPLACED}"),
        ("caf\xe9", f"caf{REPLACED}"),
        ("\xff" + r"\ud83d", f"{REPLACED}{REPLACED}"),
    ],
)
async def test_half_a_character_is_lost_and_nothing_else(written: str, read: str) -> None:
    line = f'{{"id":ID,{RESULT % written}}}\n'
    async with running() as servers:
        assert await text_of(servers, "raw", {"bytes": line}) == read


async def test_a_byte_order_mark_before_an_answer_is_left_out() -> None:
    line = "\xef\xbb\xbf" + '{"id":ID,%s}\n' % (RESULT % "x")
    async with running() as servers:
        assert await text_of(servers, "raw", {"bytes": line}) == "x"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ('{"structuredContent":{"ratio":NaN}}', "result.structuredContent.ratio is NaN"),
        ('{"content":[{"type":"text"},{"x":-Infinity}]}', r"result.content\[1\].x is -Infinity"),
        ('{"a b":1e400}', "result.… is 1e400"),
        ('{"n":%s}' % ("7" * 5000), "result.n is a number of 5000 digits"),
        ('{"text":"\xe9","n":NaN}', "result.n is NaN"),
        ("[1]", "its result is no object"),
        ('{"n":', "not JSON"),
    ],
)
async def test_an_answer_that_cannot_be_read_ends_with_the_reason(result: str, words: str) -> None:
    async with running() as servers:
        with pytest.raises(DownstreamError, match=words):
            await servers.forward(a_call("raw", {"bytes": f'{{"id":ID,"result":{result}}}\n'}))


async def test_an_answer_in_whose_middle_its_server_ended_is_said_to_be_cut_off() -> None:
    half = '{"id":ID,"result":{"content":[{"type":"text","text":"do'
    async with running() as servers:
        with pytest.raises(DownstreamError, match="cut off in the middle"):
            await servers.forward(a_call("raw", {"bytes": half, "exit": True}))


@pytest.mark.parametrize("error", ['"it broke"', "5", '["a"]'])
async def test_an_error_that_is_no_object_keeps_its_text(error: str) -> None:
    async with running() as servers:
        answer = await servers.forward(a_call("raw", {"bytes": f'{{"id":ID,"error":{error}}}\n'}))
    assert answer.error == {"message": orjson.loads(error)}


@pytest.mark.parametrize("given", ["1.5", "7.0", "-0.25"])
async def test_a_request_of_the_server_with_a_fractional_id_is_answered(given: str) -> None:
    ping = f'{{"jsonrpc":"2.0","id":{given},"method":"ping"}}\n'
    async with running() as servers:
        await servers.forward(a_call("raw", {"bytes": ping, "answer": True}))
        # The answer was sent before this call.
        said = orjson.loads(await text_of(servers, "cancelled"))
    assert [one["id"] for one in said] == [float(given)]


async def test_a_question_whose_answer_could_name_no_id_is_asked_of_nobody() -> None:
    around, said = Around(), '"method":"elicitation/create","params":{}'
    lines = [f'{{"jsonrpc":"2.0","id":{one},{said}}}\n' for one in ("null", "{}", "[1]", "true", 7)]
    async with used(scripted(), around) as servers:
        await servers.forward(a_call("raw", {"bytes": "".join(lines), "answer": True}))
        await until(lambda: len(around.asked) > 0)
    assert len(around.asked) == 1


@pytest.mark.parametrize(
    "written", ["ID.5", '"0ID"', '"ID.0"', '" ID"', "null", "true", "[ID]", "1e300"]
)
async def test_an_answer_with_another_id_is_noted_and_answers_nothing(
    written: str, tmp_path: Path
) -> None:
    log = tmp_path / "session.log"
    options = replace(OPTIONS, session_log=log, call_timeout=0.2)
    async with running(options=options) as servers:
        with pytest.raises(CallTimedOutError):
            await servers.forward(a_call("raw", {"bytes": f'{{"id":{written},{RESULT % "x"}}}\n'}))
        await until(lambda: "[one] (proxy) dropped an answer " in log.read_text("utf-8"))
