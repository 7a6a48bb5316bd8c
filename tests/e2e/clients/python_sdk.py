"""Two sessions through the client of the Python SDK, 1.x or 2.x; prints what each saw as JSON.

python_sdk.py URL COMMAND [ARGUMENT ...]

The first is with the command, with our environment for the proxy; the second with the URL and the
token in MCP_TOKEN.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

IS_FIRST = version("mcp").startswith("1.")
if IS_FIRST:
    import httpx as http_library
    import mcp.types as sdk_types
else:
    import httpx2 as http_library
    import mcp_types as sdk_types

seen: dict[str, Any] = {}


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def text(result: Any) -> str:
    return str(plain(result)["content"][0]["text"])


async def person(context: object, params: Any) -> Any:
    seen["asked"] = params.message.splitlines()[0]
    await anyio.sleep(0.4)  # nobody reads faster
    return sdk_types.ElicitResult(action="accept", content={"decision": "approve"})


async def log(params: Any) -> None:
    seen["log"].append(params.data)


async def on_progress(progress: float, total: float | None, message: str | None) -> None:
    seen["progress"].append(progress)


async def notice(message: Any) -> None:
    root = getattr(message, "root", message)
    if getattr(root, "method", "") == "notifications/tools/list_changed":
        seen["changed"] += 1


async def talk(session: ClientSession) -> None:
    hello = plain(await session.initialize())
    seen["version"] = hello["protocolVersion"]
    seen["capabilities"] = hello["capabilities"]
    seen["server"] = hello["serverInfo"]["name"]
    seen["instructed"] = "instructions" in hello
    seen["ping"] = plain(await session.send_ping())
    seen["tools"] = sorted(tool.name for tool in (await session.list_tools()).tools)
    await session.set_logging_level("debug")
    seen["answer"] = text(await session.call_tool("answer", {"text": "hello \u00e9\U0001f600"}))
    await session.call_tool("log", {"text": "a word"})
    await session.call_tool("progress", {"times": 3}, progress_callback=on_progress)
    seen["approved"] = json.loads(text(await session.call_tool("ask", {"text": "/srv/x"})))
    denied = await session.call_tool("forbidden", {"text": "x"})
    seen["denied"] = [plain(denied)["isError"], text(denied).split(":")[0]]
    patience: Any = timedelta(seconds=0.3) if IS_FIRST else 0.3
    try:
        await session.call_tool("hold", {"key": "k"}, patience)
    except Exception:
        seen["gave_up"] = True
    try:
        await session.list_resources()
    except Exception as error:
        seen["resources"] = getattr(error, "error", error).code
    await session.call_tool("change", {"add": "added"})
    while not seen["changed"]:
        await anyio.sleep(0.01)
    seen["added"] = "added" in [tool.name for tool in (await session.list_tools()).tools]


@asynccontextmanager
async def connected(command: str, *args: str) -> AsyncIterator[tuple[Any, Any]]:
    if command.startswith("http:"):
        headers = {"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"}
        http: Any = http_library.AsyncClient(headers=headers, timeout=30, trust_env=False)
        async with http, streamable_http_client(command, http_client=http) as streams:
            yield streams[0], streams[1]
    else:
        server = StdioServerParameters(command=command, args=[*args], env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            yield read, write


async def seen_of(*command: str) -> dict[str, Any]:
    seen.clear()
    seen.update({"asked": "", "log": [], "progress": [], "changed": 0})
    with anyio.fail_after(40):
        async with (
            connected(*command) as (read, write),
            ClientSession(
                read,
                write,
                elicitation_callback=person,
                logging_callback=log,
                message_handler=notice,
            ) as session,
        ):
            await talk(session)
    return {**seen, "changed": True}


async def main() -> None:
    url, *command = sys.argv[1:]
    sys.stdout.write(json.dumps([await seen_of(*command), await seen_of(url)]))


anyio.run(main)
