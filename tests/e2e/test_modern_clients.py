"""Clients of both official SDKs that speak 2026-07-28 alone, before servers with a handshake.

A server asks its question and a reviewer's form comes while a call is under way; the SDK's own
driver answers each with a further request.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import httpx2
import orjson
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, TextContent

from ironcurtain_proxy.model.values import Json
from tests.e2e.http_front import TOKENS, an_http_front
from tests.e2e.installation import ROOT, Installation, rule
from tests.e2e.real_servers import PACKAGES, missing
from tests.e2e.test_operations import SAID, add_whole
from tests.e2e.test_server_questions import ASKED
from tests.fakes import NO_TLS
from tests.program import PATIENCE, for_others

pytestmark = pytest.mark.anyio

MODERN: Final = "2026-07-28"
TYPESCRIPT: Final = Path(__file__).parent / "clients" / "modern_typescript.mjs"
SEEN: Final[dict[str, Json]] = {
    "tools": True,
    "answer": "hello",
    "named": True,
    "denied": True,
    "asked": ["May the agent use scripted/ask?", "[whole] Who are you?"],
}


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Installation]:
    built = Installation(tmp_path / "installed")
    built.add_scripted()
    built.allow_scripted()
    add_whole(built, "whole", {**SAID, "questions": [ASKED]}, ask=["form"])
    built.rules.append(rule("whole", server=["whole"], tool=["ask"]))
    built.annotations["whole"] = {"ask": {}}
    built.variables["ESCALATION_CHANNELS"] = "elicitation"
    built.variables["PINS"] = "off"
    built.write_policy()
    yield built
    built.end()


@dataclass
class Person:
    """The user of a client, who approves and gives a name, no faster than a person reads."""

    asked: list[Json] = field(default_factory=list)

    async def answer(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        del context
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message.splitlines()[0])
        await anyio.sleep(0.4)
        is_review = "decision" in params.requested_schema["properties"]
        return ElicitResult(
            action="accept", content={"decision": "approve"} if is_review else {"name": "Ann"}
        )


async def seen_by(client: Client) -> dict[str, Json]:
    async def call(name: str, **given: Json) -> str:
        content = (await client.call_tool(name, given)).content[0]
        assert isinstance(content, TextContent)
        return content.text

    async with client:
        seen: dict[str, Json] = {"tools": bool((await client.list_tools()).tools)}
        seen["answer"] = await call("scripted__answer", text="hello")
        assert '"please"' in await call("scripted__ask", text="please")
        seen["named"] = '"Ann"' in await call("whole__ask")
        seen["denied"] = "DENIED" in await call("scripted__forbidden", text="x")
    return seen


@pytest.mark.parametrize("mode", [MODERN, "auto"])
async def test_the_python_sdk_answers_questions_of_servers_and_of_reviewers(
    mode: str, built: Installation
) -> None:
    person = Person()
    program, *words = for_others()
    command = StdioServerParameters(command=program, args=words, env=built.environment(), cwd=ROOT)
    client = Client(stdio_client(command), mode=mode, elicitation_callback=person.answer)
    assert {**await seen_by(client), "asked": person.asked} == SEEN
    person = Person()
    headers = {"Authorization": f"Bearer {TOKENS['alice']}"}
    with an_http_front(built) as front:
        async with httpx2.AsyncClient(
            headers=headers, timeout=PATIENCE, trust_env=False, verify=NO_TLS
        ) as http:
            client = Client(
                streamable_http_client(front.url, http_client=http),
                mode=mode,
                elicitation_callback=person.answer,
            )
            assert {**await seen_by(client), "asked": person.asked} == SEEN


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_the_typescript_sdk_answers_questions_of_servers_and_of_reviewers(
    over: str, built: Installation
) -> None:
    node = shutil.which("node")
    if node is None or not (PACKAGES / "client").exists():
        missing("@modelcontextprotocol/client")
    with an_http_front(built) as front:
        command = [str(node), str(TYPESCRIPT), front.url if over == "http" else "-", *for_others()]
        environ = {**built.environment(), "MCP_TOKEN": TOKENS["alice"]}
        done = subprocess.run(
            command, env=environ, cwd=ROOT, capture_output=True, check=False, timeout=PATIENCE
        )
    assert done.stdout, done.stderr.decode()[-3000:]
    seen: dict[str, Json] = orjson.loads(done.stdout)
    assert '"please"' in str(seen.pop("approved"))
    assert seen == SEEN
