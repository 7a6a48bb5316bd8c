"""Requests that say themselves who asks, in what version, and what their client can do."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ironcurtain_proxy.agent import rounds
from ironcurtain_proxy.agent.replies import REMOVED
from ironcurtain_proxy.agent.sealing import Sealing
from ironcurtain_proxy.jsonrpc.pipes import STREAM_ENDED, UNREAD
from ironcurtain_proxy.model.operation import (
    CAPABILITIES_KEY,
    HEADERS_KEY,
    SERVER_INFO_KEY,
    TASKS,
    VERSION_KEY,
    VERSIONS,
)
from ironcurtain_proxy.model.values import Json
from tests.agent.connected import ENVELOPE, HELLO, TOOLS, Agent, an_agent
from tests.program import until
from tests.tables import table

pytestmark = pytest.mark.anyio

KEY = "io.modelcontextprotocol/"
FORMS: Json = {"elicitation": {}}


def result_of(answer: Mapping[str, Json]) -> dict[str, Json]:
    result = answer["result"]
    assert isinstance(result, dict)
    return result


def error_of(answer: Mapping[str, Json]) -> dict[str, Json]:
    error = answer["error"]
    assert isinstance(error, dict)
    return error


def test_the_versions_without_a_handshake_are_those_of_the_sdk() -> None:
    assert tuple(reversed(VERSIONS)) == MODERN_PROTOCOL_VERSIONS


async def test_discovery_is_answered_before_and_after_a_handshake() -> None:
    async with an_agent() as agent:
        for _ in range(2):
            found = result_of(await agent.ask_alone("server/discover"))
            assert found["supportedVersions"] == ["2026-07-28"]
            assert found["instructions"] == "be careful"
            assert found["cacheScope"] == "private"
            assert isinstance(found["capabilities"], dict)
            assert "tools" in found["capabilities"]
            assert found["capabilities"]["extensions"] == {"a/b": {}, TASKS: {}}
            assert agent.calls.clients[0] == "a 1"
            await agent.initialize()


@pytest.mark.requirement("T-7")
async def test_both_eras_are_served_on_one_connection() -> None:
    async with an_agent() as agent:
        assert result_of(await agent.ask_alone("tools/list"))["tools"] == TOOLS
        greeted = result_of(await agent.initialize())
        assert greeted["protocolVersion"] == "2025-11-25"
        assert isinstance(greeted["capabilities"], dict)
        assert greeted["capabilities"]["extensions"] == {"a/b": {}}
        assert "resultType" in result_of(await agent.ask_alone("tools/list"))
        assert result_of(await agent.ask("tools/list")) == {"tools": TOOLS}


async def test_an_output_that_is_no_object_breaks_no_list_and_no_answer_of_the_older_era() -> None:
    """Its clients reject the whole list, and the whole answer."""
    schemas: tuple[Json, ...] = ({"type": "array"}, {}, {"type": "object"})
    tools: list[Json] = [{"name": "echo", "outputSchema": one} for one in schemas]
    async with an_agent() as agent:
        agent.calls.tools = tools
        assert result_of(await agent.ask_alone("tools/list"))["tools"] == tools
        found = result_of(await begin(agent, "array"))
        assert found["structuredContent"] == [1]
        await agent.initialize()
        plain: Json = {"name": "echo"}
        assert result_of(await agent.ask("tools/list")) == {"tools": [plain, plain, tools[2]]}
        found = result_of(await agent.ask("tools/call", {"name": "array"}))
        assert found == {"content": []}


async def test_a_handshake_that_names_its_version_in_meta_too_is_a_handshake() -> None:
    async with an_agent() as agent:
        old: Json = {VERSION_KEY: "2025-11-25"}
        new: Json = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}
        assert result_of(await agent.initialize(_meta=old))["protocolVersion"] == "2025-11-25"
        error = (await agent.initialize(_meta=new))["error"]
        assert isinstance(error, dict)
        assert error["code"] == -32601


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"mcp-param-place": ["x"]}, None),
        ({"mcp-param-place": ["y"]}, -32020),
        ({"mcp-param-place": ["x", "x"]}, -32020),
        ({"mcp-param-place": "x"}, -32020),
        ({}, -32020),
    ],
    ids=str,
)
@pytest.mark.requirement("T-13")
async def test_the_front_passes_on_headers_that_must_say_what_the_arguments_say(
    given: Json, code: int | None
) -> None:
    mirrored: dict[tuple[str, ...], str] = {("place",): "Place"}
    async with an_agent(in_headers=mirrored, is_behind_front=True) as agent:
        call: dict[str, Json] = {"name": "echo", "arguments": {"place": "x"}}
        meta: Json = {**ENVELOPE, HEADERS_KEY: given}
        assert "result" in await agent.ask("tools/call", {**call, "_meta": meta}), "no front"
        agent.send(method=STREAM_ENDED)
        error = (await agent.ask("tools/call", {**call, "_meta": meta})).get("error")
        assert code == (error["code"] if isinstance(error, dict) else None)
    assert len(agent.calls.begun) == (1 if code else 2)


async def test_an_agent_on_pipes_cannot_speak_as_the_front() -> None:
    async with an_agent(in_headers={("place",): "Place"}) as agent:
        agent.send(method=STREAM_ENDED, params={"shared": True})
        agent.send(method=UNREAD, params={"why": "forged"})
        # Still a client of its own, which says with `initialize` who it is, once for all.
        await agent.initialize()
        call: dict[str, Json] = {"name": "echo", "arguments": {"place": "x"}}
        assert "result" in await agent.ask("tools/call", call)
        agent.send(method=STREAM_ENDED, params={"shared": True})
        assert "result" in await agent.ask("tools/call", call)
    assert agent.calls.unserved == []


@pytest.mark.parametrize(
    ("method", "params"),
    table("agent/era.every_result_says_that_it_is_complete", list[tuple[str, dict[str, Json]]]),
)
@pytest.mark.requirement("T-8")
@pytest.mark.requirement("T-29")
async def test_every_result_says_that_it_is_complete_and_who_gives_it_in_its_own_era_alone(
    method: str, params: dict[str, Json]
) -> None:
    async with an_agent() as agent:
        agent.server.lists_last = lambda asked: 7.5 if asked == method else 0.0
        found = result_of(await agent.ask_alone(method, params))
        assert found["resultType"] == "complete"
        assert found.get("ttlMs", 0) == (7500 if method.endswith(("list", "discover")) else 0)
        meta = found["_meta"]
        assert isinstance(meta, dict)
        info = meta[SERVER_INFO_KEY]
        assert isinstance(info, dict)
        assert info["name"] == "ironcurtain-proxy"
        is_cached = method != "tools/call" and method[-3:] not in {"get", "ete"}
        assert ("ttlMs" in found) == ("cacheScope" in found) == is_cached
        assert found.get("cacheScope", "private") == "private"
        await agent.initialize()
        before = await agent.ask(method, params)
        if method == "server/discover":
            assert error_of(before)["code"] == -32601
        elif params != {"name": "marked"}:  # its server says so itself
            assert {*result_of(before)} == {*found} - {"resultType", "ttlMs", "cacheScope", "_meta"}


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        (None, -32602),
        ({}, -32602),
        ({f"{KEY}protocolVersion": "2026-07-28"}, -32602),
        ({f"{KEY}clientCapabilities": {}}, -32602),
        ({**ENVELOPE, f"{KEY}clientCapabilities": []}, -32602),
        ({**ENVELOPE, f"{KEY}protocolVersion": 20260728}, -32602),
        ({**ENVELOPE, f"{KEY}logLevel": "loud"}, -32602),
        ({**ENVELOPE, f"{KEY}protocolVersion": "1900-01-01"}, -32022),
        ({**ENVELOPE, f"{KEY}protocolVersion": "2025-11-25"}, -32022),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
@pytest.mark.requirement("T-4")
@pytest.mark.requirement("T-5")
async def test_a_request_that_does_not_say_who_asks_is_refused_and_recorded(
    method: str, meta: Json, code: int
) -> None:
    async with an_agent() as agent:
        given: dict[str, Json] = {} if meta is None else {"_meta": meta}
        error = error_of(await agent.ask(method, {"name": "echo", **given}))
        assert error["code"] == code
        if code == -32022:
            data = error["data"]
            assert isinstance(data, dict)
            assert data["supported"] == ["2026-07-28"]
            assert isinstance(meta, dict)
            assert data["requested"] == meta[f"{KEY}protocolVersion"]
        assert agent.calls.begun == []
        assert [one for one, _ in agent.calls.unserved] == [method]


@pytest.mark.parametrize("method", [*sorted(REMOVED), "tasks/list", "no/such"])
async def test_a_method_that_the_newer_era_has_not_is_not_found(method: str) -> None:
    async with an_agent() as agent:
        await agent.initialize()
        params = {**HELLO, "level": "error", "uri": "memo://a"}
        assert error_of(await agent.ask_alone(method, params))["code"] == -32601


async def test_a_resource_that_is_missing_has_the_code_of_each_era() -> None:
    async with an_agent() as agent:
        params: dict[str, Json] = {"name": "error", "arguments": {"code": -32002, "message": "m"}}
        assert error_of(await agent.ask_alone("tools/call", params))["code"] == -32602
        await agent.initialize()
        assert error_of(await agent.ask("tools/call", params))["code"] == -32002


async def test_no_notification_reaches_a_client_that_did_not_ask_for_it() -> None:
    async with an_agent() as agent:
        await agent.ask_alone("tools/list")
        await agent.server.tools_changed()
        await agent.server.log_message({"level": "error", "data": "x"})
        await agent.ask_alone("tools/list")
        assert len(agent.arrived) == 2


@pytest.mark.parametrize(
    ("wanted", "level", "is_told"),
    [(None, "emergency", False), ("warning", "info", False), ("warning", "warning", True)],
)
async def test_a_request_gets_the_log_messages_that_it_wants(
    wanted: str | None, level: str, is_told: bool
) -> None:
    async with an_agent() as agent:
        meta = {**ENVELOPE, **({f"{KEY}logLevel": wanted} if wanted else {})}
        agent.call(1, "wait", _meta=meta)
        await until(lambda: "wait" in agent.calls.begun)
        await agent.server.log_message({"level": level, "data": "x"})
        agent.calls.open.set()
        await agent.answer(1)
        assert ("notifications/message" in [one.get("method") for one in agent.arrived]) == is_told


# --- questions, over several requests


async def begin(
    agent: Agent, name: str, capabilities: Json = FORMS, **params: Json
) -> dict[str, Json]:
    """Make a call and take its answer."""
    given: dict[str, Json] = {"name": name, "arguments": {"a": 1, "b": 2}, **params}
    return await agent.ask_alone("tools/call", given, clientCapabilities=capabilities)


async def test_a_question_ends_the_request_and_its_answer_comes_with_the_next_one() -> None:
    async with an_agent() as agent:
        answer = result_of(await begin(agent, "question"))
        for number, message in enumerate(("first", "second"), 1):
            assert answer["resultType"] == "input_required"
            requests = answer["inputRequests"]
            assert isinstance(requests, dict)
            [(key, asked)] = requests.items()
            assert asked == {"method": "elicitation/create", "params": {"message": message}}
            # The order of keys in the arguments is nobody's business.
            answer = result_of(
                await begin(
                    agent,
                    "question",
                    arguments={"b": 2, "a": 1},
                    requestState=answer["requestState"],
                    inputResponses={key: {"action": "accept", "n": number}, "other": {"x": 1}},
                )
            )
        assert answer["resultType"] == "complete"
        said: Json = [{"action": "accept", "n": 1}, {"action": "accept", "n": 2}]
        assert answer["said"] == said
        assert agent.calls.begun == ["question"]


@pytest.mark.parametrize(
    ("entry", "key"), [("a", "a"), ("", "1"), ("__proto__", "1"), ("k" * 65, "1")]
)
async def test_a_question_has_the_key_of_its_server_unless_a_client_could_lose_it(
    entry: str, key: str
) -> None:
    async with an_agent() as agent:
        agent.calls.entry = entry
        requests = result_of(await begin(agent, "question"))["inputRequests"]
        assert isinstance(requests, dict)
        assert [*requests] == [key]


async def test_a_question_without_its_answer_is_asked_again_at_most_nine_times() -> None:
    async with an_agent() as agent:
        answer = result_of(await begin(agent, "question"))
        for _ in range(rounds.MOST_LEGS - 1):
            assert "inputRequests" in answer
            answer = result_of(await begin(agent, "question", requestState=answer["requestState"]))
        requests = answer["inputRequests"]
        assert isinstance(requests, dict)
        key = next(iter(requests))
        state: dict[str, Json] = {"requestState": answer["requestState"]}
        responses: Json = {key: {"action": "decline"}}
        answer = result_of(await begin(agent, "question", inputResponses=responses, **state))
        # The second question comes to nobody: the clients of the SDKs would give up at it.
        assert answer["said"] == [{"action": "decline"}, {"action": "nobody"}]


async def test_what_parked_calls_hold_is_bounded_in_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room of a request is given back when its answer asks for another one."""
    monkeypatch.setattr(rounds, "_MOST_BYTES", 1000)
    given: dict[str, Json] = {"arguments": {"a": "x" * 2000}}
    async with an_agent() as agent:
        answer = result_of(await begin(agent, "question", **given))
        for more in (given, {}):
            error = error_of(await begin(agent, "question", **more))
            assert "too large" in str(error["message"])
        for key in ("1", "2"):
            responses: Json = {key: {"action": "accept"}}
            state: dict[str, Json] = {"requestState": answer["requestState"]}
            answer = result_of(
                await begin(agent, "question", inputResponses=responses, **state, **given)
            )
        assert answer["resultType"] == "complete"
        assert "inputRequests" in result_of(await begin(agent, "question", **given))


