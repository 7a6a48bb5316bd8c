"""The six methods that are served, over the wire."""

import logging

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from ironcurtain_proxy import __version__
from ironcurtain_proxy.agent.requests import SMALL, RequestCapacity
from ironcurtain_proxy.model.operation import HANDSHAKE_VERSIONS
from ironcurtain_proxy.model.values import Json
from tests.agent.connected import HELLO, TOOLS, an_agent

pytestmark = pytest.mark.anyio

SERVED = ["tools/call", "tools/list", "logging/setLevel"]


# --- the handshake


def test_the_versions_that_are_served_are_those_of_the_sdk() -> None:
    assert tuple(reversed(HANDSHAKE_VERSIONS)) == HANDSHAKE_PROTOCOL_VERSIONS
    assert HANDSHAKE_VERSIONS[0] == LATEST_HANDSHAKE_VERSION


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_a_client_is_answered_in_its_own_version(version: str) -> None:
    async with an_agent() as agent:
        assert (await agent.initialize(protocolVersion=version))["result"] == {
            "protocolVersion": version,
            "capabilities": {"tools": {}, "extensions": {"a/b": {}}},
            "serverInfo": {"name": "ironcurtain-proxy", "version": __version__},
            "instructions": "be careful",
        }
        assert agent.calls.clients == ["a 1"]


@pytest.mark.parametrize("version", ["2026-07-28", "2024-10-07", "", "DRAFT"])
async def test_a_version_that_is_not_served_is_answered_with_the_newest(version: str) -> None:
    async with an_agent() as agent:
        result = (await agent.initialize(protocolVersion=version))["result"]
        assert isinstance(result, dict)
        assert result["protocolVersion"] == HANDSHAKE_VERSIONS[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocolVersion": None},
        {"protocolVersion": ["2025-11-25"]},
        {"capabilities": []},
        {"capabilities": None},
        {"clientInfo": "me"},
        {"clientInfo": {"name": "me"}},
        {"clientInfo": {"name": 1, "version": "1"}},
    ],
)
async def test_an_introduction_that_lacks_something_opens_nothing(wrong: dict[str, Json]) -> None:
    async with an_agent() as agent:
        answer = await agent.initialize(**wrong)
        assert isinstance(answer["error"], dict)
        assert answer["error"]["code"] == -32602
        assert agent.server.transport.client_capabilities is None
        agent.call(1)
        assert await agent.error_code(1) == -32602
        assert agent.calls.begun == agent.calls.clients == []


@pytest.mark.parametrize("method", SERVED)
async def test_nothing_is_served_before_the_handshake(method: str) -> None:
    async with an_agent() as agent:
        assert "result" in await agent.ask("ping")
        answer = await agent.ask(method, {"name": "echo", "level": "error"})
        assert isinstance(answer["error"], dict)
        assert answer["error"]["code"] == -32602
        assert "initialize" in str(answer["error"]["message"])
        assert agent.calls.begun == agent.calls.levels == []


async def test_a_call_in_the_same_packet_as_the_handshake_is_served() -> None:
    async with an_agent() as agent:
        agent.write(
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x",'
            b'"capabilities":{},"clientInfo":{"name":"","version":""}}}\n'
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}\n'
        )
        assert "result" in await agent.answer(2)


async def test_nobody_is_told_anything_before_the_handshake() -> None:
    async with an_agent() as agent:
        await agent.server.tools_changed()
        await agent.server.log_message({"level": "error", "data": "x"})
        await agent.initialize()
        await agent.server.tools_changed()
        await agent.receive()
        assert [one.get("method") for one in agent.arrived] == [
            None,
            "notifications/tools/list_changed",
        ]


# --- what is asked


async def test_the_tools_are_listed_as_they_are() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        harmless: tuple[Json, ...] = (None, {}, {"cursor": None})
        for params in harmless:
            assert (await agent.ask("tools/list", params))["result"] == {"tools": TOOLS}
        answer = await agent.ask("tools/list", {"cursor": "2"})
        assert answer["error"] == {"code": -32602, "message": "unknown cursor"}


