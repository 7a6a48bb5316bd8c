"""News that come while nobody listens, lists that overtake each other, and lists of one session."""

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import anyio
import pytest
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response, StreamingResponse

from ironcurtain_proxy.downstream import notifications
from ironcurtain_proxy.downstream import supervisor as supervisor_module
from ironcurtain_proxy.downstream.remote import streamable
from ironcurtain_proxy.errors import UnansweredError
from ironcurtain_proxy.jsonrpc.codec import value_at
from ironcurtain_proxy.model.operation import (
    CAPABILITIES_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
    Caller,
)
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Message, Site, event, remote, reply, serving
from tests.downstream.scripted_servers import a_call, scripted
from tests.downstream.test_modern import FORM, Around, modern_site, operation, said, used
from tests.program import until

pytestmark = pytest.mark.anyio

MODERN: Final = Caller(version="2026-07-28", capabilities={})
TOLD: Final[Message] = {"listChanged": True, "subscribe": True}
UPDATED: Final[tuple[str, Message]] = ("notifications/resources/updated", {"uri": "note://a"})
CHANGED: Final[tuple[str, Message]] = ("notifications/resources/list_changed", {})


def acknowledged(heard: Heard) -> bytes:
    params = heard.body["params"]
    assert isinstance(params, dict)
    return event(
        {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {SUBSCRIPTION_KEY: heard.body["id"]},
                "notifications": params["notifications"],
            },
        }
    )


async def test_a_list_that_was_asked_for_before_a_newer_one_does_not_take_its_place() -> None:
    """Over HTTP answers overtake each other; the older list would stand for 30 seconds."""
    asked, is_late = list[str](), threading.Event()

    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/list":
            return None
        name = f"tool-{len(asked)}"
        asked.append(name)
        await until(
            lambda: not (name == "tool-1" and (not is_late.is_set()))
        )  # the site's own loop
        answer = reply(heard, {"tools": [{"name": name, "inputSchema": {"type": "object"}}]})
        return JSONResponse(answer)

    site, found = Site(handler=handler), list[str]()
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            connection = servers._supervisors["one"].connection

            async def list_tools() -> None:
                found.extend([one.name for one in await connection.list_tools(20)])

            async with anyio.create_task_group() as group:
                group.start_soon(list_tools)
                await until(lambda: len(asked) == 2)
                await list_tools()
                is_late.set()
    assert asked == ["tool-0", "tool-1", "tool-2"]
    assert found == ["tool-2", "tool-2"]


async def test_a_change_of_tools_that_could_not_be_listed_is_told_and_listed_when_asked() -> None:
    said, listed, told = threading.Event(), list[int](), list[bool]()

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/list":
            listed.append(0)
            fault: Message = {"code": -32603, "message": "busy"}
            answer: Message = {"jsonrpc": "2.0", "id": heard.body["id"], "error": fault}
            return JSONResponse(answer) if len(listed) == 2 else None
        if heard.method != "GET":
            return None

        async def send() -> AsyncIterator[bytes]:
            await until(said.is_set)  # the site has a loop of its own
            yield event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await anyio.sleep_forever()

        return StreamingResponse(send(), media_type="text/event-stream")

    async def announced(is_told: bool) -> None:
        told.append(is_told)

    site = Site(handler=handler)
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            servers.hooks.on_tools_changed = announced
            site.tools.append("new")
            said.set()
            await until(lambda: told == [True])
            assert [one.name for one in servers.tools_now()["one"]] == ["echo"]
            await servers.list_old_again()
            assert [one.name for one in servers.tools_now()["one"]] == ["echo", "new"]


async def test_a_list_that_a_call_may_have_changed_is_asked_for_again() -> None:
    site = Site()
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            await servers.forward(a_call("echo"))
            site.tools.append("new")
            for _ in range(3):
                await servers.list_old_again()
                assert [tool.name for tool in servers.tools_now()["one"]] == ["echo", "new"]
    assert len(site.said("tools/list")) == 2


