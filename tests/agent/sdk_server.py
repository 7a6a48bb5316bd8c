"""The SDK's own low-level server on its own transport, behind pipes: the measure of ours."""

import os
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from ironcurtain_proxy import __version__
from ironcurtain_proxy.jsonrpc.pipes import open_reader
from tests.agent.connected import Wire

Context = ServerRequestContext[object]

TOOL = mcp_types.Tool(name="echo", input_schema={"type": "object"})


async def _list(
    context: Context, params: mcp_types.PaginatedRequestParams | None
) -> mcp_types.ListToolsResult:
    if params is not None and params.cursor is not None:
        raise MCPError(code=mcp_types.INVALID_PARAMS, message="unknown cursor")
    return mcp_types.ListToolsResult(tools=[TOOL])


async def _call(
    context: Context, params: mcp_types.CallToolRequestParams
) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[])


async def _set_level(
    context: Context, params: mcp_types.SetLevelRequestParams
) -> mcp_types.EmptyResult:
    return mcp_types.EmptyResult()


def _server() -> Server[object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # log levels are deprecated in a later version
        return Server(  # type: ignore[deprecated]
            "ironcurtain-proxy",
            version=__version__,
            instructions="be careful",
            on_list_tools=_list,
            on_call_tool=_call,
            on_set_logging_level=_set_level,
        )


@asynccontextmanager
async def the_sdk() -> AsyncIterator[Wire]:
    """An agent of the SDK's server that has said nothing yet."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    server = _server()
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))

    async def serve() -> None:
        with (
            os.fdopen(to_read, encoding="utf-8", errors="replace") as stdin,
            os.fdopen(from_write, "w", encoding="utf-8") as stdout,
        ):
            async with stdio_server(anyio.wrap_file(stdin), anyio.wrap_file(stdout)) as (
                read,
                write,
            ):
                await server.run(read, write, options)

    wire = Wire(to_write, await open_reader(from_read))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield wire
        wire.hang_up()
    wire.lines.close()
