"""What is not JSON-RPC is answered as such, and what is between two messages harms neither."""

import anyio
import anyio.lowlevel
import pytest

from tests.agent.connected import an_agent

pytestmark = pytest.mark.anyio

PING = b'{"jsonrpc":"2.0","id":99,"method":"ping"}\n'


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
async def test_what_is_no_message_gets_an_error_and_a_record_and_the_next_one_is_answered(
    line: bytes, code: int, request_id: int | None
) -> None:
    async with an_agent() as agent:
        agent.write(line + b"\n" + PING)
        assert await agent.error_code(request_id) == code
        assert await agent.answer(99) == {"jsonrpc": "2.0", "id": 99, "result": {}}
        assert len(agent.arrived) == 2
        assert agent.calls.unserved == [("unreadable", "unreadable-message")]


async def test_a_message_over_the_cap_is_refused_with_its_id() -> None:
    big = b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"a":"' + b"y" * 5000 + b'"}}\n'
    async with an_agent(max_line=1000) as agent:
        agent.write(big + PING)
        assert await agent.error_code(5) == -32600
        assert "result" in await agent.answer(99)
        assert agent.calls.unserved == [("unreadable", "unreadable-message")]


async def test_a_call_that_asks_for_no_answer_reaches_nobody_and_is_recorded() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.write(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}\n' + PING)
        assert "result" in await agent.answer(99)
        assert agent.calls.unserved == [("unreadable", "unreadable-message")]


async def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    async with an_agent() as agent:
        agent.write(b'{"jsonrpc":"2.0","id":1,"method":"x","method":"ping","id":2}\n')
        assert await agent.receive() == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_answers_to_nothing_are_dropped_in_silence() -> None:
    async with an_agent() as agent:
        agent.write(b'{"jsonrpc":"2.0","id":1,"result":{}}\n' + PING)
        await agent.answer(99)
        assert len(agent.arrived) == 1


async def test_a_byte_order_mark_before_a_message_is_left_out_once() -> None:
    async with an_agent() as agent:
        agent.write(b"\xef\xbb\xbf" + PING)
        assert await agent.answer(99) == {"jsonrpc": "2.0", "id": 99, "result": {}}
        agent.write(b"\xef\xbb\xbf" * 2 + PING.replace(b"99", b"98"))
        assert await agent.error_code(98) == -32700


async def test_a_result_leaves_as_it_is() -> None:
    written = b'{"z":1,"a":[{"b":null}],"f":1.0,"big":123456789012345678901234567890}'
    async with an_agent() as agent:
        await agent.initialize()
        agent.write(
            b'{"jsonrpc":"2.0","id":"i","method":"tools/call",'
            b'"params":{"name":"echo","arguments":' + written + b"}}\n"
        )
        line = await agent.lines.receive()
        assert isinstance(line, bytes)
        assert line.endswith(b'"echo":' + written + b"}}")


async def test_an_agent_that_has_gone_does_no_harm() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.lines.close()
        for _ in range(100):
            await agent.server.transport.notify("notifications/x", {"a": "x" * 100_000})
            await anyio.lowlevel.checkpoint()


async def test_what_an_agent_does_not_read_holds_up_its_next_requests() -> None:
    long = "x" * 1000
    async with an_agent() as agent:
        await agent.initialize()
        transport = agent.server.transport
        # More than pipe and buffer hold: nobody reads the answers.
        for _ in range(2000):
            transport.post({"filler": long})
        agent.send(id=1, method="ping")
        agent.send(id=2, method="logging/setLevel", params={"level": "error"})
        await anyio.wait_all_tasks_blocked()
        assert agent.calls.levels == []
        assert "result" in await agent.answer(2)
        assert agent.calls.levels == ["error"]
