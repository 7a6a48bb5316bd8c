"""Clients that are no code of ours: the SDK's own, and the public inspector."""

import subprocess
from typing import Final

import orjson
import pytest
from mcp import Client, ClientSession, StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

from ironcurtain_proxy.model.values import Json
from tests.e2e.http_front import TOKENS, an_http_front
from tests.e2e.installation import Installation
from tests.e2e.raw_client import at
from tests.e2e.real_servers import add_real, inspector
from tests.program import PATIENCE, PROXY, for_others

pytestmark = pytest.mark.anyio

NO_CHANNEL: Final = "tool 'read_text_file' execution denied: no approval channel available"


@pytest.fixture
def files(installation: Installation) -> Installation:
    """An installation with the real filesystem server."""
    add_real(installation, "filesystem")
    (installation.workspace / "note.txt").write_text("a note\n")
    (installation.home / ".ssh").mkdir()
    (installation.home / ".ssh/id_ed25519").write_text("key")
    return installation


def parameters(installation: Installation) -> StdioServerParameters:
    installation.write_policy()
    command, *words = for_others()
    return StdioServerParameters(command=command, args=words, env=installation.environment())


def first_text(result: object) -> str:
    assert isinstance(result, CallToolResult)
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.requirement("C-1", "C-2")
async def test_the_sdks_client_reads_is_denied_and_is_told_why(files: Installation) -> None:
    async with Client(parameters(files)) as client:
        listed = await client.list_tools()
        assert len(listed.tools) == 14
        read = await client.call_tool("read_text_file", {"path": "note.txt"})
        assert first_text(read) == "a note\n"
        key = await client.call_tool("read_text_file", {"path": "~/.ssh/id_ed25519"})
        assert first_text(key).startswith("DENIED: ")
        outside = await client.call_tool("read_text_file", {"path": "/etc/hosts"})
        assert first_text(outside).startswith(NO_CHANNEL)
    # First the client asks for a newer version of the protocol, which is a record, too.
    decided = [
        (at(record, "policyDecision", "status"), at(record, "policyDecision", "rule"))
        for record in files.outcomes()
    ]
    assert [status for status, rule in decided if rule != "not-offered"] == [
        "allow",
        "deny",
        "escalate",
    ]


async def test_the_sdks_session_gets_progress_and_structured_content(
    installation: Installation,
) -> None:
    add_real(installation, "everything")
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with (
        stdio_client(parameters(installation)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        await session.list_tools()
        await session.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.2, "steps": 2},
            progress_callback=on_progress,
        )
        result = await session.call_tool("get-structured-content", {"location": "New York"})
        assert isinstance(result, CallToolResult)
        assert result.structured_content is not None
    assert seen == [1, 2]


def inspected(installation: Installation, *arguments: str) -> Json:
    """What the inspector prints of an installation's proxy."""
    installation.write_policy()
    given = [f"{name}={value}" for name, value in installation.environment().items()]
    flags = [word for pair in given for word in ("-e", pair)]
    return printed(installation, *flags, *PROXY, *arguments)


def printed(installation: Installation, *arguments: str) -> Json:
    done = subprocess.run(
        [*inspector(), *arguments],
        env=installation.environment(),
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.stdout, done.stderr.decode()
    shown: Json = orjson.loads(done.stdout)
    return shown


def test_the_inspector_calls_a_tool(files: Installation) -> None:
    call = ["--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg"]
    shown = inspected(files, *call, "path=note.txt")
    assert at(shown, "content", 0, "text") == "a note\n"
    assert files.last_decision() == ("allow", "structural-sandbox-allow")


def test_the_inspector_comes_over_http_too(files: Installation) -> None:
    with an_http_front(files) as front:
        there = [front.url, "--header", f"Authorization: Bearer {TOKENS['alice']}", "--method"]
        call = ["tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=note.txt"]
        assert at(printed(files, *there, *call), "content", 0, "text") == "a note\n"
