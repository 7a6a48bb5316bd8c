"""Redirects of servers: followed within their own origin, with the message, and nowhere else."""

from contextlib import suppress

import pytest
from starlette.responses import RedirectResponse, Response

from ironcurtain_proxy.errors import DownstreamError, ServerUnavailableError
from tests.downstream.remote.site import Heard, Site, serving, talking_to
from tests.downstream.scripted_servers import a_call, text_of
from tests.tables import table

pytestmark = pytest.mark.anyio


async def test_a_redirect_within_the_origin_is_followed_with_the_message() -> None:
    async def handler(heard: Heard) -> Response | None:
        return None if heard.path == "/mcp/" else RedirectResponse("/mcp/", status_code=307)

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        assert await text_of(servers, "echo") == "done"


@pytest.mark.parametrize("target", table("downstream/redirects.other_origins", list[str]))
async def test_a_redirect_to_another_origin_is_not_followed(target: str) -> None:
    with serving(Site()) as other:

        async def handler(heard: Heard) -> Response | None:
            if heard.said != "tools/call":
                return None
            there = target.format(port=site.port, other=other.port)
            return RedirectResponse(there, status_code=307)

        site = Site(handler=handler)
        async with talking_to(site) as servers:
            with pytest.raises(
                ServerUnavailableError,
                match=r"redirects to (https?://[^/]+|nowhere): only .*; if another is right",
            ):
                await servers.forward(a_call("echo"))
        assert other.heard == []
        assert len(site.said("tools/call")) == 1


async def test_a_redirect_that_would_drop_the_message_is_not_followed() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call":
            return None
        return RedirectResponse("/mcp/other", status_code=303)

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        with pytest.raises(ServerUnavailableError):
            await servers.forward(a_call("echo"))
    assert all(one.path == "/mcp" for one in site.heard)


@pytest.mark.parametrize(
    "target",
    ["/\\169.254.169.254/", "\\\\169.254.169.254\\", "/mcp?x=http://169.254.169.254/", "?", ""],
)
async def test_a_redirect_that_is_spelled_oddly_leads_to_nobody_else(target: str) -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call" or len(site.said("tools/call")) > 1:
            return None
        return Response(status_code=307, headers={"location": target})

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        with suppress(DownstreamError):
            assert await text_of(servers, "echo") == "done"
    assert {one.headers["host"] for one in site.heard} == {f"127.0.0.1:{site.port}"}
