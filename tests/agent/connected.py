"""The proxy's server for the agent, behind real pipes, with calls that do what a test says."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import orjson
from anyio.lowlevel import checkpoint
from msgspec import structs

from ironcurtain_proxy.agent.asking import Introduction
from ironcurtain_proxy.agent.requests import RequestCapacity
from ironcurtain_proxy.agent.rounds import Rounds
from ironcurtain_proxy.agent.sealing import Sealing
from ironcurtain_proxy.agent.server import AgentServer
from ironcurtain_proxy.agent.transport import AgentTransport
from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.jsonrpc.codec import MirroredPaths
from ironcurtain_proxy.jsonrpc.pipes import LineReader, open_reader, open_writer
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.operation import Caller, ProgressListener
from ironcurtain_proxy.model.reply import Answered, Failed, Reply
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json

HELLO: dict[str, Json] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a", "version": "1"},
}

ENVELOPE: dict[str, Json] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
}
"""The `_meta` of a request without a handshake."""

MARKS: dict[str, dict[str, Json]] = {
    "marked": {"_meta": {"a": 1}},
    "array": {"structuredContent": [1]},
}
"""What the results of some calls hold, too."""

GIVEN_BACK_SLOWLY = ("resources/unsubscribe", "memo://kept")

TOOLS: list[Json] = [{"name": "echo", "inputSchema": {"type": "object"}, "x-unknown": 1.0}]


@dataclass
class Calls:
    """Implements what the agent's side asks of the rest. A call's name says what it does."""

    begun: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    turned_away: list[str] = field(default_factory=list)
    unserved: list[tuple[str, str]] = field(default_factory=list)
    tools: list[Json] = field(default_factory=lambda: list(TOOLS))
    callers: list[Caller | None] = field(default_factory=list)
    client: Rounds = field(init=False)
    """Reaches the agent's client."""
    entry: str = ""
    """The key of a server's question."""
    found: Callable[[], Awaitable[None]] = checkpoint
    """What happens while the tools are listed."""
    open: anyio.Event = field(default_factory=anyio.Event)
    """What waits goes on when this is set."""

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        caller: Caller | None = None,
    ) -> Reply:
        self.begun.append(exposed_name)
        arguments = params.get("arguments")
        if exposed_name == "fail":
            raise RuntimeError("a secret")
        if exposed_name == "error":
            assert isinstance(arguments, dict)
            return Answered(result=ToolResult(error=arguments))
        if exposed_name in {"written", "marked", "array"}:
            marks = MARKS.get(exposed_name, {})
            written = b'{"content":[],"by":"it"}'
            result = ToolResult(result={"content": [], **marks}, written=written)
            return Answered(result=result, recorded=arguments is None)
        if exposed_name == "progress" and on_progress is not None:
            meta = params["_meta"]
            assert isinstance(meta, dict)
            await on_progress({"progressToken": meta["progressToken"], "progress": 1})
        self.callers.append(caller)
        if exposed_name in {"question", "held", "approved"}:
            return await self._ask(exposed_name, caller)
        if exposed_name == "wait":
            try:
                await self.open.wait()
            except anyio.get_cancelled_exc_class():
                self.cancelled.append(exposed_name)
                raise
        return Answered(result=ToolResult(result={"content": [], "echo": arguments}))

    async def _ask(self, exposed_name: str, caller: Caller | None) -> Reply:
        if exposed_name != "question":
            with self.client.waiting(caller, is_sent=False):
                await self.open.wait()
        if exposed_name == "held":
            return Answered(result=ToolResult(result={"content": []}))
        if caller is not None:
            caller = structs.replace(caller, entry=self.entry)
        # A server asks while it works, twice.
        said: list[Json] = []
        for message in ("first", "second"):
            try:
                params: dict[str, Json] = {"message": message}
                answer = await self.client.request("elicitation/create", params, 10, caller)
                said.append(dict(answer))
            except AgentError:
                said.append({"action": "nobody"})
        return Answered(result=ToolResult(result={"content": [], "said": said}))

    async def turn_away(self, exposed_name: str, params: Mapping[str, Json]) -> Reply:
        self.turned_away.append(exposed_name)
        return Failed(message="busy")

    async def handle_operation(
        self,
        method: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        caller: Caller | None = None,
    ) -> Reply:
        self.begun.append(method)
        if params.get("uri") == "memo://slow" or (method, params.get("uri")) == GIVEN_BACK_SLOWLY:
            await self.open.wait()
        return Answered(result=ToolResult(result={"echo": dict(params)}))

    async def list_others(self, kind: str) -> list[Json]:
        return [{"name": kind}]

    async def list_tools(self) -> list[Json]:
        if self.levels == ["emergency"]:
            await self.open.wait()
        await self.found()
        if self.levels == ["alert"]:
            raise RuntimeError("a secret")
        return self.tools

    async def set_log_level(self, level: str) -> None:
        self.levels.append(level)

    async def note_unserved(self, method: str, ground: Ground) -> None:
        self.unserved.append((method, ground.rule))

    def note_client(self, name: str) -> None:
        self.clients.append(name)


