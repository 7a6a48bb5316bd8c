"""Servers that speak without a handshake: found out, used, asked back by them, and listened to."""

import json  # noqa: TID251  what a server of this test says
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp.shared.inbound import decode_header_value
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response

from ironcurtain_proxy.downstream import connection as connection_module
from ironcurtain_proxy.downstream import supervisor as supervisor_module
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.operation import (
    CAPABILITIES_KEY,
    INFO_KEY,
    LEVEL_KEY,
    VERSION_KEY,
    Caller,
    Method,
    RequestId,
)
from ironcurtain_proxy.model.reply import question_in
from ironcurtain_proxy.model.server import ServerSpec, ToolResult
from ironcurtain_proxy.model.values import Json
from tests import program
from tests.downstream.remote.site import Heard, Message, Site, remote, reply, serving
from tests.downstream.scripted_servers import OPTIONS, a_call, modern_only, run, scripted, text_of
from tests.program import until

pytestmark = pytest.mark.anyio

SERVER: Final = Path(__file__).with_name("modern_server.py")
WITHOUT_HANDSHAKE: Final = SERVER.with_name("modern_only_server.py")
FORM: Final[Mapping[str, Json]] = {"roots": {}, "elicitation": {"form": {}}}


@pytest.fixture(scope="module")
def at_http() -> Iterator[str]:
    """The address of the server at HTTP."""
    command = [sys.executable, str(SERVER), "--http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        process.kill()


@pytest.fixture(scope="module")
def at_stdio() -> tuple[str, ...]:
    """The arguments of a server that is started: the SDK is imported once for all."""
    command = program.starting_with("mcp.server.mcpserver")
    return str(WITHOUT_HANDSHAKE), *command, "tests.downstream.modern_server"


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> ServerSpec:
    """A server of the SDK that refuses `initialize`."""
    if request.param == "http":
        return remote(request.getfixturevalue("at_http"))
    args = request.getfixturevalue("at_stdio")
    return ServerSpec(name="one", annotations="one", command=sys.executable, args=args)


class Around:
    """What stands around the servers: the agent's client, its policy, its lists."""

    def __init__(self) -> None:
        self.answer: Mapping[str, object] = {
            "result": {"action": "accept", "content": {"name": "Ann"}}
        }
        self.asked: list[tuple[str, Mapping[str, Json], Sequence[Caller | None]]] = []
        self.noticed: list[tuple[str, Mapping[str, Json]]] = []

    async def ask(
        self, _server: str, method: str, params: Mapping[str, Json], under: Sequence[Caller | None]
    ) -> Mapping[str, object]:
        self.asked.append((method, params, under))
        return self.answer

    async def capabilities(self, _server: str, caller: Caller | None) -> Mapping[str, Json]:
        return FORM if caller is None else caller.capabilities

    async def notice(self, _server: str, method: str, params: Mapping[str, Json]) -> None:
        self.noticed.append((method, params))


@asynccontextmanager
async def used(
    spec: ServerSpec, around: Around, *more: ServerSpec
) -> AsyncIterator[DownstreamServers]:
    """The servers, started, and ended afterwards."""
    servers = DownstreamServers((spec, *more), OPTIONS)
    servers.hooks.on_question = around.ask
    servers.hooks.capabilities = around.capabilities
    servers.hooks.on_notice = around.notice
    servers.hooks.roots = lambda _: [{"uri": "file:///work", "name": "work"}]
    async with anyio.create_task_group() as group:
        await group.start(run, servers)
        await servers.tools()
        try:
            yield servers
        finally:
            group.cancel_scope.cancel()


def operation(method: Method, uri: str) -> AuthorizedCall:
    return AuthorizedCall(
        request_id=RequestId("r"),
        server="one",
        tool=method,
        method=method,
        arguments={"uri": uri},
        params={"uri": "other"},
    )


def said(answer: ToolResult) -> str:
    assert answer.result is not None, answer.error
    content = answer.result["content"]
    assert isinstance(content, list)
    assert isinstance(content[0], dict)
    return str(content[0]["text"])


@pytest.mark.requirement("T-11")
async def test_a_server_without_a_handshake_is_used(server: ServerSpec) -> None:
    async with used(server, Around()) as servers:
        assert servers.status()["one"].state == "ready"
        greeted = (await servers.introductions(5))["one"]
        assert (greeted.instructions, greeted.info["name"]) == ("Ask me.", "modern")
        assert await text_of(servers, "add", {"a": 1, "b": 2}) == "3"
        assert await text_of(servers, "region", {"place": " Zürich\n"}) == " Zürich\n"
        read = await servers.forward(operation("resources/read", "note://one"))
        assert read.result is not None
        assert "one" in str(read.result["contents"])


async def test_what_a_client_can_do_is_told_with_its_own_call(server: ServerSpec) -> None:
    caller = Caller(version="2026-07-28", capabilities={"sampling": {}})
    async with used(server, Around()) as servers:
        call = a_call("abilities", _meta={"own": 1})
        with_caller = AuthorizedCall(
            request_id=call.request_id,
            server="one",
            tool="abilities",
            arguments={},
            params=call.params,
            caller=caller,
        )
        found = [json.loads(said(await servers.forward(one))) for one in (call, with_caller, call)]
    assert ["elicitation" in one for one in found] == [True, False, True]
    assert ["sampling" in one for one in found] == [False, True, False]


@pytest.mark.requirement("T-19")
async def test_what_a_call_wants_to_know_is_asked_and_its_state_comes_back_as_it_was(
    server: ServerSpec,
) -> None:
    around = Around()
    async with used(server, around) as servers:
        assert await text_of(servers, "greet") == "näme/65005 accept {'name': 'Ann'}"
    ((method, params, under),) = around.asked
    assert (method, params["message"], under) == ("elicitation/create", "Who are you?", (None,))


@pytest.mark.parametrize("answer", [{"error": {"code": -32601, "message": "no"}}, {}])
async def test_a_question_that_nobody_may_ask_is_withheld_with_the_whole_answer(
    server: ServerSpec, answer: Mapping[str, object]
) -> None:
    around = Around()
    around.answer = answer
    async with used(server, around) as servers:
        found = await servers.forward(a_call("greet"))
        assert question_in(found) is not None
        assert await text_of(servers, "add", {"a": 1, "b": 2}) == "3"


async def test_news_of_a_server_without_a_handshake_arrive(server: ServerSpec) -> None:
    around = Around()
    async with used(server, around) as servers:
        await servers.forward(a_call("grow"))
        await until(lambda: any("grown" in one.name for one in servers.tools_now()["one"]))
        subscribed = await servers.forward(operation("resources/subscribe", "note://one"))
        assert subscribed.result == {}
        await servers.forward(a_call("write"))
        await until(lambda: bool(around.noticed))
        assert around.noticed == [("notifications/resources/updated", {"uri": "note://one"})]
        await servers.forward(operation("resources/unsubscribe", "note://one"))
        heard = 0
        while len(around.noticed) > heard:  # the server ends the old request when it can
            heard = len(around.noticed)
            await servers.forward(a_call("write"))
            await text_of(servers, "grow")  # what was said before has arrived


# --- finding out


@pytest.mark.parametrize(
    "spec",
    [
        *(modern_only(code) for code in (-32601, -32602, -32600, -32000)),
        modern_only(-32022, supported=["2026-07-28"]),
    ],
)
async def test_a_process_that_refuses_to_be_greeted_is_asked_what_it_is(spec: ServerSpec) -> None:
    async with used(spec, Around()) as servers:
        assert await text_of(servers, "echo") == "done"


def found_out(heard: Heard, answer: Message | None, status: int = 200) -> Response | None:
    if heard.said != "server/discover" or answer is None:
        return None
    return JSONResponse({"jsonrpc": "2.0", "id": heard.body["id"], **answer}, status)


BOTH: Final[Message] = {
    "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
}
ERRORS: Final = {
    "unknown": ({"error": {"code": -32601, "message": "no"}}, 404),
    "bad params": ({"error": {"code": -32602, "message": "no"}}, 200),
    "no session": ({"id": None, "error": {"code": -32600, "message": "no session"}}, 400),
    "uninitialized": ({"error": {"code": -32000, "message": "initialize first"}}, 400),
    "versions with a handshake": (
        {"error": {"code": -32022, "message": "no", "data": {"supported": ["2025-11-25"]}}},
        400,
    ),
    "no version in common": ({"result": {"supportedVersions": ["2025-11-25"]}}, 200),
    "another result": ({"result": {"tools": []}}, 200),
    "versions that are none": ({"result": {"supportedVersions": "2026-07-28"}}, 200),
    "a fault": ({"error": {"code": -32603, "message": "no"}}, 500),
}


@pytest.mark.parametrize(("answer", "status"), ERRORS.values(), ids=ERRORS)
@pytest.mark.requirement("T-9")
async def test_a_server_over_http_that_gives_no_such_answer_is_greeted(
    answer: Message, status: int
) -> None:
    async def handler(heard: Heard) -> Response | None:
        return found_out(heard, answer, status)

    site = Site(handler=handler)
    caller = Caller(version="2026-07-28", capabilities={})
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert await text_of(servers, "echo") == "done"
            assert said(await servers.forward(replace(a_call("echo"), caller=caller))) == "done"
    assert [one.said for one in site.heard][:3] == [
        *("server/discover", "initialize", "notifications/initialized")
    ]
    assert VERSION_KEY not in str([one.body for one in site.said("tools/call")])


async def test_a_server_over_http_that_serves_both_is_spoken_to_as_the_caller_speaks() -> None:
    """What a server can ask within a call differs: one of the SDK asks in one era, or the other."""

    async def handler(heard: Heard) -> Response | None:
        return found_out(heard, BOTH)

    site = Site(handler=handler)
    caller = Caller(version="2026-07-28", capabilities={"sampling": {}}, log_level="info")
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert await text_of(servers, "echo") == "done"
            found = await servers.forward(replace(a_call("echo"), caller=caller))
            assert said(found) == "done"
    as_it_was, modern = site.said("tools/call")
    assert VERSION_KEY not in str(as_it_was.body)
    assert as_it_was.headers["mcp-session-id"]
    assert "mcp-session-id" not in modern.headers
    assert modern.headers["mcp-protocol-version"] == "2026-07-28"
    meta = params_of(modern)["_meta"]
    assert isinstance(meta, dict)
    assert meta[CAPABILITIES_KEY] == {"roots": {}, "sampling": {}}
    assert meta[LEVEL_KEY] == "info"


async def test_a_server_of_both_that_keeps_no_session_is_spoken_to_without_a_handshake() -> None:
    """It could ask nothing within a call: the answer would come to another instance of it."""

    async def handler(heard: Heard) -> Response | None:
        return found_out(heard, BOTH)

    site = Site(handler=handler, session=None)
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert await text_of(servers, "echo") == "done"
    assert VERSION_KEY in str(site.said("tools/call")[0].body)
    assert site.said("notifications/initialized") == []


async def test_a_server_that_knows_no_greeting_and_says_so_in_html_is_used_all_the_same() -> None:
    site = modern_site()
    assert site.handler is not None
    plain = site.handler

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "initialize":
            return Response(b"<html>", 405, media_type="text/html")
        return await plain(heard)

    site.handler = handler
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert await text_of(servers, "echo") == "done"


@pytest.mark.parametrize("kind", ["silence", "html", "end"])
async def test_a_server_over_http_that_gives_no_answer_at_all_is_greeted(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_DISCOVER", 0.2)

    async def handler(heard: Heard) -> Response | None:
        if heard.said != "server/discover":
            return None
        if kind == "silence":
            await anyio.sleep(1)
        return Response(b"<html>", media_type="text/html" if kind == "html" else None)

    site = Site(handler=handler)
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert await text_of(servers, "echo") == "done"
    assert site.said("notifications/cancelled") == [], "its stream is closed instead"


async def test_a_server_of_other_versions_alone_says_which_to_the_agent() -> None:
    async def handler(heard: Heard) -> Response | None:
        data: Json = {"supported": ["2199-01-01"]}
        return found_out(heard, {"error": {"code": -32022, "message": "no", "data": data}}, 400)

    site = Site(handler=handler)
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            told = await servers.until_started("one")
    assert "it speaks 2199-01-01, and the proxy speaks 2026-07-28, 2025-11-25" in told
    assert site.said("initialize") == []


# --- a server that a test scripts


def params_of(heard: Heard) -> Message:
    params = heard.body["params"]
    assert isinstance(params, dict)
    return params


def modern_site(
    tools: list[Json] | None = None, answers: Sequence[Message] = (), **capabilities: Json
) -> Site:
    """A site without a handshake. The calls get these answers, the last one again and again."""
    left = [*answers]

    async def handler(heard: Heard) -> Response | None:
        match heard.said:
            case "server/discover":
                result: Message = {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}, **capabilities},
                }
            case "tools/list":
                listed = tools or [{"name": "echo", "inputSchema": {"type": "object"}}]
                result = {"tools": listed, "ttlMs": 0}
            case "initialize":
                refusal: Message = {"error": {"code": -32601, "message": "no"}}
                return JSONResponse({"jsonrpc": "2.0", "id": heard.body["id"], **refusal}, 404)
            case "tools/call" if left:
                result = left.pop(0) if len(left) > 1 else left[0]
            case _:
                return None
        return JSONResponse(reply(heard, {"resultType": "complete", **result}))

    return Site(handler=handler)


