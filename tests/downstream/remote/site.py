"""A real HTTP server on this machine that a test scripts, and a proxy's end that talks to it."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson
import uvicorn
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.servers.servers_file import ServersReader
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.starting import DownstreamOptions
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from tests.downstream.scripted_servers import OPTIONS, running

Message = dict[str, Json]

HERE: Final[list[Json]] = ["127.0.0.1"]
"""The addresses at which a server of this machine may be."""

_HOME = Path("/home/nobody")


@dataclass
class Heard:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Message = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The JSON-RPC method; empty: none."""
        return str(self.body.get("method", ""))


Handler = Callable[[Heard], Awaitable[Response | None]]
"""Answers a request, or leaves it to the site."""


@dataclass
class Site:
    """Answers as an MCP server of streamable HTTP; `handler` may answer first."""

    port: int = 0
    handler: Handler | None = None
    session: str | None = "s-1"
    heard: list[Heard] = field(default_factory=list)
    tools: list[str] = field(default_factory=lambda: ["echo"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def said(self, method: str) -> list[Heard]:
        return [one for one in self.heard if one.said == method]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        heard = Heard(request.method, request.url.path, dict(request.headers))
        if body and "json" in heard.headers.get("content-type", ""):
            heard.body = orjson.loads(body)
        self.heard.append(heard)
        answer = None if self.handler is None else await self.handler(heard)
        await (answer or self.usual(heard))(scope, receive, send)

    def usual(self, heard: Heard) -> Response:
        if heard.method != "POST":
            return Response(status_code=405)
        if "method" not in heard.body or "id" not in heard.body:
            return Response(status_code=202)
        result = self.result_of(heard)
        headers = (
            {"mcp-session-id": self.session} if self.session and "serverInfo" in result else {}
        )
        return JSONResponse(reply(heard, result), headers=headers)

    def result_of(self, heard: Heard) -> Message:
        match heard.said:
            case "initialize":
                return {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "site", "version": "1"},
                }
            case "tools/list":
                return {
                    "tools": [
                        {"name": name, "inputSchema": {"type": "object"}} for name in self.tools
                    ]
                }
            case _:
                return {"content": [{"type": "text", "text": "done"}]}


def reply(heard: Heard, result: Message) -> Message:
    return {"jsonrpc": "2.0", "id": heard.body["id"], "result": result}


def done(heard: Heard, text: str = "done") -> Message:
    return reply(heard, {"content": [{"type": "text", "text": text}]})


def event(message: Message | None = None, **fields: str) -> bytes:
    """One event of a stream."""
    lines = [f"{name}: {value}" for name, value in fields.items()]
    data = "" if message is None else orjson.dumps(message).decode()
    return "\n".join([*lines, f"data: {data}", "", ""]).encode()


def stream(*events: bytes) -> Response:
    async def send() -> AsyncIterator[bytes]:
        for one in events:
            yield one

    return StreamingResponse(send(), media_type="text/event-stream")


@contextmanager
def serving(site: Site, certificate: Path | None = None) -> Iterator[Site]:
    """The site on a port of its own, in a thread with a loop of its own.

    Args:
        site: the site.
        certificate: a file with a certificate and its key; None: without TLS.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            site,
            port=0,
            log_level="critical",
            timeout_graceful_shutdown=1,
            ws="none",
            ssl_certfile=certificate,
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    site.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.should_exit = True
        thread.join()


def remote(url: str, *, credentials: Mapping[str, str] | None = None, **entry: Json) -> ServerSpec:
    """A server as its entry configures it."""
    report = Report()
    (spec,) = ServersReader(_HOME).servers(
        DocumentNode({"one": {"type": "http", "url": url, **entry}}, "test", report)
    )
    report.raise_errors()
    return replace(spec, credentials=credentials or {})


@asynccontextmanager
async def talking_to(
    site: Site, *, options: DownstreamOptions = OPTIONS
) -> AsyncIterator[DownstreamServers]:
    """The proxy's end, with the site as its one server."""
    with serving(site):
        async with running(remote(site.url), options=options) as servers:
            yield servers
