"""What is not JSON-RPC is answered, and nothing else is."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import mcp_types
import orjson
import pytest
from mcp.shared.message import SessionMessage

from ironcurtain_proxy.agent.transport import AgentTransport
from ironcurtain_proxy.jsonrpc.pipes import LineReader, open_reader, open_writer

pytestmark = pytest.mark.anyio

PING = b'{"jsonrpc":"2.0","id":99,"method":"ping"}\n'


@asynccontextmanager
async def connection(
    max_line: int = 1 << 20,
) -> AsyncIterator[tuple[AgentTransport, int, LineReader]]:
    """A transport, where to write what it reads, and what it writes."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    transport = AgentTransport(
        await open_reader(to_read, max_line=max_line), await open_writer(from_write)
    )
    answers = await open_reader(from_read)
    try:
        yield transport, to_write, answers
    finally:
        os.close(to_write)
        await transport.reader.aclose()
        await transport.writer.aclose()
        answers.close()


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        pytest.param(b"this is not json", -32700, None, id="not JSON"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"ping"', -32700, 7, id="half an object"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', -32700, 7, id="not UTF-8"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":NaN}}',
            -32700,
            7,
            id="not a number",
        ),
        pytest.param(b"[]", -32600, None, id="a batch"),
        pytest.param(b"null", -32600, None, id="null"),
        pytest.param(b'{"id":7,"method":"ping"}', -32600, 7, id="no version"),
        pytest.param(b'{"jsonrpc":"2.0","id":7}', -32600, 7, id="neither request nor answer"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7, id="method is no string"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"x","params":[1]}', -32600, 7, id="list"),
        pytest.param(b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600, None, id="id is true"),
        pytest.param(b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600, None, id="id is null"),
        pytest.param(b'{"jsonrpc":"2.0","id":{},"method":"x"}', -32600, None, id="id is an object"),
    ],
)
async def test_what_is_no_message_gets_an_error_and_the_next_one_is_read(
    line: bytes, code: int, request_id: int | None
) -> None:
    with anyio.fail_after(5):
        async with connection() as (transport, to_write, answers):
            os.write(to_write, line + b"\n" + PING)
            message = await anext(transport.reader)
            assert isinstance(message.message, mcp_types.JSONRPCRequest)
            assert message.message.id == 99
            answer = await answers.receive()
            assert isinstance(answer, bytes)
            error = orjson.loads(answer)
            assert (error["error"]["code"], error["id"]) == (code, request_id)


async def test_a_message_over_the_cap_is_refused_with_its_id() -> None:
    big = b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"a":"' + b"y" * 5000 + b'"}}\n'
    with anyio.fail_after(5):
        async with connection(max_line=1000) as (transport, to_write, answers):
            os.write(to_write, big + PING)
            await anext(transport.reader)
            answer = await answers.receive()
            assert isinstance(answer, bytes)
            assert orjson.loads(answer)["id"] == 5
            assert orjson.loads(answer)["error"]["code"] == -32600


async def test_answers_to_nothing_are_dropped_in_silence() -> None:
    with anyio.fail_after(5):
        async with connection() as (transport, to_write, answers):
            os.write(to_write, b'{"jsonrpc":"2.0","id":1,"result":{}}\n' + PING)
            await anext(transport.reader)
            await transport.notify("notifications/x", None)
            assert await answers.receive() == b'{"jsonrpc":"2.0","method":"notifications/x"}'


async def test_a_result_leaves_as_it_is() -> None:
    result = {"z": 1, "a": [{"b": None}], "big": 123456789012345678901234567890}
    with anyio.fail_after(5):
        async with connection() as (transport, _, answers):
            response = mcp_types.JSONRPCResponse(jsonrpc="2.0", id="i", result=result)
            await transport.writer.send(SessionMessage(response))
            answer = await answers.receive()
            assert isinstance(answer, bytes)
            assert answer.endswith(
                b'"result":{"z":1,"a":[{"b":null}],"big":123456789012345678901234567890}}'
            )


async def send_for_ever(transport: AgentTransport) -> None:
    response = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})
    while True:
        await transport.writer.send(SessionMessage(response))
        await anyio.lowlevel.checkpoint()


async def test_an_agent_that_has_gone_is_noticed_and_does_no_harm() -> None:
    with anyio.fail_after(5):
        async with connection() as (transport, _, answers):
            answers.close()
            with pytest.raises(anyio.BrokenResourceError):
                await send_for_ever(transport)
            await transport.notify("notifications/x", None)
