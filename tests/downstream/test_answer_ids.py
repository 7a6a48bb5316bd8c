"""Answers whose id is not written as the proxy wrote it, and answers in a batch."""

import dataclasses
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.errors import CallTimedOutError, DownstreamError
from ironcurtain_proxy.model.json import Json
from tests.downstream.scripted_servers import OPTIONS, a_call, running, text_of

pytestmark = pytest.mark.anyio

RESULT = '"result":{"content":[{"type":"text","text":"%s"}]}'


@pytest.mark.parametrize("text", ["short", "x" * 2_000_000], ids=["short", "long"])
async def test_an_answer_to_13_0_answers_13(text: str) -> None:
    line = '{"jsonrpc":"2.0","id":ID.0,%s}\n' % (RESULT % text)
    async with running() as servers:
        assert await text_of(servers, "raw", {"bytes": line}) == text


@pytest.mark.parametrize("given", ["ID.0", "ID"])
@pytest.mark.parametrize("member", [RESULT % "x", '"error":{"code":1,"message":"no"}'])
async def test_an_answer_in_a_batch_is_an_error_at_once(given: str, member: str) -> None:
    note = '{"method":"notifications/message","params":{}}'
    batch = f'[1,{note},{{"id":99,{member}}},{{"id":{given},{member}}}]\n'
    async with running() as servers:
        with anyio.fail_after(20), pytest.raises(DownstreamError, match="in a batch, which is not"):
            await servers.forward(a_call("raw", {"bytes": batch}))
        assert await text_of(servers, "echo", {"text": "on"}) == "on"


async def test_a_request_of_the_server_in_a_batch_ends_no_call() -> None:
    given: dict[str, Json] = {"bytes": '[{"id":ID,"method":"ping"}]\n', "answer": True}
    async with running() as servers:
        assert await text_of(servers, "raw", given) == "after"


@pytest.mark.parametrize("written", ["ID.5", '"ID"', "null", "true", "[ID]", "1e300"])
async def test_an_answer_with_another_id_is_noted_and_answers_nothing(
    written: str, tmp_path: Path
) -> None:
    log = tmp_path / "session.log"
    options = dataclasses.replace(OPTIONS, session_log=log, call_timeout=0.2)
    async with running(options=options) as servers:
        with anyio.fail_after(20), pytest.raises(CallTimedOutError):
            await servers.forward(a_call("raw", {"bytes": f'{{"id":{written},{RESULT % "x"}}}\n'}))
    assert "[one] (proxy) dropped an answer " in log.read_text("utf-8")