async def test_a_list_that_comes_late_is_shown_and_announced_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is given up would be old for ever; agents wait for it, but not for long."""
    site, goes_on, told = Site(), threading.Event(), list[bool]()

    async def handler(heard: Heard) -> Response | None:
        await until(
            lambda: (
                not (heard.said == "tools/list" and "new" in site.tools and (not goes_on.is_set()))
            )
        )  # the site's own loop
        return None

    async def announced(is_told: bool) -> None:
        told.append(is_told)

    site.handler = handler
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            servers.hooks.on_tools_changed = announced
            await servers.forward(a_call("echo"))
            site.tools.append("new")
            monkeypatch.setattr(supervisor_module, "_LIST_AGAIN", 0.05)
            for _ in range(3):
                await servers.list_old_again()
                assert [tool.name for tool in servers.tools_now()["one"]] == ["echo"]
                assert servers.last("tools/list") == 0
            goes_on.set()
            await until(lambda: told == [False])
            assert [tool.name for tool in servers.tools_now()["one"]] == ["echo", "new"]
    assert len(site.said("tools/list")) == 2


async def test_all_who_ask_for_an_old_list_wait_for_the_new_one() -> None:
    site, goes_on = Site(), threading.Event()

    async def handler(heard: Heard) -> Response | None:
        await until(
            lambda: (
                not (heard.said == "tools/list" and "new" in site.tools and (not goes_on.is_set()))
            )
        )  # the site's own loop
        return None

    site.handler = handler
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            await servers.forward(a_call("echo"))
            site.tools.append("new")

            async def list_tools() -> None:
                await servers.list_old_again()
                assert [tool.name for tool in servers.tools_now()["one"]] == ["echo", "new"]

            async with anyio.create_task_group() as group:
                group.start_soon(list_tools)
                await until(lambda: len(site.said("tools/list")) == 2)
                group.start_soon(list_tools)
                await anyio.wait_all_tasks_blocked()
                goes_on.set()
    assert len(site.said("tools/list")) == 2


async def test_what_may_be_missed_while_nobody_listens_is_told_when_somebody_does_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that listens without a handshake ends, and its next is a second later at best."""
    monkeypatch.setattr(notifications, "_FIRST_PAUSE", 0.01)
    ends, listened = threading.Event(), list[Message]()
    site = modern_site()
    assert site.handler is not None
    plain = site.handler

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "server/discover":
            capabilities: Message = {"tools": {"listChanged": True}, "resources": TOLD}
            found: Message = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            return JSONResponse(reply(heard, found))
        if heard.said != "subscriptions/listen":
            return await plain(heard)
        listened.append(heard.body)

        async def events() -> AsyncIterator[bytes]:
            yield acknowledged(heard)
            # The one before may arrive later, and hear late that its client is gone.
            await until(
                lambda: not (not ends.is_set() or number(heard.body) < max(map(number, listened)))
            )
            ends.clear()

        return StreamingResponse(events(), media_type="text/event-stream")

    def number(body: Message) -> int:
        return int(str(body["id"]))

    site.handler = handler
    around = Around()
    with serving(site):
        async with used(remote(site.url), around) as servers:
            await servers.forward(operation("resources/subscribe", "note://a"))
            await until(lambda: len(listened) == 2)
            assert around.noticed == [], "nothing was missed yet"
            lists = len(site.said("tools/list"))
            ends.set()
            await until(lambda: around.noticed == [CHANGED, UPDATED])
            await until(lambda: len(site.said("tools/list")) > lists)
    assert len(listened) == 3


async def test_what_may_be_missed_while_the_stream_of_no_request_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamable, "_RETRY", 0.01)
    ends, opened = threading.Event(), list[int]()

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "initialize":
            result: Message = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}, "resources": TOLD},
                "serverInfo": {"name": "site", "version": "1"},
            }
            return JSONResponse(reply(heard, result), headers={"mcp-session-id": "s"})
        if heard.method != "GET":
            return None
        opened.append(0)

        async def send() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            await until(ends.is_set)  # the site has a loop of its own
            ends.clear()

        return StreamingResponse(send(), media_type="text/event-stream")

    site, around = Site(handler=handler), Around()
    with serving(site):
        async with used(remote(site.url), around) as servers:
            await servers.forward(operation("resources/subscribe", "note://a"))
            await until(lambda: len(opened) == 1)
            assert around.noticed == []
            site.tools.append("new")
            ends.set()
            await until(lambda: around.noticed == [CHANGED, UPDATED])
            await until(lambda: len(servers.tools_now()["one"]) == 2)


