"""Scripted servers behind a `DownstreamServers`, for tests."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import orjson
from anyio.abc import TaskStatus

from ironcurtain_proxy.downstream.guardian import descendants
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.starting import DownstreamOptions
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.server import ServerSpec, ToolResult
from ironcurtain_proxy.model.values import Json
from tests.program import PATIENCE

SCRIPT = Path(__file__).with_name("scripted_server.py")
OPTIONS = DownstreamOptions(start_deadline=PATIENCE)


def scripted(
    name: str = "one",
    behaviour: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> ServerSpec:
    """A scripted server. Isolated, so that it starts fast."""
    return ServerSpec(
        name=name,
        annotations=name,
        command=sys.executable,
        args=("-I", "-S", str(SCRIPT), orjson.dumps(behaviour or {}).decode()),
        env=env or {},
        credentials=credentials or {},
        cwd=cwd,
    )


@asynccontextmanager
async def running(
    *specs: ServerSpec, options: DownstreamOptions = OPTIONS
) -> AsyncIterator[DownstreamServers]:
    """The servers, started, and ended afterwards."""
    servers = DownstreamServers(specs or (scripted(),), options)
    servers.start_processes()
    async with anyio.create_task_group() as group:
        await group.start(run, servers)
        await servers.tools()
        try:
            yield servers
        finally:
            group.cancel_scope.cancel()


async def run(servers: DownstreamServers, *, task_status: TaskStatus[None]) -> None:
    """`DownstreamServers.run`, as a task group wants it."""
    await servers.run(task_status=task_status)


def a_call(
    tool: str, arguments: Mapping[str, Json] | None = None, server: str = "one", **params: Json
) -> AuthorizedCall:
    """A call as mediation would make it."""
    return AuthorizedCall(
        request_id=RequestId("r"),
        server=server,
        tool=tool,
        arguments=arguments or {},
        params={"name": f"{server}__{tool}", "arguments": {"not": "used"}, **params},
    )


async def text_of(
    servers: DownstreamServers,
    tool: str,
    arguments: Mapping[str, Json] | None = None,
    server: str = "one",
) -> str:
    """The text a call comes back with."""
    return text(await servers.forward(a_call(tool, arguments, server)))


def text(answer: ToolResult) -> str:
    """The text of a result."""
    assert answer.result is not None
    content = answer.result["content"]
    assert isinstance(content, list)
    assert isinstance(content[0], dict)
    return str(content[0]["text"])


def family(servers: DownstreamServers) -> list[int]:
    """The guardians and everything alive below them, wherever it has gone."""
    guardians = [status.pid for status in servers.status().values() if status.pid is not None]
    members = guardians + [pid for guardian in guardians for pid in descendants(guardian)]
    return [pid for pid in members if is_alive(pid)]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def modern_only(code: int, **data: Json) -> ServerSpec:
    """A process that refuses to be greeted with this error, and answers what it is."""
    program = """
import json, sys
code, data = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    method, id = message["method"], message.get("id")
    meta = message.get("params", {}).get("_meta", {})
    if method == "initialize":
        answer = {"error": {"code": code, "message": "no", "data": data}}
    elif "io.modelcontextprotocol/clientCapabilities" not in meta:
        answer = {"error": {"code": -32602, "message": "no envelope"}}
    elif method == "server/discover":
        answer = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    elif message.get("params", {}).get("name") == "crash":
        sys.exit(3)
    elif method == "tools/list":
        answer = {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
    else:
        answer = {"result": {"content": [{"type": "text", "text": "done"}]}}
    if id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
"""
    args = ("-I", "-S", "-c", program, orjson.dumps([code, data]).decode())
    return ServerSpec(name="one", annotations="one", command=sys.executable, args=args)