async def test_each_request_says_its_version_and_has_no_session() -> None:
    site = modern_site()
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert await text_of(servers, "echo") == "done"
    assert {one.method for one in site.heard} == {"POST"}
    versions = {"initialize": "2025-11-25"}
    for one in site.heard:
        assert one.headers["mcp-protocol-version"] == versions.get(one.said, "2026-07-28")
        assert one.headers["mcp-method"] == one.said
        assert "mcp-session-id" not in one.headers
        meta = params_of(one)["_meta"]
        assert isinstance(meta, dict)
        assert meta[VERSION_KEY] == one.headers["mcp-protocol-version"]
        assert {CAPABILITIES_KEY, INFO_KEY} <= meta.keys()
    assert [one.headers["mcp-name"] for one in site.said("tools/call")] == ["echo"]


async def test_a_server_that_always_wants_more_is_asked_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_STATE_ONLY", 0.0)
    site = modern_site(answers=[{"resultType": "input_required", "requestState": "s"}])
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            found = await servers.forward(a_call("echo"))
    assert question_in(found) is not None
    assert len(site.said("tools/call")) == 11


ILL_FORMED: Final[dict[str, Message]] = {
    "nothing": {},
    "a state that is no text": {"requestState": {"a": 1}},
    "questions that are none": {"inputRequests": ["elicitation/create"]},
    "a question without a method": {"inputRequests": {"a": {"params": {}}}},
    "params that are none": {"inputRequests": {"a": {"method": "roots/list", "params": []}}},
    "too many": {"inputRequests": {str(n): {"method": "roots/list"} for n in range(5)}},
}