async def test_what_a_later_request_says_of_its_client_counts_as_held_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_MOST_BYTES", 1000)
    able: Json = {"elicitation": {}, "extensions": {"a/b": {"text": "x" * 2000}}}
    async with an_agent() as agent:
        answers = [result_of(await begin(agent, "question")) for _ in range(2)]
        again = await begin(agent, "question", able, requestState=answers[0]["requestState"])
        assert "too large" in str(error_of(again)["message"])


async def test_calls_that_are_under_way_are_not_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_MOST", 2)
    async with an_agent() as agent:
        for number in range(5):
            agent.call(number, "wait", _meta=ENVELOPE)
        parked = [await begin(agent, "question") for _ in range(3)]
        assert ["result" in one for one in parked] == [True, True, False]
        agent.calls.open.set()
        for number in range(5):
            assert "result" in await agent.answer(number)


@pytest.mark.requirement("T-17")
async def test_a_state_is_of_one_call_once_and_of_no_other() -> None:
    async with an_agent() as agent:
        answer = result_of(await begin(agent, "question"))
        state = answer["requestState"]
        assert isinstance(state, str)
        other = await begin(agent, "question", arguments={"a": 2}, requestState=state)
        assert "state-of-another-call" in str(error_of(other)["message"])
        other = await begin(agent, "echo", requestState=state)
        assert "state-of-another-call" in str(error_of(other)["message"])
        for place in range(len(state)):
            letter = "A" if state[place] != "A" else "B"
            forged = state[:place] + letter + state[place + 1 :]
            error = error_of(await begin(agent, "question", requestState=forged))
            assert error["code"] == -32602
        wrongs: tuple[Json, ...] = ("", "v1.", "x", state + "=", 5, {})
        for wrong in wrongs:
            assert "error" in await begin(agent, "question", requestState=wrong)
        for key in ("1", "2"):
            responses: Json = {key: {"action": "accept"}}
            given: dict[str, Json] = {"requestState": state, "inputResponses": responses}
            answer = result_of(await begin(agent, "question", **given))
        assert answer["resultType"] == "complete"
        again = await begin(agent, "question", requestState=state)
        assert "may have been carried out" in str(error_of(again)["message"])
        assert agent.calls.begun == ["question"]


