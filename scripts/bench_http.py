"""What the proxy adds to a call over HTTP: by its own front, and to a server that is reached so.

One server of streamable HTTP that answers at once, a client with one connection that stays open,
and a policy that allows. Each way is measured in turn, in rounds, so that a disturbance meets all
alike.
"""

import asyncio  # noqa: TID251  a runner
import contextlib
import http.client
import json  # noqa: TID251  as a client would
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

PROXY: Final = [sys.executable, "-m", "ironcurtain_proxy"]
CALLS: Final = 100
ROUNDS: Final = 14
SERVER: Final = """
import sys
import orjson, uvicorn
from starlette.requests import Request
from starlette.responses import Response

TOOLS = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
         "serverInfo": {"name": "bench", "version": "1"}}

async def app(scope, receive, send):
    request = Request(scope, receive)
    body = await request.body()
    if request.method != "POST":
        await Response(status_code=405)(scope, receive, send)
        return
    message = orjson.loads(body)
    if "id" not in message:
        await Response(status_code=202)(scope, receive, send)
        return
    result = {"initialize": HELLO, "tools/list": TOOLS}.get(
        message["method"], {"content": [{"type": "text", "text": "x" * 100}]})
    answer = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
    await Response(answer, media_type="application/json")(scope, receive, send)

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical", ws="none",
            http="h11", loop="asyncio", timeout_keep_alive=300)
"""


class HttpWay:
    """Calls over one connection."""

    def __init__(self, port: int, token: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self.call({"id": 1, "method": "initialize", "params": hello})
        self.call({"method": "notifications/initialized"})
        self.call({"id": 2, "method": "tools/list"})

    def call(self, message: dict[str, object]) -> bytes:
        """Post one message."""
        body = json.dumps({"jsonrpc": "2.0", **message})
        self._connection.request("POST", "/mcp", body, self._headers)
        answer = self._connection.getresponse()
        if session := answer.headers.get("mcp-session-id"):
            self._headers["mcp-session-id"] = session
        return answer.read()


class SdkWay:
    """Calls by the client of the SDK, as agents make them."""

    def __init__(self, port: int, token: str = "") -> None:
        self._loop = asyncio.Runner()
        self._opened = contextlib.AsyncExitStack()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = self._loop.run(self._open(f"http://127.0.0.1:{port}/mcp", headers))

    async def _open(self, url: str, headers: dict[str, str]) -> ClientSession:
        http = await self._opened.enter_async_context(
            httpx2.AsyncClient(headers=headers, trust_env=False)
        )
        streams = await self._opened.enter_async_context(
            streamable_http_client(url, http_client=http)
        )
        session = await self._opened.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()
        await session.list_tools()
        return session

    def call(self, message: dict[str, object]) -> bytes:
        """Make one call."""
        params = message["params"]
        result = self._loop.run(self._session.call_tool(params["name"], params["arguments"]))
        return result.content[0].text.encode()


class PipeWay:
    """Calls over standard input and output."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            PROXY, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self.call({"id": 1, "method": "initialize", "params": hello})
        self.send({"method": "notifications/initialized"})
        self.call({"id": 2, "method": "tools/list"})

    def send(self, message: dict[str, object]) -> None:
        """Send one message."""
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, message: dict[str, object]) -> bytes:
        """Send one request, and read up to its answer."""
        self.send(message)
        while b'"id":' not in (line := self.process.stdout.readline()):
            pass
        return line


def measure(call: Callable[[dict[str, object]], bytes]) -> float:
    """Milliseconds of one call, the middle one of many."""
    times = []
    for number in range(10, 10 + CALLS):
        # The breaker counts calls that are alike.
        params = {"name": "echo", "arguments": {"n": secrets.randbelow(1 << 40)}}
        start = time.perf_counter()
        answer = call({"id": number, "method": "tools/call", "params": params})
        times.append(time.perf_counter() - start)
        if b"xxxx" not in answer:
            raise SystemExit(f"no answer: {answer[:300]!r}")
    return statistics.median(times) * 1000


@contextlib.contextmanager
def running(command: list[str], environ: dict[str, str] | None = None) -> Iterator[None]:
    """Run a program meanwhile."""
    with subprocess.Popen(command, env=environ) as process:
        try:
            yield
        finally:
            process.terminate()


def until_open(port: int) -> None:
    """Wait until somebody listens."""
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("nobody listens")


def until_there(file: Path) -> None:
    """Wait until somebody has written a file."""
    for _ in range(300):
        if file.exists():
            return
        time.sleep(0.05)
    raise SystemExit("the front does not start")


def environment(directory: Path, url: str) -> dict[str, str]:
    """A policy that allows, and the server."""
    tool = {"toolName": "echo", "args": {"n": ["none"]}, "inputSchema": {}}
    annotations = {"servers": {"far": {"inputHash": "0", "tools": [tool]}}}
    rule = {"name": "all", "if": {"server": ["far"]}, "then": "allow", "reason": "measured"}
    (directory / "tool-annotations.json").write_text(json.dumps(annotations), "utf-8")
    (directory / "compiled-policy.json").write_text(json.dumps({"rules": [rule]}), "utf-8")
    workspace = directory / "workspace"
    workspace.mkdir()
    return {
        **os.environ,
        "HOME": str(directory),
        "GENERATED_DIR": str(directory),
        "ALLOWED_DIRECTORY": str(workspace),
        "MCP_SERVERS_CONFIG": json.dumps({"far": {"url": url}}),
    }


def main() -> None:
    """Measure all ways."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_urlsafe(32)
    with (
        tempfile.TemporaryDirectory() as place,
        running([sys.executable, "-c", SERVER, str(port)]),
    ):
        until_open(port)
        directory = Path(place)
        environ = environment(directory, f"http://127.0.0.1:{port}/mcp")
        file = directory / "port"
        front = {**environ, "PROXY_TOKEN": token, "PROXY_PORT_FILE": str(file)}
        with running([*PROXY, "serve", "--http"], front):
            until_there(file)
            pipe = PipeWay(environ)
            front_port = int(file.read_text("ascii"))
            ways = {
                "direct": HttpWay(port).call,
                "stdio, then HTTP": pipe.call,
                "HTTP, then HTTP": HttpWay(front_port, token).call,
                "direct, by the SDK": SdkWay(port).call,
                "HTTP, HTTP, by the SDK": SdkWay(front_port, token).call,
            }
            found: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, call in ways.items():
                    found[name].append(measure(call))
            pipe.process.stdin.close()
            pipe.process.wait()
    for name, times in found.items():
        direct = found["direct, by the SDK" if "SDK" in name else "direct"]
        middle, least = statistics.median(times), min(times)
        sys.stdout.write(
            f"{name:24} {middle:6.2f} ms, {middle - statistics.median(direct):+.2f}; "
            f"quietest round {least:6.2f} ms, {least - min(direct):+.2f}\n"
        )


if __name__ == "__main__":
    main()
