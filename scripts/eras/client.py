"""Sessions through one of three clients of Python, for `run.py`; prints what each saw as JSON.

client.py python-1|python-2|fastmcp legacy|auto|2026-07-28 SERVERS WAYS [COMMAND ...]

SERVERS are the names of servers behind the proxy, with commas; without one, the server is alone.
WAYS are addresses, with commas, of which each gets a session; `-` is that of COMMAND.
"""

import json  # noqa: TID251  a program of its own
import os
import sys
from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

which, mode, names, ways, *command = sys.argv[1:]
if which == "python-1":
    import httpx as http_library
    from mcp.types import ElicitResult
else:
    import httpx2 as http_library
    from mcp_types import ElicitResult
if which == "python-2":
    from mcp import Client
elif which == "fastmcp":
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


async def person(_context: object, _params: object) -> ElicitResult:
    """Answer a server's question."""
    return ElicitResult(action="accept", content={"name": "Ann"})


async def person_of_fastmcp(*_: object) -> dict:
    """Answer a server's question."""
    return {"name": "Ann"}


@asynccontextmanager
async def connected(url: str):  # noqa: ANN201
    """Give the streams of a transport."""
    if url == "-":
        there = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        async with stdio_client(there) as (read, write):
            yield read, write
        return
    headers = {"Authorization": f"Bearer {os.environ.get('MCP_TOKEN', '')}"}
    http = http_library.AsyncClient(headers=headers, timeout=60, trust_env=False)
    async with http, streamable_http_client(url, http_client=http) as streams:
        yield streams[0], streams[1]


@asynccontextmanager
async def session(url: str):  # noqa: ANN201
    """Give a client, connected."""
    if which == "python-1":
        async with (
            connected(url) as (read, write),
            ClientSession(read, write, elicitation_callback=person) as client,
        ):
            await client.initialize()
            yield client
    elif which == "python-2":
        async with Client(connected(url), mode=mode, elicitation_callback=person) as client:
            yield client
    else:
        if url == "-":
            transport = StdioTransport(command[0], command[1:], env=dict(os.environ))
        else:
            headers = {"Authorization": f"Bearer {os.environ.get('MCP_TOKEN', '')}"}
            transport = StreamableHttpTransport(url, headers=headers)
        async with Client(transport, mode=mode, elicitation_handler=person_of_fastmcp) as client:
            yield client


async def seen_of(client, name: str) -> dict:  # noqa: ANN001
    """Return what a client sees of one server."""
    seen, moves = {}, []
    tool, uri = f"{name}__" if name else "", f"{name}+note://one" if name else "note://one"

    async def moved(progress: float, *_: object) -> None:
        moves.append(progress)

    async def call(what: str, given: dict) -> str:
        key = "progress_handler" if which == "fastmcp" else "progress_callback"
        more = {key: moved} if what == "steps" else {}
        return (await client.call_tool(f"{tool}{what}", given, **more)).content[0].text

    async def step(key: str, work) -> None:  # noqa: ANN001
        try:
            with anyio.fail_after(30):
                seen[key] = await work
        except Exception as error:  # noqa: BLE001  what is seen is printed
            seen[key] = f"{type(error).__name__}: {error}"[:300]

    async def read() -> str:
        found = await client.read_resource(uri)
        return (found if isinstance(found, list) else found.contents)[0].text

    async def prompt() -> str:
        found = await client.get_prompt(f"{tool}hello", {"name": "Bo"})
        return found.messages[0].content.text

    await step("add", call("add", {"a": 2, "b": 3}))
    await step("steps", call("steps", {"times": 3}))
    await anyio.sleep(0.05)  # progress may come behind its answer
    seen["progress"] = moves
    await step("who", call("who", {}))
    await step("guard", call("guard", {"text": "x"}))
    await step("read", read())
    await step("prompt", prompt())
    return seen


async def main() -> None:
    """Print what is seen of all servers in each session."""
    every: list[dict] = []
    for url in ways.split(","):
        seen: dict = {}
        async with session(url) as client:
            listed = await client.list_tools()
            tools = [tool.name for tool in getattr(listed, "tools", listed)]
            for name in names.split(","):
                given = [tool for tool in tools if not name or tool.startswith(f"{name}__")]
                seen[name] = {"tools": len(given), **await seen_of(client, name)}
        every.append(seen)
    sys.stdout.write(json.dumps(every))


anyio.run(main)