@pytest.mark.parametrize(
    "level", ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
)
async def test_a_level_is_set(level: str) -> None:
    async with an_agent() as agent:
        await agent.initialize()
        assert (await agent.ask("logging/setLevel", {"level": level}))["result"] == {}
        assert agent.calls.levels == [level]


@pytest.mark.parametrize("params", [None, {}, {"level": "loud"}, {"level": ["error"]}])
async def test_a_level_that_is_none_is_refused(params: Json) -> None:
    async with an_agent() as agent:
        await agent.initialize()
        answer = await agent.ask("logging/setLevel", params)
        assert isinstance(answer["error"], dict)
        assert answer["error"]["code"] == -32602
        assert agent.calls.levels == []


@pytest.mark.parametrize("method", ["tasks/list", "tools/uncall", "", "TOOLS/LIST"])
async def test_a_method_that_is_not_served_is_not_found(method: str) -> None:
    async with an_agent() as agent:
        for _ in range(2):
            answer = await agent.ask(method, {})
            assert answer["error"] == {"code": -32601, "message": "Method not found"}
            await agent.initialize()


async def test_notifications_are_never_answered() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        for method in ("notifications/initialized", "notifications/x", "ping", "tools/call"):
            agent.send(method=method, params={"name": "echo"})
        await agent.ask("ping")
        assert len(agent.arrived) == 2
        assert agent.calls.begun == []


async def test_a_call_gets_its_progress_with_its_own_token() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "progress", _meta={"progressToken": "p"})
        await agent.answer(1)
        agent.call(2, "progress")
        await agent.answer(2)
        told = [one["params"] for one in agent.arrived if "method" in one]
        assert told == [{"progressToken": "p", "progress": 1}]


async def test_a_result_that_was_written_before_is_sent_so_unless_something_is_added() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "written")
        assert (await agent.answer(1))["result"] == {"content": [], "by": "it"}
        agent.call(2, "written", arguments={})
        changed = (await agent.answer(2))["result"]
        assert isinstance(changed, dict)
        assert "by" not in changed
        assert changed["content"] != []


@pytest.mark.parametrize("begun", [1, 100])
async def test_requests_are_answered_side_by_side(begun: int) -> None:
    async with an_agent() as agent:
        await agent.initialize()
        for number in range(begun):
            agent.call(f"w{number}", "wait")
        agent.call("last")
        await agent.answer("last")
        assert "result" in await agent.ask("tools/list")
        agent.calls.open.set()
        for number in range(begun):
            assert "result" in await agent.answer(f"w{number}")


# --- what goes wrong


async def test_a_defect_ends_its_own_request_and_says_nothing_of_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "fail")
        error = {"code": -32603, "message": "Internal error"}
        assert (await agent.answer(1))["error"] == error
        await agent.ask("logging/setLevel", {"level": "alert"})
        assert (await agent.ask("tools/list"))["error"] == error
        agent.call(2)
        assert "result" in await agent.answer(2)


@pytest.mark.parametrize(
    ("given", "answered"),
    [
        ({"code": -32042, "message": "m", "data": {"a": 1}, "x": 2}, None),
        ({"code": True, "message": "m"}, -32603),
        ({"code": 1}, 1),
        ({"code": "E_FAIL", "message": "m"}, -32603),
        ({"message": "m"}, -32603),
        ({"code": 1.5, "message": ["m"]}, -32603),
    ],
)
async def test_an_error_of_a_server_is_passed_on_if_it_is_one(
    given: dict[str, Json], answered: int | None
) -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "error", arguments=given)
        answer = await agent.answer(1)
        if answered is None:
            assert answer["error"] == given
        else:
            error = answer["error"]
            assert isinstance(error, dict)
            assert error["code"] == answered
            assert "message" not in given or "m" in str(error["message"])
            assert str(given.get("code", answered)) in str(error)


