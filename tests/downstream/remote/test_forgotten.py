"""Sessions that a server has forgotten: what is sent once more, and what is not."""

from contextlib import suppress

import anyio
import pytest
from starlette.responses import JSONResponse, Response

from ironcurtain_proxy.errors import DownstreamError, ServerUnavailableError, UnansweredError
from tests.downstream.remote.site import Heard, Message, Site, event, reply, stream, talking_to
from tests.downstream.scripted_servers import a_call, text_of
from tests.program import until

pytestmark = pytest.mark.anyio


async def test_a_call_that_met_a_forgotten_session_is_sent_again_in_a_new_one() -> None:
    forgotten = False

    async def handler(heard: Heard) -> Response | None:
        old = heard.headers.get("mcp-session-id") == "s-1"
        return Response(status_code=404) if forgotten and old else None

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        forgotten, site.session = True, "s-2"
        assert await text_of(servers, "echo") == "done"
    assert [one.headers["mcp-session-id"] for one in site.said("tools/call")] == ["s-1", "s-2"]
    assert [one.said for one in site.heard].count("initialize") == 2


async def test_a_call_to_a_session_that_ends_just_now_fails_as_a_call_to_a_server() -> None:
    async def handler(heard: Heard) -> Response | None:
        lost = heard.said == "tools/call" and len(site.said("tools/call")) <= 2
        return Response(status_code=404) if lost else None

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        with pytest.raises(ServerUnavailableError, match="forgotten the session"):
            await servers.forward(a_call("echo"))
        with suppress(DownstreamError):
            await servers.forward(a_call("echo"))
        await until(lambda: servers.status()["one"].state == "ready")
        assert await text_of(servers, "echo") == "done"


async def test_a_server_with_sessions_that_serves_post_alone_is_used_in_one_session() -> None:
    async def handler(heard: Heard) -> Response | None:
        return Response(status_code=404) if heard.method == "GET" else None

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        await until(lambda: any(one.method == "GET" for one in site.heard))
        for _ in range(3):
            assert await text_of(servers, "echo") == "done"
            await anyio.sleep(0.02)
    assert [one.said for one in site.heard].count("initialize") == 1


async def test_a_call_is_not_sent_again_to_a_tool_that_is_another_now() -> None:
    forgotten = False

    async def handler(heard: Heard) -> Response | None:
        if heard.headers.get("mcp-session-id") == "s-1" and forgotten:
            return Response(status_code=404)
        if heard.said == "tools/list" and forgotten:
            tool: Message = {"name": "echo", "description": "x", "inputSchema": {"type": "object"}}
            return JSONResponse(reply(heard, {"tools": [tool]}))
        return None

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        forgotten, site.session = True, "s-2"
        with pytest.raises(ServerUnavailableError, match="forgotten the session"):
            await servers.forward(a_call("echo"))
    assert len(site.said("tools/call")) == 1


async def test_a_call_whose_session_is_forgotten_while_it_runs_may_have_been_carried_out() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            return stream(event(id="1", retry="10"))
        return Response(status_code=404) if "last-event-id" in heard.headers else None

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        with pytest.raises(UnansweredError, match="forgotten the session during the call"):
            await servers.forward(a_call("echo"))
    assert len(site.said("tools/call")) == 1
