"""A running `serve --http` of an installation, and agents that speak HTTP to it."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import orjson

from ironcurtain_proxy.model.values import Json
from tests.agent.connected import ENVELOPE
from tests.e2e.installation import Installation
from tests.e2e.raw_client import NEWEST, Message, RawClient, at
from tests.fakes import NO_TLS
from tests.program import PATIENCE, wait_until

BOTH: Final = "application/json, text/event-stream"
TOKENS: Final = {"alice": "alice-" + "a" * 40, "bob": "bob-" + "b" * 40}


@dataclass
class FrontAddress:
    """Where a front listens."""

    port: int
    client: RawClient
    """The process, of which only the process is used."""

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def agent(self, name: str = "alice") -> "HttpAgent":
        """An agent with the token of a principal."""
        return HttpAgent(self.url, {"Authorization": f"Bearer {TOKENS[name]}"})

    def errors(self) -> str:
        """What it printed."""
        return self.client.errors.read_text("utf-8")


@dataclass
class HttpAgent:
    """Requests of an agent, each as it is said."""

    url: str
    headers: dict[str, str]
    session: dict[str, str] = field(default_factory=dict)
    last: int = 0

    def open(self) -> httpx.Client:
        """A client with the token and the session."""
        headers = {"Accept": BOTH, **self.headers, **self.session}
        return httpx.Client(headers=headers, timeout=PATIENCE, trust_env=False, verify=NO_TLS)

    def post(self, message: Json, **headers: str) -> httpx.Response:
        """Post one message, whole."""
        with self.open() as client:
            body = orjson.dumps(message)
            kind = {"Content-Type": "application/json"}
            return client.post(self.url, content=body, headers={**kind, **headers})

    def initialize(self, version: str = NEWEST, **capabilities: Json) -> httpx.Response:
        """Begin a session."""
        params: Message = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "http agent", "version": "1"},
        }
        answer = self.post(self.message("initialize", params))
        assert answer.status_code == 200, answer.text
        self.session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        done = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert done.status_code == 202
        return answer

    def message(self, method: str, params: Message | None = None) -> Message:
        """A request with an id of its own."""
        self.last += 1
        given: Message = {} if params is None else {"params": params}
        return {"jsonrpc": "2.0", "id": self.last, "method": method, **given}

    def alone(self, method: str, params: Message | None = None, **headers: str) -> httpx.Response:
        """Post a request that says itself who asks, with the headers that repeat what it says."""
        meta: Json = {**ENVELOPE}
        message = self.message(method, {"_meta": meta, **(params or {})})
        said = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        named = (params or {}).get("name", (params or {}).get("uri"))
        if isinstance(named, str):
            said["Mcp-Name"] = named
        return self.post(message, **{**said, **headers})

    def call(self, tool: str, **arguments: Json) -> Json:
        """Call a tool, and read its answer."""
        answer = self.post(self.message("tools/call", {"name": tool, "arguments": arguments}))
        assert answer.status_code == 200, answer.text
        if answer.headers["content-type"] == "application/json":
            return at(orjson.loads(answer.content), "result")
        return at(events(answer.text)[-1][1], "result")

    def delete(self) -> int:
        """End the session."""
        with self.open() as client:
            return client.delete(self.url).status_code


def events(text: str) -> list[tuple[str, Json]]:
    """The ids and messages of a stream; None: it says nothing."""
    found: list[tuple[str, Json]] = []
    for block in filter(None, text.split("\n\n")):
        fields = dict(
            line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")
        )
        if fields:
            data = fields["data"]
            found.append((fields["id"], orjson.loads(data) if data.strip() else None))
    return found


@contextlib.contextmanager
def an_http_front(installation: Installation, **variables: str) -> Iterator[FrontAddress]:
    """Run the front of an installation, and end it as an operator would."""
    tokens = installation.root / "tokens"
    tokens.write_text("".join(f"{name} {token}\n" for name, token in TOKENS.items()), "utf-8")
    tokens.chmod(0o600)
    port_file = installation.root / "port"
    said = {"PROXY_PORT_FILE": str(port_file), "PROXY_TOKENS_FILE": str(tokens), **variables}
    client = installation.launch("serve", "--http", **said)
    try:
        yield FrontAddress(_port(port_file, client), client)
    finally:
        client.process.terminate()
        client.process.wait(PATIENCE)
    assert not port_file.exists()


def _port(file: Path, client: RawClient) -> int:
    wait_until(lambda: file.exists() or client.process.poll() is not None)
    assert client.process.poll() is None, client.errors.read_text("utf-8")
    return int(file.read_text("ascii"))


def raw_request(port: int, request: bytes) -> bytes:
    """The first line of the answer to bytes as they are."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline()
