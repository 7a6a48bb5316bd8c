"""One agent of the engine's load test, with its proxy; see `bench_engine`."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import orjson
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

ROOT: Final = Path(__file__).resolve().parents[1]
SERVER: Final = ROOT / "tests/e2e/servers/scripted.py"


@dataclass(slots=True)
class Session:
    """One agent and its proxy."""

    number: int
    home: Path
    directory: Path
    process: Process | None = None
    reader: BufferedByteReceiveStream | None = None
    waiting: dict[int, anyio.Event] = field(default_factory=dict)
    replies: dict[int, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    sent: int = 0

    @property
    def audit(self) -> Path:
        """Its audit log."""
        return self.directory / "audit.jsonl"

    @property
    def journal(self) -> Path:
        """What reached its server."""
        return self.directory / "journal.jsonl"

    def environment(self) -> dict[str, str]:
        """What its proxy is started with."""
        server = {
            "command": sys.executable,
            "args": [str(SERVER)],
            "annotations": "filesystem",
            "sandbox": False,
            "env": {
                "SCRIPTED_JOURNAL": str(self.journal),
                "SCRIPTED_TOOLS": str(self.home / "tools.json"),
            },
        }
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "IRONCURTAIN_SESSION_ID": f"session-{self.number}",
            "MCP_SERVERS_CONFIG": orjson.dumps({"files": server}).decode(),
            "GENERATED_DIR": str(self.home / "policy"),
            "ALLOWED_DIRECTORY": str(self.home / "work"),
            "AUDIT_LOG_PATH": str(self.audit),
            "SESSION_LOG_PATH": str(self.directory / "session.log"),
        }

    async def send(self, message: object) -> None:
        """One line to the proxy."""
        assert self.process is not None  # noqa: S101
        assert self.process.stdin is not None  # noqa: S101
        await self.process.stdin.send(orjson.dumps(message) + b"\n")

    async def call(self, tool: str, path: str) -> None:
        """Make one call, and again as long as it is told to come back later (X-17)."""
        self.made.add(path)
        reply = await self._once(tool, path)
        while "HELD: " in reply:
            # As an agent is told to: something else first, here nothing, then the same again.
            await anyio.sleep(0.02)
            reply = await self._once(tool, path)

    async def _once(self, tool: str, path: str) -> str:
        self.sent += 1
        number = self.sent
        self.waiting[number] = anyio.Event()
        params = {"name": tool, "arguments": {"path": path}}
        await self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        await self.waiting[number].wait()
        return self.replies[number]

    async def listen(self) -> None:
        """Take replies in until the proxy ends."""
        assert self.reader is not None  # noqa: S101
        while True:
            try:
                line = await self.reader.receive_until(b"\n", 1 << 20)
            except (anyio.IncompleteRead, anyio.ClosedResourceError):
                return
            message = orjson.loads(line)
            if "id" in message and "method" not in message:
                self.replies[message["id"]] = orjson.dumps(message).decode()
                if message["id"] in self.waiting:
                    self.waiting[message["id"]].set()

    async def start(self) -> None:
        """Start the proxy; it is not waited for."""
        self.directory.mkdir()
        self.process = await anyio.open_process(
            [sys.executable, "-m", "ironcurtain_proxy"],
            env=self.environment(),
            cwd=self.directory,
            stderr=None,
        )
        assert self.process.stdout is not None  # noqa: S101
        self.reader = BufferedByteReceiveStream(self.process.stdout)
        self.waiting[0] = anyio.Event()
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        await self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})

    async def greet(self) -> None:
        """Wait until the proxy has answered."""
        await self.waiting[0].wait()
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def close(self) -> None:
        """Let the proxy end."""
        assert self.process is not None  # noqa: S101
        assert self.process.stdin is not None  # noqa: S101
        await self.process.stdin.aclose()