@pytest.mark.parametrize("answer", ILL_FORMED.values(), ids=ILL_FORMED)
async def test_an_ill_formed_wish_is_withheld_and_not_answered(answer: Message) -> None:
    around = Around()
    site = modern_site(answers=[{"resultType": "input_required", **answer}])
    with serving(site):
        async with used(remote(site.url), around) as servers:
            found = await servers.forward(a_call("echo"))
    assert question_in(found) is not None
    assert (len(site.said("tools/call")), around.asked) == (1, [])


async def test_a_second_round_holds_no_answer_of_the_first() -> None:
    wish: Message = {"inputRequests": {"a": {"method": "roots/list"}}, "requestState": "1"}
    site = modern_site(
        answers=[
            {"resultType": "input_required", **wish},
            {"resultType": "input_required", "inputRequests": {"b": {"method": "roots/list"}}},
            {"content": [{"type": "text", "text": "done"}]},
        ]
    )
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert await text_of(servers, "echo", {"a": 1}) == "done"
    first, second, third = [one.body["params"] for one in site.said("tools/call")]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert isinstance(third, dict)
    roots: Json = {"roots": [{"uri": "file:///work", "name": "work"}]}
    assert (second["inputResponses"], second["requestState"]) == ({"a": roots}, "1")
    assert third["inputResponses"] == {"b": roots}
    assert "requestState" not in third
    assert first["arguments"] == second["arguments"] == third["arguments"] == {"a": 1}