async def test_what_a_server_told_of_may_have_changed_while_it_was_started_again() -> None:
    around = Around()
    spec = scripted(behaviour={"capabilities": {"tools": {}, "resources": TOLD}})
    async with used(spec, around) as servers:
        assert around.noticed == []
        with pytest.raises(UnansweredError, match="ended"):
            await servers.forward(a_call("crash"))
        await until(lambda: around.noticed == [CHANGED])


async def test_a_list_without_a_handshake_is_asked_for_with_what_the_client_can_do() -> None:
    """Some servers show a tool only to clients that can show its view. Who has none sees it not."""
    site = modern_site()
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            caller = replace(MODERN, capabilities={"extensions": {"an/other": {}}})
            await servers.forward(replace(a_call("echo"), caller=caller))
    for one in site.said("tools/list"):
        assert value_at(one.body, "params", "_meta", CAPABILITIES_KEY) == {**FORM, "roots": {}}


# --- servers of both eras


def both(site: Site, *, in_session: list[Json], resources: Json) -> Site:
    """A site of both eras, whose session shows more, and which tells news to listeners alone."""

    async def handler(heard: Heard) -> Response | None:
        is_modern = VERSION_KEY in str(heard.body)
        if heard.said == "server/discover":
            capabilities: Message = {"tools": {"listChanged": True}, "resources": resources}
            result: Message = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            return JSONResponse(reply(heard, result))
        if heard.said == "subscriptions/listen":

            async def events() -> AsyncIterator[bytes]:
                yield acknowledged(heard)
                await anyio.sleep_forever()

            return StreamingResponse(events(), media_type="text/event-stream")
        if heard.said == "tools/list" and not is_modern:
            return JSONResponse(reply(heard, {"tools": in_session}))
        if heard.said.startswith("resources/") and not is_modern:
            fault: Message = {"code": -32601, "message": "no such method"}
            return JSONResponse({"jsonrpc": "2.0", "id": heard.body["id"], "error": fault})
        return None

    site.handler = handler
    return site


async def test_what_a_server_of_both_eras_shows_in_its_session_alone_is_shown_and_used_there() -> (
    None
):
    """A call may change what its own session has: without a session nobody would ever see that."""
    kept: Json = {"name": "echo", "description": "in the session", "inputSchema": {}}
    site = both(Site(), in_session=[kept, {"name": "own", "inputSchema": {}}], resources={})
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            tools = servers.tools_now()["one"]
            assert [one.name for one in tools] == ["echo", "own"]
            assert "description" not in tools[0].raw, "what both show is as the newer era shows it"
            for name in ("echo", "own"):
                for caller in (None, MODERN):
                    found = await servers.forward(replace(a_call(name), caller=caller))
                    assert said(found) == "done"
    calls = [(str(one.body["params"]), one.headers) for one in site.said("tools/call")]
    assert ["mcp-session-id" in headers for _, headers in calls] == [True, False, True, True]


async def test_a_server_of_both_eras_is_listened_to_where_its_session_tells_nothing() -> None:
    site = both(Site(), in_session=[], resources=TOLD)
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            await until(lambda: len(site.said("subscriptions/listen")) == 1)
            found = await servers.forward(operation("resources/subscribe", "note://a"))
            assert found.result == {}
    assert "note://a" in str(site.said("subscriptions/listen")[-1].body)


async def test_a_resource_of_which_neither_era_tells_is_not_subscribed_to() -> None:
    site = both(Site(), in_session=[], resources={})
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            found = await servers.forward(operation("resources/subscribe", "note://a"))
    assert found.error == {"code": -32601, "message": "no such method"}, "in the session's words"


async def test_nothing_is_listened_for_at_a_server_that_has_just_gone() -> None:
    asked = list[Json]()

    async def listen(params: Mapping[str, Json], _: Callable[[int], None]) -> ToolResult:
        asked.append(params["notifications"])
        return ToolResult(result={})

    subscriptions = notifications.ServerSubscriptions(listen)
    async with anyio.create_task_group() as tasks:
        subscriptions.listen_in(tasks)
        subscriptions.follow({"resources": {"subscribe": True}})
    subscriptions.listen_in(None)
    found = await subscriptions.change("note://a", 1, wanted=True)
    assert found.error is not None
    assert asked == []
