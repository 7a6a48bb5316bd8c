"""One server, written with one of three libraries of Python, for `run.py`.

server.py python-1|python-2|fastmcp [--http]

`--http` listens at a port, which is printed.
"""

import socket
import sys
from typing import Annotated

import uvicorn
from pydantic import BaseModel

which, *options = sys.argv[1:]
if which == "python-1":
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Server
elif which == "python-2":
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Server
    from mcp.server.mcpserver.resolve import Elicit, Resolve
else:
    from fastmcp import Context
    from fastmcp import FastMCP as Server
    from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

mcp = Server("eras")


class Person(BaseModel):
    """Who answers the server's question."""

    name: str


@mcp.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@mcp.tool()
def guard(text: str) -> str:
    """Do what a reviewer approves first."""
    return text


@mcp.tool()
async def steps(times: int, ctx: Context) -> str:
    """Report progress."""
    for one in range(1, times + 1):
        await ctx.report_progress(one, times)
    return "done"


if which == "python-1":

    @mcp.tool()
    async def who(ctx: Context) -> str:
        """Ask for a name."""
        said = await ctx.elicit("Who are you?", Person)
        return f"Hello {said.data.name}" if said.action == "accept" else said.action

elif which == "python-2":

    async def ask() -> Elicit[Person]:
        """Return the question, which the SDK asks as the era of the call wants it."""
        return Elicit("Who are you?", Person)

    @mcp.tool()
    async def who(person: Annotated[Person, Resolve(ask)]) -> str:
        """Ask for a name."""
        return f"Hello {person.name}"

else:

    @mcp.tool()
    async def who(ctx: Context):  # noqa: ANN201  of the library, which reads it
        """Ask for a name."""
        if not ctx._is_modern_protocol():  # noqa: SLF001  it has no other way to know
            said = await ctx.elicit("Who are you?", Person)
            return f"Hello {said.data.name}" if said.action == "accept" else said.action
        given = (ctx.input_responses or {}).get("who")
        if given is None:
            schema = Person.model_json_schema()
            asked = ElicitRequestFormParams(message="Who are you?", requested_schema=schema)
            return InputRequiredResult(input_requests={"who": ElicitRequest(params=asked)})
        return f"Hello {given.content['name']}" if given.action == "accept" else given.action


@mcp.resource("note://one")
def one() -> str:
    """Say one."""
    return "one"


@mcp.prompt()
def hello(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"


def listen() -> None:
    """Serve over HTTP, at a port that is printed."""
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    app = mcp.http_app() if which == "fastmcp" else mcp.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


if "--http" in options:
    listen()
elif which == "fastmcp":
    mcp.run(show_banner=False)
else:
    mcp.run()
