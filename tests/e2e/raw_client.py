"""An MCP client that sends what the test says, byte for byte, and keeps what comes back in order.

Blocking, without threads. Knows JSON-RPC lines and nothing of the SDK, which would hide what the
tests are about: the order of answers, unknown fields, malformed input.
"""

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

import orjson

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.program import PATIENCE

Message: TypeAlias = dict[str, Json]

NEWEST: Final = "2025-11-25"
"""The protocol version of today's clients."""


def at(value: Json, *way: str | int) -> Json:
    """The value at the end of a way of keys and indices; fails the test where it ends early."""
    for step in way:
        if isinstance(step, str):
            assert isinstance(value, dict), f"no {step!r} in {value!r:.500}"
            assert step in value, f"no {step!r} in {value!r:.500}"
            value = value[step]
        else:
            assert isinstance(value, list), f"no item {step} in {value!r:.500}"
            assert len(value) > step, f"no item {step} in {value!r:.500}"
            value = value[step]
    return value


def text(result: Json, block: int = 0) -> str:
    """The text of one content block of a tool result."""
    found = at(result, "content", block, "text")
    assert isinstance(found, str)
    return found


def texts(result: Json) -> list[str]:
    """The texts of all content blocks."""
    blocks = at(result, "content")
    assert isinstance(blocks, list)
    return [str(at(block, "text")) for block in blocks]


class RawClient:
    """One connection to one proxy (or server) process."""

    def __init__(self, argv: list[str], env: Mapping[str, str], errors: Path, cwd: Path) -> None:
        self.errors = errors
        with errors.open("ab") as stderr:
            self.process = program.start(argv, env, stderr, cwd)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        self._rest = b""
        self._last_id = 0
        self.arrived: list[Message] = []
        """Every message, in the order of arrival."""
        self.lines: list[bytes] = []
        """The same as they stood on the wire."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- sending

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._in, rest) :]

    def send(self, message: Message) -> None:
        """Send one message."""
        self.write(orjson.dumps(message) + b"\n")

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification."""
        self.send(
            {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        )

    def request(self, method: str, params: Message | None = None) -> int:
        """Send a request and go on. Returns its id."""
        self._last_id += 1
        given: Message = {} if params is None else {"params": params}
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, **given})
        return self._last_id

    def start_call(self, name: str, arguments: Message | None = None, **params: Json) -> int:
        """Send a `tools/call` and go on. Returns its id."""
        return self.request("tools/call", {"name": name, "arguments": arguments or {}, **params})

    # --- receiving

    def until(self, wanted: Callable[[Message], bool], what: str) -> Message:
        """The first message that is wanted, among those that came and those that come."""
        end = time.monotonic() + PATIENCE
        seen = 0
        while True:
            for message in self.arrived[seen:]:
                if wanted(message):
                    return message
            seen = len(self.arrived)
            assert self._read(end), f"no {what}; {self._story()}"

    def answer(self, request: Json) -> Message:
        """The whole answer to a request."""
        return self.until(
            lambda message: message.get("id", b"") == request and "method" not in message,
            f"answer to {request}",
        )

    def result(self, request: int) -> Message:
        """The `result` of a request; an error fails the test."""
        found = at(self.answer(request), "result")
        assert isinstance(found, dict)
        return found

    def notification(self, method: str) -> Message:
        """The first notification of that name."""
        return self.until(lambda message: message.get("method") == method, method)

    def notifications(self, method: str) -> list[Message]:
        """Those that have come so far."""
        return [message for message in self.arrived if message.get("method") == method]

    def order(self) -> list[Json]:
        """The ids of the answers so far, in their order."""
        return [
            message["id"] for message in self.arrived if "id" in message and "method" not in message
        ]

    def wait(self, seconds: float) -> None:
        """Take in what comes within this time."""
        self._read(time.monotonic() + seconds)

    def _read(self, end: float) -> bool:
        """Take in at least one more line. False: the deadline passed, or the other side ended."""
        pieces = [self._rest]
        while True:
            if not select.select([self._out], [], [], max(0.0, end - time.monotonic()))[0]:
                self._rest = b"".join(pieces)
                return False
            piece = os.read(self._out, 1 << 20)
            pieces.append(piece)
            if not piece or b"\n" in piece:
                break
        *lines, self._rest = b"".join(pieces).split(b"\n")
        for line in lines:
            self.lines.append(line)
            self.arrived.append(orjson.loads(line))
        return bool(lines)

    def _story(self) -> str:
        errors = self.errors.read_text(encoding="utf-8", errors="replace")[-3000:]
        last = [line[:300] for line in self.lines[-5:]]
        return f"exit code {self.process.poll()}; last lines {last}; stderr:\n{errors}"

    # --- the usual

    def initialize(self, version: str = NEWEST, **params: Json) -> Message:
        """Shake hands. Returns the result of `initialize`."""
        given: Message = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
            **params,
        }
        result = self.result(self.request("initialize", given))
        self.notify("notifications/initialized")
        return result

    def call(self, name: str, arguments: Message | None = None, **params: Json) -> Message:
        """Call a tool and wait for its result; a JSON-RPC error fails the test."""
        return self.result(self.start_call(name, arguments, **params))

    def tools(self) -> list[Message]:
        """The tools as `tools/list` shows them; a second page fails the test."""
        result = self.result(self.request("tools/list"))
        assert "nextCursor" not in result
        found = at(result, "tools")
        assert isinstance(found, list)
        return [tool for tool in found if isinstance(tool, dict)]

    def tool_names(self) -> list[Json]:
        """Their names."""
        return [tool["name"] for tool in self.tools()]

    def until_listed(self, *names: str) -> None:
        """Wait for the tools of servers that start slowly."""
        end = time.monotonic() + PATIENCE
        while missing := {*names}.difference(map(str, self.tool_names())):
            assert time.monotonic() < end, f"no {missing}; {self._story()}"
            self.wait(1.0)  # or until the proxy says that the list has changed

    def hang_up(self) -> None:
        """Close both ends, as a client does that is gone."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def close(self) -> int:
        """End the connection and wait for the process. Returns its exit code."""
        self.hang_up()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