@dataclass
class Wire:
    """An agent's end of two pipes."""

    write_end: int
    lines: LineReader
    arrived: list[dict[str, Json]] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        os.write(self.write_end, data)

    def send(self, **message: Json) -> None:
        self.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")

    def call(self, request_id: Json, name: str = "echo", **params: Json) -> None:
        self.send(id=request_id, method="tools/call", params={"name": name, **params})

    async def receive(self) -> dict[str, Json]:
        line = await self.lines.receive()
        assert isinstance(line, bytes)
        message: dict[str, Json] = orjson.loads(line)
        self.arrived.append(message)
        return message

    async def answer(self, request_id: Json) -> dict[str, Json]:
        """The answer to a request, whatever comes before it."""
        while True:
            for message in self.arrived:
                if message.get("id") == request_id and "method" not in message:
                    return message
            await self.receive()

    async def error_code(self, request_id: Json) -> Json:
        error = (await self.answer(request_id))["error"]
        assert isinstance(error, dict)
        return error["code"]

    async def ask(self, method: str, params: Json = None) -> dict[str, Json]:
        """Send a request and wait for its answer."""
        request_id = f"ask-{len(self.arrived)}"
        given: dict[str, Json] = {} if params is None else {"params": params}
        self.send(id=request_id, method=method, **given)
        return await self.answer(request_id)

    async def ask_alone(
        self, method: str, params: dict[str, Json] | None = None, **meta: Json
    ) -> dict[str, Json]:
        """Send a request that says itself who asks."""
        keys = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}
        return await self.ask(method, {**(params or {}), "_meta": {**ENVELOPE, **keys}})

    async def initialize(self, **params: Json) -> dict[str, Json]:
        return await self.ask("initialize", {**HELLO, **params})

    def hang_up(self) -> None:
        """Close the end that the server reads."""
        if self.write_end >= 0:
            os.close(self.write_end)
        self.write_end = -1


@dataclass
class Agent(Wire):
    """An agent of the proxy's server."""

    server: AgentServer = field(kw_only=True)
    calls: Calls = field(kw_only=True)
    is_served: anyio.Event = field(default_factory=anyio.Event)


@asynccontextmanager
async def an_agent(
    *,
    max_line: int = 1 << 20,
    capacity: RequestCapacity | None = None,
    drain_seconds: float = 10,
    in_headers: MirroredPaths | None = None,
    sealing: Sealing | None = None,
    is_behind_front: bool = False,
) -> AsyncIterator[Agent]:
    """An agent that is connected and has said nothing yet."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    calls = Calls()

    async def instructions() -> Introduction:
        return Introduction("be careful", capabilities={"tools": {}, "extensions": {"a/b": {}}})

    server = AgentServer(
        handle_call=calls.handle,
        list_tools=calls.list_tools,
        set_log_level=calls.set_log_level,
        transport=AgentTransport(
            await open_reader(to_read, max_line=max_line),
            await open_writer(from_write),
            drain_seconds=drain_seconds,
        ),
        handle_operation=calls.handle_operation,
        list_others=calls.list_others,
        turn_away=calls.turn_away,
        note_unserved=calls.note_unserved,
        on_client=calls.note_client,
        capacity=capacity or RequestCapacity(),
        instructions=instructions,
        in_headers=lambda _: in_headers or {},
        sealing=sealing or Sealing(),
        is_behind_front=is_behind_front,
    )
    calls.client = server.rounds
    agent = Agent(to_write, await open_reader(from_read), server=server, calls=calls)

    async def serve() -> None:
        await server.serve()
        agent.is_served.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield agent
        tasks.cancel_scope.cancel()
    agent.hang_up()
    agent.lines.close()