@pytest.mark.requirement("T-6")
async def test_a_client_is_asked_by_the_capabilities_of_the_call_alone() -> None:
    async with an_agent() as agent:
        await begin(agent, "echo", FORMS)
        await begin(agent, "echo", {})
        able, unable = agent.calls.callers
        assert able is not None
        assert unable is not None
        assert (able.capabilities, unable.capabilities) == (FORMS, {})
        assert agent.server.rounds.capabilities_of(able) is None  # its call has ended


async def test_each_request_of_a_call_says_anew_what_its_client_can_do() -> None:
    async with an_agent() as agent:
        answer = result_of(await begin(agent, "question"))
        state: dict[str, Json] = {"requestState": answer["requestState"]}
        await begin(agent, "question", {}, **state)
        caller = agent.calls.callers[0]
        assert agent.server.rounds.capabilities_of(caller) == {}


async def test_progress_belongs_to_the_newest_request_of_its_call() -> None:
    async with an_agent() as agent:
        meta: dict[str, Json] = {**ENVELOPE, "progressToken": "p"}
        agent.call(1, "progress", _meta=meta)
        await agent.answer(1)
        agent.call(2, "wait", _meta={**meta, "progressToken": "q"})
        await until(lambda: "wait" in agent.calls.begun)
        rounds_ = agent.server.rounds
        first, second = agent.calls.callers
        assert first is not None
        assert second is not None
        assert rounds_.progress_of(first, {"progressToken": "p"}) is None
        assert rounds_.progress_of(second, {"progressToken": "?", "progress": 1}) == {
            "progressToken": "q",
            "progress": 1,
        }
        told = [one["params"] for one in agent.arrived if "method" in one]
        assert told == [{"progressToken": "p", "progress": 1}]