async def test_an_id_that_is_under_way_is_refused_and_free_again_afterwards() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call("i", "wait")
        agent.call("i")
        assert await agent.error_code("i") == -32600
        agent.arrived.clear()
        agent.calls.open.set()
        assert "result" in await agent.answer("i")
        agent.arrived.clear()
        agent.call("i")
        assert "result" in await agent.answer("i")
        assert agent.calls.begun == ["wait", "echo"]


async def test_a_request_that_is_withdrawn_is_ended_and_never_answered() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "wait")
        agent.call(2, "wait")
        agent.send(method="notifications/cancelled", params={"requestId": 1})
        agent.calls.open.set()
        await agent.answer(2)
        await agent.ask("ping")
        assert 1 not in [one.get("id") for one in agent.arrived]
        assert agent.calls.cancelled == ["wait"]


@pytest.mark.parametrize("named", [True, "1", 1.5, None, [1], {"a": 1}])
async def test_only_the_very_id_withdraws_a_request(named: Json) -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "wait")
        agent.send(method="notifications/cancelled", params={"requestId": named})
        agent.send(method="notifications/cancelled")
        await agent.ask("ping")
        agent.calls.open.set()
        assert "result" in await agent.answer(1)


async def test_where_there_is_no_room_a_call_is_turned_away_and_a_list_put_off() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        await agent.ask("logging/setLevel", {"level": "emergency"})
        fits = (64 << 20) // SMALL
        for number in range(fits):
            agent.send(id=f"l{number}", method="tools/list")
        agent.send(id="more", method="tools/list")
        assert await agent.error_code("more") == -32603
        agent.call("call")
        answer = await agent.answer("call")
        assert agent.calls.turned_away == ["echo"]
        assert "busy" in str(answer["result"])
        agent.calls.open.set()
        for number in range(fits):
            await agent.answer(f"l{number}")
        agent.call("again")
        await agent.answer("again")
        assert agent.calls.begun == ["echo"]


# --- the end


async def test_what_was_asked_before_the_end_of_input_is_answered() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "wait")
        agent.send(id=2, method="tools/list")
        agent.hang_up()
        await agent.answer(2)
        agent.calls.open.set()
        assert "result" in await agent.answer(1)
        await agent.is_served.wait()
        assert await agent.lines.receive() is None


async def test_what_is_not_done_in_time_after_the_end_of_input_is_told_so() -> None:
    async with an_agent(drain_seconds=0.05) as agent:
        await agent.initialize()
        await agent.ask("logging/setLevel", {"level": "emergency"})
        agent.call(1, "wait")
        agent.send(id=2, method="tools/list")
        agent.hang_up()
        answer = await agent.answer(1)
        assert "may have been carried out" in str(answer["result"])
        assert await agent.error_code(2) == -32603
        await agent.is_served.wait()
        assert agent.calls.cancelled == ["wait"]


async def test_an_agent_that_has_gone_altogether_is_not_waited_for() -> None:
    async with an_agent(drain_seconds=1000) as agent:
        await agent.initialize()
        agent.call(1, "wait")
        await agent.ask("ping")
        agent.lines.close()
        agent.hang_up()
        await agent.is_served.wait()
        assert agent.calls.cancelled == ["wait"]


async def test_when_the_proxy_ends_what_is_under_way_ends_with_it() -> None:
    async with an_agent() as agent:
        await agent.initialize()
        agent.call(1, "wait")
        await agent.ask("ping")
    assert agent.calls.cancelled == ["wait"]


async def test_the_name_of_a_client_is_one_short_line_of_visible_characters() -> None:
    async with an_agent() as agent:
        info: Json = {"name": "\u202ea\n" + "b" * 500, "version": ""}
        await agent.initialize(**{**HELLO, "clientInfo": info})
        assert agent.calls.clients == ["a" + "b" * 97]


async def test_a_call_larger_than_all_room_is_answered_when_it_is_alone() -> None:
    async with an_agent(capacity=RequestCapacity(SMALL)) as agent:
        await agent.initialize()
        agent.call(1, arguments={"text": "x" * 3 * SMALL})
        assert "result" in await agent.answer(1)
