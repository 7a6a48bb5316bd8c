"""Which protocol versions of a server are taken, and what becomes of one that refuses ours."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response

from ironcurtain_proxy.downstream.eras import check_version, greet, supported_version
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.operation import HANDSHAKE_VERSIONS, VERSION_KEY, Caller
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Message, Site, remote, serving
from tests.downstream.scripted_servers import running, scripted, text_of
from tests.downstream.test_modern import BOTH, Around, found_out, operation, used

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_each_version_that_begins_with_initialize_is_taken(version: str) -> None:
    check_version("s", {"protocolVersion": version})


@pytest.mark.parametrize(
    "version", ["2026-07-28", "1999-01-01", "", None, 20251125, ["2025-11-25"]]
)
def test_any_other_version_is_refused_with_the_versions_that_are_spoken(version: Json) -> None:
    with pytest.raises(DownstreamError, match="2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"):
        check_version("s", {"protocolVersion": version})


def test_a_refusal_names_the_newest_version_to_try_next() -> None:
    known: Json = ["2024-11-05", "2025-06-18", "2999-01-01"]
    assert supported_version({"code": -32602, "data": {"supported": known}}) == "2025-06-18"
    assert supported_version({"code": -32602, "data": {"supported": ["2025-11-25"]}}) is None
    assert supported_version({"code": -32602, "data": {"supported": "2025-06-18"}}) is None
    assert supported_version({"code": -32602, "data": []}) is None


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", None])
async def test_a_server_of_an_unknown_version_offers_no_tool(version: Json) -> None:
    async with running(scripted(behaviour={"version": version})) as servers:
        assert await servers.tools() == {"one": ()}
        status = servers.status()["one"]
        assert status.state == "failed"
        assert "protocol version" in status.error


async def test_a_server_of_newer_versions_alone_is_left_out_with_a_clear_line() -> None:
    async with running(scripted(behaviour={"only": "2199-01-01"})) as servers:
        assert await servers.tools() == {"one": ()}
        assert "it speaks 2199-01-01, and the proxy speaks 2026-07-28, 2025-11-25" in (
            servers.status()["one"].error
        )


async def test_a_server_that_knows_no_initialize_is_told_from_one_that_refuses() -> None:
    async def ask(_: Mapping[str, Json]) -> ToolResult:
        return ToolResult(error={"code": -32601, "message": "Method not found"})

    with pytest.raises(
        DownstreamError, match="has no initialize, and no answer to server/discover"
    ):
        await greet("one", ask, {})


async def test_a_server_that_refuses_our_version_is_greeted_with_one_it_names() -> None:
    async with running(scripted(behaviour={"only": "2025-06-18"})) as servers:
        assert await text_of(servers, "echo", {"text": "hi"}) == "hi"


async def test_a_server_of_both_that_has_no_such_method_keeps_its_session() -> None:
    """Without a handshake that is 404, which in a session says that the session is forgotten."""
    error: Message = {"error": {"code": -32601, "message": "Method not found"}}

    async def handler(heard: Heard) -> Response | None:
        if heard.said in {"tools/list", "completion/complete"}:
            status = 404 if VERSION_KEY in str(heard.body) else 200
            return JSONResponse({"jsonrpc": "2.0", "id": heard.body["id"], **error}, status)
        return found_out(heard, BOTH)

    site = Site(handler=handler)
    caller = Caller(version="2026-07-28", capabilities={})
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            asked = replace(operation("completion/complete", "memo://a"), caller=caller)
            answer = await servers.forward(asked)
            assert answer.error == error["error"]
            assert servers.status()["one"].starts == 1
    assert len(site.said("initialize")) == 1
