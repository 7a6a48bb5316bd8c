"""A call whose session its server had forgotten: sent once more, where nothing can run twice.

The server answered that it does not know the session, so it took nothing. The call was authorized
for the tool as it was: where the greeted server describes it otherwise, the call is not sent.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from ironcurtain_proxy.downstream.supervisor import Supervisor
from ironcurtain_proxy.errors import SessionForgottenError
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ToolResult

_PATIENCE: Final = 10.0
"""Seconds for the server to be greeted again, and to list its tools."""
_LOOK_AGAIN: Final = 0.02


async def send_again_if_forgotten(
    supervisor: Supervisor, call: AuthorizedCall, send: Callable[[], Awaitable[ToolResult]]
) -> ToolResult:
    """Send a call, and once more if its session was forgotten.

    Raises:
        DownstreamError: the server is not there, failed, or took too long.
    """
    starts, described = supervisor.status().starts, _described(supervisor, call)
    try:
        return await send()
    except SessionForgottenError:
        if call.method != "tools/call" or described is None:
            raise
        with anyio.move_on_after(_PATIENCE):
            while not _is_back(supervisor, starts):  # noqa: ASYNC110  nobody tells
                await anyio.sleep(_LOOK_AGAIN)
        if not _is_back(supervisor, starts) or _described(supervisor, call) != described:
            raise
    return await send()


def _is_back(supervisor: Supervisor, starts: int) -> bool:
    status = supervisor.status()
    return status.starts > starts and status.state == "ready"


def _described(supervisor: Supervisor, call: AuthorizedCall) -> Mapping[str, Json] | None:
    return next((tool.raw for tool in supervisor.tools if tool.name == call.tool), None)