async def test_a_tool_whose_headers_are_wrong_is_hidden_and_the_others_send_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def tool(name: str, header: Json) -> Json:
        place: Json = {"type": "string", "x-mcp-header": header}
        return {"name": name, "inputSchema": {"type": "object", "properties": {"place": place}}}

    site = modern_site([tool("right", "Place"), tool("wrong", "a\r\nb")])
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            assert [one.name for one in servers.tools_now()["one"]] == ["right"]
            await servers.forward(a_call("right", {"place": "a\r\nx: b"}))
    assert 'tool "wrong" is hidden' in caplog.text
    (call,) = site.said("tools/call")
    assert decode_header_value(call.headers["mcp-param-place"]) == "a\r\nx: b"
    assert "x" not in call.headers


async def test_a_call_that_is_given_up_ends_its_stream_and_says_no_more() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            await anyio.sleep(1)
        return None if site.handler is None else await plain(heard)

    site = modern_site()
    assert site.handler is not None
    plain, site.handler = site.handler, handler
    with serving(site):
        async with used(remote(site.url), Around()) as servers, anyio.create_task_group() as group:
            group.start_soon(text_of, servers, "echo")
            await until(lambda: len(site.said("tools/call")) == 1)
            group.cancel_scope.cancel()
    assert site.said("notifications/cancelled") == []


