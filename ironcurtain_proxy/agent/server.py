"""The MCP server that the agent talks to.

A low-level `mcp` server whose middleware answers `tools/*` with raw JSON: typed results would be
sieved, and unknown fields, the order of keys and the spelling of numbers would be lost. Knows MCP
and nothing of policies: a call goes to the handler it was given, and comes back as a `Reply`.

Resources, prompts, completions, sampling and elicitation of the servers are not offered: no policy
speaks of them, so nothing of them may pass.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import mcp_types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_loop
from mcp.shared.exceptions import MCPError

from ironcurtain_proxy.agent.calls import CallLane
from ironcurtain_proxy.agent.capacity import Room
from ironcurtain_proxy.agent.replies import words
from ironcurtain_proxy.model.reply import Answered, Reply
from ironcurtain_proxy.version import VERSION

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.transport import AgentTransport
    from ironcurtain_proxy.model.json import Json
    from ironcurtain_proxy.ports import CallHandler, ProgressListener

_log = logging.getLogger(__name__)

Context: TypeAlias = ServerRequestContext[None, object]
ToolLister: TypeAlias = "Callable[[], Awaitable[list[Json]]]"
LevelSetter: TypeAlias = Callable[[str], Awaitable[None]]

CallRefuser: TypeAlias = "Callable[[str, Mapping[str, Json]], Awaitable[Reply]]"

NAME: Final = "ironcurtain-proxy"
_CLIENT_LENGTH: Final = 100
_ABOVE_WARNING: Final = frozenset({"error", "critical", "alert", "emergency"})

OURS: Final = frozenset({"tools/call", "tools/list", "logging/setLevel"})
"""The methods answered here; `initialize` and `ping` are the SDK's, all others are not offered.
Once the agent has initialized, `tools/call` takes the fast lane and is not seen here.
"""


@dataclass(slots=True, kw_only=True)
class AgentServer:
    """One agent on one connection."""

    handle_call: "CallHandler"
    list_tools: ToolLister
    set_log_level: LevelSetter
    transport: "AgentTransport"
    turn_away: "CallRefuser | None" = None
    """Refuses a call that there is no room for; None: no call is that large."""
    room: Room = field(default_factory=Room)
    instructions: str | None = None
    on_client: Callable[[str], None] | None = None
    """Told which program the agent says it is."""
    _ready: bool = field(default=False, init=False)
    _log_level: str = field(default="", init=False)
    _calls: CallLane | None = field(default=None, init=False)

    async def serve(self) -> None:
        """Answer until the agent closes its end."""
        server: Server[None] = Server(NAME)
        server.middleware[:] = [self._answer]
        async with anyio.create_task_group() as tasks:
            self._calls = CallLane(
                tasks,
                self._call,
                self.transport.post,
                turn_away=None if self.turn_away is None else self._turn_away,
                room=self.room,
            )
            await self._serve(server)
            tasks.cancel_scope.cancel()

    async def _serve(self, server: Server[None]) -> None:
        await serve_loop(
            server,
            self.transport.reader,
            self.transport.writer,
            lifespan_state=None,
            init_options=InitializationOptions(
                server_name=NAME,
                server_version=VERSION,
                capabilities=mcp_types.ServerCapabilities(
                    tools=mcp_types.ToolsCapability(list_changed=True),
                    logging=mcp_types.LoggingCapability(),
                ),
                instructions=self.instructions,
            ),
        )

    async def tools_changed(self) -> None:
        """Tell the agent that its list of tools is out of date."""
        if self._ready:
            await self.transport.notify("notifications/tools/list_changed", None)

    async def log_message(self, params: "Mapping[str, Json]") -> None:
        """Pass on a log message of a server."""
        if self._ready:
            await self.transport.notify("notifications/message", params)

    async def log_own_message(self, params: "Mapping[str, Json]") -> None:
        """Send a warning of the proxy's own, unless the client wants graver messages only."""
        if self._log_level not in _ABOVE_WARNING:
            await self.log_message(params)

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        try:
            return await self._route(ctx, call_next)
        except (MCPError, ValueError):
            # ValueError: pydantic's, which the SDK turns into `invalid params` without its text.
            raise
        except Exception:  # noqa: BLE001  the SDK would send the exception's text to the agent
            _log.exception("request %s could not be answered", ctx.method)
            raise MCPError(code=mcp_types.INTERNAL_ERROR, message="Internal error") from None

    async def _route(self, context: Context, call_next: CallNext) -> HandlerResult:
        if context.method == "initialize":
            result = await call_next(context)
            self._ready = True
            if self.on_client is not None:
                self.on_client(_client_of(context.params or {}))
            self.transport.calls = self._calls
            return result
        if context.request_id is None or context.method not in OURS:
            return await call_next(context)
        if not self._ready:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message="initialize first")
        params = context.params or {}
        match context.method:
            case "tools/list":
                if params.get("cursor") is not None:
                    raise MCPError(code=mcp_types.INVALID_PARAMS, message="unknown cursor")
                return {"tools": await self.list_tools()}
            case "logging/setLevel":
                self._log_level = str(params.get("level"))
                await self.set_log_level(self._log_level)
                return {}
            case _:
                raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Method not found")

    async def _call(self, params: "Mapping[str, Json]") -> dict[str, object]:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            return _error(
                mcp_types.INVALID_PARAMS, "tools/call needs a name (string) and arguments (object)"
            )
        try:
            reply = await self.handle_call(name, params, self._progress(params))
        except Exception:  # noqa: BLE001  one call's defect must not end the others
            _log.exception("a call could not be answered")
            return _error(mcp_types.INTERNAL_ERROR, "Internal error")
        if isinstance(reply, Answered) and reply.result.error is not None:
            return _as_given(reply.result.error)
        return {"result": words(reply, name)}

    async def _turn_away(self, params: "Mapping[str, Json]") -> dict[str, object]:
        name = str(params.get("name"))
        if self.turn_away is None:
            return _error(mcp_types.INTERNAL_ERROR, "Internal error")
        return {"result": words(await self.turn_away(name, params), name)}

    def _progress(self, params: "Mapping[str, Json]") -> "ProgressListener | None":
        meta = params.get("_meta")
        if not isinstance(meta, dict) or "progressToken" not in meta:
            return None

        async def pass_on(progress: "Mapping[str, Json]") -> None:
            await self.transport.notify("notifications/progress", progress)

        return pass_on


def _client_of(params: "Mapping[str, object]") -> str:
    """The client's name and version, in one short line of visible characters."""
    info = params.get("clientInfo")
    words = [info.get("name"), info.get("version")] if isinstance(info, dict) else []
    text = " ".join([word for word in words if isinstance(word, str)])[:_CLIENT_LENGTH]
    return "".join([char for char in text if char.isprintable()]).strip()


def _error(code: int, message: str) -> dict[str, object]:
    return {"error": {"code": code, "message": message}}


def _as_given(error: "Mapping[str, Json]") -> dict[str, object]:
    """A server's JSON-RPC error, passed on; what is not one becomes an internal error."""
    code, message = error.get("code"), error.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
        return _error(mcp_types.INTERNAL_ERROR, "malformed error from the server")
    return {"error": error}