async def test_a_call_that_waits_for_a_reviewer_is_answered_before_a_client_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "LEG", 0.01)
    async with an_agent() as agent:
        answer = result_of(await begin(agent, "held", {}))
        legs = 1
        while answer["resultType"] == "input_required":
            assert "inputRequests" not in answer
            assert legs <= rounds.MOST_LEGS
            if legs == 3:
                agent.calls.open.set()
            answer = result_of(await begin(agent, "held", {}, requestState=answer["requestState"]))
            legs += 1
        assert answer["resultType"] == "complete"
        assert agent.calls.begun == ["held"]


async def test_a_call_that_nobody_comes_back_for_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "LEG", 0.01)
    monkeypatch.setattr(rounds, "_UNCLAIMED", 0.01)
    async with an_agent() as agent:
        answer = result_of(await begin(agent, "held", {}))
        caller = agent.calls.callers[0]
        await until(lambda: agent.server.rounds.capabilities_of(caller) is None)
        state = answer["requestState"]
        assert "error" in await begin(agent, "held", {}, requestState=state)


@pytest.mark.requirement("T-22")
async def test_a_call_that_waits_outlives_its_proxy_and_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LEG", 0.01)
    async with an_agent(sealing=Sealing(tmp_path)) as first:
        answer = result_of(await begin(first, "held", {}))
        state = answer["requestState"]
        async with an_agent(sealing=Sealing(tmp_path)) as second:
            lost = error_of(await begin(second, "held", {}, requestState=state))
            assert "may have been carried out" in str(lost["message"]), "its proxy lives"
            assert second.calls.begun == []
        assert "resultType" in result_of(await begin(first, "held", {}, requestState=state))
        first.server.abandon()
    async with an_agent(sealing=Sealing(tmp_path)) as third:
        third.calls.open.set()
        other = error_of(await begin(third, "echo", requestState=state))
        assert "state-of-another-call" in str(other["message"])
        assert result_of(await begin(third, "held", {}, requestState=state))["resultType"] == (
            "complete"
        )
        for _ in range(3):
            lost = error_of(await begin(third, "held", {}, requestState=state))
            assert "may have been carried out" in str(lost["message"])
        assert third.calls.begun == ["held"]


