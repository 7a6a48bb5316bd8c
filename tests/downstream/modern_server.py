"""A real server of the SDK 2, which a test starts as a process or at an HTTP port.

modern_server.py            over standard input and output, in both eras
modern_server.py --http     over HTTP, at a port that it prints; it refuses `initialize`, too
"""

import json  # noqa: TID251  a program of its own
import socket
import sys
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
    ListRootsRequest,
)
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

mcp = MCPServer("modern", instructions="Ask me.")
seen: list[str] = ["first"]


def _question(message: str) -> ElicitRequest:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


@mcp.tool()
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@mcp.tool()
def region(place: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Place"})]) -> str:
    """Say where."""
    return place


@mcp.tool()
def abilities(ctx: Context) -> str:
    """Say what the client of this call can do."""
    return json.dumps(ctx.session.client_params.capabilities.model_dump(exclude_none=True))


@mcp.tool()
def greet(ctx: Context) -> str | InputRequiredResult:
    """Greet a person whose name is asked for, in two rounds."""
    given, state = ctx.input_responses or {}, ctx.request_state
    if state is None:
        asked: InputRequests = {"name": _question("Who are you?"), "roots": ListRootsRequest()}
        return InputRequiredResult(input_requests=asked, request_state="näme/" + "x" * 65_000)
    name = given.get("name")
    if isinstance(name, ElicitResult) and "roots" in given:
        seen.append(f"{state[:5]}{len(state)} {name.action} {name.content}")
        return InputRequiredResult(request_state="again")
    return seen[-1]


@mcp.tool()
async def grow(ctx: Context) -> str:
    """Have one tool more, and say so."""
    mcp.add_tool(lambda: "new", name=f"grown_{len(seen)}", description="new")
    seen.append("grown")
    await ctx.notify_tools_changed()
    return "grown"


@mcp.resource("note://one")
def note() -> str:
    """A note."""
    return "one"


@mcp.tool()
async def write(ctx: Context) -> str:
    """Change the note, and say so."""
    await ctx.notify_resource_updated("note://one")
    return "written"


def refusing(app: ASGIApp) -> ASGIApp:
    """Refuse `initialize`, which the SDK's server serves beside the rest."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        if json.loads(body).get("method") == "initialize":
            error = {"code": -32601, "message": "Method not found"}
            answer = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error}
            await JSONResponse(answer, 404)(scope, receive, send)
            return
        rest = iter([{"type": "http.request", "body": body}])

        async def again() -> Message:
            return next(rest, None) or await receive()

        await app(scope, again, send)

    return served


if __name__ == "__main__":
    if sys.argv[1:] == ["--http"]:
        import uvicorn

        listener = socket.create_server(("127.0.0.1", 0))
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(refusing(mcp.streamable_http_app()), log_level="critical")
        uvicorn.Server(config).run([listener])
    else:
        mcp.run()
