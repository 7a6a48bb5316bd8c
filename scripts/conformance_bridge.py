"""Streamable HTTP in front of a server that speaks on standard input and output.

    conformance_bridge.py PORT COMMAND [ARGUMENT …]

The conformance suite of MCP reaches servers over HTTP alone. Each session gets a process of its
own. What a server says of its own accord goes to the newest request under way, or else to the
session's GET stream. Knows JSON-RPC and no method but `initialize`.
"""

import asyncio  # noqa: TID251  what uvicorn runs on
import json  # noqa: TID251  whatever a server writes
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Message = dict[str, object]
Stream = asyncio.Queue[Message | None]

_LIMIT = 64 << 20
_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_SESSION = "mcp-session-id"


class Session:
    """One process, and the streams that its messages go to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._under_way: dict[str, Stream] = {}
        self._own: Stream = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: list[str]) -> "Session":
        """Start a process."""
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LIMIT)
        )

    async def send(self, message: Message) -> None:
        """Hand a message to the process."""
        assert self._process.stdin is not None  # noqa: S101  it has pipes
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    def begin(self, message: Message) -> Stream:
        """The stream of a request, which is sent after this."""
        stream = self._under_way[json.dumps(message["id"])] = asyncio.Queue()
        return stream

    @property
    def own(self) -> Stream:
        """What belongs to no request."""
        return self._own

    async def end(self) -> None:
        """End the process."""
        self._reader.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5)
            return
        self._process.kill()

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  it has pipes
        while line := await self._process.stdout.readline():
            message: Message = json.loads(line)
            if "method" in message:
                newest = [*self._under_way.values()]
                (newest[-1] if newest else self._own).put_nowait(message)
            elif (stream := self._under_way.pop(json.dumps(message["id"]), None)) is not None:
                stream.put_nowait(message)
                stream.put_nowait(None)
        for stream in (*self._under_way.values(), self._own):
            stream.put_nowait(None)


class Bridge:
    """The sessions of one server."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._sessions: dict[str, Session] = {}

    async def answer(self, request: Request) -> Response:
        """Answer one HTTP request."""
        if (refused := _refusal(request)) is not None:
            return refused
        name = request.headers.get(_SESSION)
        if request.method == "POST":
            return await self._post(request, name)
        session = self._sessions.get(name or "")
        if session is None:
            return _error(404 if name else 400, "no such session")
        if request.method == "DELETE":
            await self._sessions.pop(str(name)).end()
            return Response(status_code=200)
        return StreamingResponse(_events(session.own), media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """End all processes with the bridge."""
        yield
        for session in self._sessions.values():
            await session.end()

    async def _post(self, request: Request, name: str | None) -> Response:
        message: Message = await request.json()
        if message.get("method") == "initialize":
            name = uuid.uuid4().hex  # noqa: TID251  a session of HTTP
            self._sessions[name] = await Session.start(self._command)
        session = self._sessions.get(name or "")
        if session is None:
            return _error(404 if name else 400, "no such session")
        if "method" not in message or "id" not in message:
            await session.send(message)
            return Response(status_code=202)
        stream = session.begin(message)
        await session.send(message)
        return StreamingResponse(
            _events(stream), media_type="text/event-stream", headers={_SESSION: str(name)}
        )


async def _events(stream: Stream) -> AsyncIterator[str]:
    while (message := await stream.get()) is not None:
        yield f"event: message\ndata: {json.dumps(message)}\n\n"


def _refusal(request: Request) -> Response | None:
    """DNS rebinding: a page of another host must not reach a server on this machine."""
    host = request.headers.get("host", "").rsplit(":", 1)[0]
    origin = request.headers.get("origin", "")
    from_here = not origin or origin.split("//")[-1].rsplit(":", 1)[0] in _HOSTS
    return None if host in _HOSTS and from_here else _error(403, "not from here")


def _error(status: int, text: str) -> Response:
    error = {"code": -32000, "message": text}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)


def main() -> None:
    """Serve until the process is ended."""
    bridge = Bridge(sys.argv[2:])
    routes = [Route("/mcp", bridge.answer, methods=["GET", "POST", "DELETE"])]
    uvicorn.run(
        Starlette(routes=routes, lifespan=bridge.lifespan),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
    )


if __name__ == "__main__":
    main()