async def test_a_call_that_goes_on_or_is_withdrawn_is_taken_up_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LEG", 0.01)
    async with an_agent(sealing=Sealing(tmp_path)) as first:
        state = result_of(await begin(first, "held", {}))["requestState"]
        first.calls.open.set()
        await until(lambda: not [*(tmp_path / "held").iterdir()])
        assert "resultType" in result_of(await begin(first, "held", {}, requestState=state))
        first.calls.open = anyio.Event()
        monkeypatch.setattr(rounds, "_UNCLAIMED", 0.01)
        given_up = result_of(await begin(first, "held", {}))["requestState"]
        await until(lambda: not [*(tmp_path / "held").iterdir()])
    async with an_agent(sealing=Sealing(tmp_path)) as second:
        for lost in (state, given_up):
            assert "error" in await begin(second, "held", {}, requestState=lost)
        assert second.calls.begun == []


async def test_a_withdrawn_request_ends_its_call_in_each_leg() -> None:
    async with an_agent() as agent:
        agent.call(1, "wait", _meta=ENVELOPE)
        await until(lambda: "wait" in agent.calls.begun)
        agent.send(method="notifications/cancelled", params={"requestId": 1})
        await until(lambda: agent.calls.cancelled == ["wait"])
        assert "result" in await agent.ask_alone("tools/list")
        assert len(agent.arrived) == 1
