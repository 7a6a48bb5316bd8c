"""The client of the official SDK at the front: lists, calls, resources, prompts, questions."""

from pathlib import Path

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent, TextResourceContents

from tests.e2e.http_front import TOKENS, an_http_front
from tests.e2e.installation import Installation, rule
from tests.e2e.test_operations import SAID, add_whole, annotate
from tests.e2e.test_server_questions import ASKED
from tests.fakes import NO_TLS
from tests.program import PATIENCE

pytestmark = pytest.mark.anyio


async def test_the_sdk_sees_all_of_the_protocol(tmp_path: Path) -> None:
    built = Installation(tmp_path)
    add_whole(built, "whole", {**SAID, "questions": [ASKED]}, ask=["form"])
    built.rules = [
        rule("tools", tool=["ask", "notify"]),
        rule("memo", uris={"schemes": [], "patterns": ["memo://*"]}),
        rule("greet", prompt=["greet"]),
    ]
    annotate(built)
    asked: list[str] = []

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ann"})

    with an_http_front(built) as front:
        headers = {"Authorization": f"Bearer {TOKENS['alice']}"}
        async with (
            httpx2.AsyncClient(
                headers=headers, timeout=PATIENCE, trust_env=False, verify=NO_TLS
            ) as http,
            streamable_http_client(front.url, http_client=http) as streams,
            ClientSession(streams[0], streams[1], elicitation_callback=answer) as session,
        ):
            started = await session.initialize()
            assert started.protocol_version == "2025-11-25"
            tools = await session.list_tools()
            assert [tool.name for tool in tools.tools] == ["ask", "notify"]
            called = await session.call_tool("ask", {})
            assert isinstance(called.content[0], TextContent)
            assert '"Ann"' in called.content[0].text
            assert asked == ["[whole] Who are you?"]
            read = await session.read_resource("memo://insights")
            assert isinstance(read.contents[0], TextResourceContents)
            assert read.contents[0].text == "text of memo://insights"
            prompt = await session.get_prompt("greet", {"name": "x"})
            assert prompt.messages
    built.end()