# --- lists that have an age, and questions that are given up


async def test_an_old_list_is_asked_for_again_where_its_server_tells_no_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "LEGACY_AGE", 0.0)
    site = Site()
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            site.tools.append("new")

            async def listed() -> None:
                while len(servers.tools_now()["one"]) < 2:
                    await servers.list_old_again()
                    await anyio.sleep(0.01)

            await listed()
            assert await text_of(servers, "new") == "done"


async def test_a_young_list_is_asked_for_again_for_a_tool_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor_module, "_NEW_TOOL", 0.0)
    site = Site()
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            site.tools.append("new")
            await servers.list_again("one")
            assert [tool.name for tool in servers.tools_now()["one"]] == ["echo", "new"]
            for _ in range(50):
                await servers.list_again("one")
    assert len(site.said("tools/list")) < 30, "names that a model invents cost a server little"


async def test_a_list_may_be_shown_for_as_long_as_the_server_says_that_says_the_least() -> None:
    async def aged(heard: Heard) -> Response | None:
        if heard.said == "tools/list" and VERSION_KEY in str(heard.body):
            is_last = "cursor" in str(heard.body)
            more: Message = {} if is_last else {"nextCursor": "2"}
            page: Message = {"tools": [], "ttlMs": 9000 if is_last else 5000, **more}
            return JSONResponse(reply(heard, page))
        return found_out(heard, BOTH)

    site, other = Site(handler=aged), Site()
    with serving(site), serving(other):
        two = replace(remote(other.url), name="two")
        async with used(remote(site.url), Around(), two) as servers:
            assert 0 < servers.last("tools/list") <= 5
            assert servers.last("prompts/list") == 30
        async with used(remote(other.url), Around()) as servers:
            assert 5 < servers.last("tools/list") <= 30


async def test_a_young_list_is_not_asked_for_again() -> None:
    site = Site()
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            for _ in range(3):
                await servers.list_old_again()
    assert len(site.said("tools/list")) == 1


async def test_a_question_that_its_server_gives_up_is_withdrawn_during_the_call() -> None:
    asked, withdrawn = anyio.Event(), anyio.Event()

    class Waiting(Around):
        async def ask(self, *_: object) -> Mapping[str, object]:
            asked.set()
            try:
                await anyio.sleep_forever()
            finally:
                withdrawn.set()
            return {}

    async with used(scripted(), Waiting()) as servers, anyio.create_task_group() as group:
        group.start_soon(text_of, servers, "ask", {"method": "elicitation/create"})
        await asked.wait()
        for number in ("other", "q"):
            params: Json = {"requestId": number}
            said = {"method": "notifications/cancelled", "params": params}
            await text_of(servers, "tell", said)
            assert number == "q" or not withdrawn.is_set()
        await withdrawn.wait()
        group.cancel_scope.cancel()
