"""The cost of the proxy: one call through it, beside the same call without it.

    bench_proxy.py [--rounds 8] [--calls 100] [--other NAME=PYTHON] [--fastmcp PYTHON] [--json]

All variants talk to the same echo server over stdio; the proxy has a real policy, real annotations
and a real audit log. In each round the variants take turns, so that a disturbance of a second falls
on one round of one variant. Printed are the medians of the rounds with their spread, the ratios to
a direct connection, and what the proxy adds to a byte relay.

`--other` adds the proxy of another installation, by a Python that has it, to compare two versions.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.jsonrpc.pipes import widen

SERVER: Final = r"""
import os, sys
from orjson import dumps, loads
texts = {}
for line in os.fdopen(0, "rb", 65536):
    m = loads(line)
    if m.get("method") == "tools/call":
        a = m["params"]["arguments"]
        n = a.get("n")
        text = a["text"] if n is None else texts.setdefault(n, "x" * n)
        r = {"content": [{"type": "text", "text": text}]}
    elif m.get("method") == "initialize":
        r = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        r["serverInfo"] = {"name": "echo", "version": "1"}
    elif m.get("method") == "tools/list":
        s = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
        r = {"tools": [{"name": "echo", "inputSchema": s}]}
    else:
        continue
    left = memoryview(dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}) + b"\n")
    while left:
        left = left[os.write(1, left):]
"""

RELAY: Final = """
import os, subprocess, sys, threading
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def pump(a, b):
    while d := os.read(a, 1 << 20):
        m = memoryview(d)
        while m: m = m[os.write(b, m):]
threading.Thread(target=pump, args=(p.stdout.fileno(), 1), daemon=True).start()
pump(0, p.stdin.fileno()); p.stdin.close(); p.wait()
"""

FASTMCP: Final = """
import sys
from fastmcp.server import create_proxy
server = {"command": sys.argv[1], "args": sys.argv[2:]}
create_proxy({"mcpServers": {"echo": server}}).run(show_banner=False)
"""

WIDTH: Final = 32
FLIGHT: Final = 2000
LARGE: Final = 10 << 20
WARM: Final = 300
SETTLE: Final = 1.0
"""Seconds from the last large result to the last look at the memory."""

FIGURES: Final = {
    "call_ms": ("one call, p50, ms", 3),
    "call_cpu_ms": ("one call, processor time, ms", 3),
    "flight_per_s": ("32 in flight, calls a second", 0),
    "flight_cpu_ms": ("32 in flight, processor time, ms", 3),
    "mib10_ms": ("a result of 10 MiB, median of 3, ms", 1),
    "mib10_first_ms": ("the first of them, ms", 1),
    "start_ms": ("start to tools/list, ms", 0),
    "rss_mib": ("resident memory, idle, MiB", 1),
    "rss_large_mib": ("right after 10 MiB results, MiB", 1),
    "rss_after_mib": ("a second later, MiB", 1),
}
"""The figures, each with its words and its decimals."""


class Variant(Struct, frozen=True):
    """A way to the echo server."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    directory: Path
    """Where it runs: Python would import the package of the project's own directory first."""
    start_env: Mapping[str, str] = {}
    """For the starts that are measured: with a log of their own, which no other process has."""


class Client:
    """A client that costs little itself."""

    def __init__(self, variant: Variant) -> None:
        self.began = time.perf_counter()
        its_input, self._write = os.pipe()
        self._read, its_output = os.pipe()
        self._process = subprocess.Popen(
            variant.argv,
            stdin=its_input,
            stdout=its_output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **variant.env},
            cwd=variant.directory,
        )
        os.close(its_input)
        os.close(its_output)
        self.pid = self._process.pid
        widen(self._write)
        widen(self._read)
        self._buffer = bytearray()
        self._searched = 0
        self._id = 0

    def send(self, method: str, params: Mapping[str, object]) -> int:
        """Send a request, or a notification. Returns the id of the request."""
        self._id += 1
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            message["id"] = self._id
        left = memoryview(orjson.dumps(message) + b"\n")
        while left:
            left = left[os.write(self._write, left) :]
        return self._id

    def receive(self) -> dict[str, object]:
        """The next message."""
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            data = os.read(self._read, 1 << 20)
            if not data:
                raise SystemExit(f"the process ended: {self._process.args!r}")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        message: dict[str, object] = orjson.loads(line)
        return message

    def ask(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        """The answer to a request."""
        asked = self.send(method, params)
        while (message := self.receive()).get("id") != asked:
            pass
        return message

    def greet(self) -> float:
        """Shake hands and list the tools. Returns the seconds since the process was started."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
        self.ask("initialize", {**hello, "clientInfo": {"name": "bench", "version": "1"}})
        self.send("notifications/initialized", {})
        self.ask("tools/list", {})
        return time.perf_counter() - self.began

    def call(self, **arguments: object) -> str:
        """The text of a result."""
        answer = self.ask("tools/call", {"name": "echo", "arguments": arguments})
        return text_of(answer)

    def close(self) -> None:
        """Hang up."""
        os.close(self._write)
        self._process.wait(10)
        os.close(self._read)


def text_of(answer: dict[str, object]) -> str:
    """The text of an answer to a call."""
    result = answer.get("result")
    if not isinstance(result, dict) or result.get("isError"):
        raise SystemExit(f"a call failed: {answer}")
    text: str = result["content"][0]["text"]
    return text


def settings(folder: Path, python: str) -> dict[str, str]:
    """Policy, annotations and environment of a proxy before the echo server."""
    folder.mkdir()
    words = {"description": "bench", "principle": "bench", "reason": "bench"}
    rule = {"name": "echo", "if": {"server": ["echo"]}, "then": "allow", **words}
    stamp = {"generatedAt": "2026-01-01T00:00:00Z", "constitutionHash": "0", "inputHash": "0"}
    tool = {"toolName": "echo", "serverName": "echo", "comment": "", "inputSchema": {}}
    tool = {**tool, "args": {"text": ["none"], "n": ["none"]}}
    servers = {"echo": {"inputHash": "0", "tools": [tool]}}
    annotations = {"generatedAt": stamp["generatedAt"], "servers": servers}
    (folder / "compiled-policy.json").write_bytes(orjson.dumps({**stamp, "rules": [rule]}))
    (folder / "tool-annotations.json").write_bytes(orjson.dumps(annotations))
    (folder / "workspace").mkdir()
    server = {"command": python, "args": ["-c", SERVER], "sandbox": False}
    return {
        "HOME": str(folder),
        "MCP_SERVERS_CONFIG": orjson.dumps({"echo": server}).decode(),
        "GENERATED_DIR": str(folder),
        "ALLOWED_DIRECTORY": str(folder / "workspace"),
        "AUDIT_LOG_PATH": str(folder / "audit.jsonl"),
        "SESSION_LOG_PATH": str(folder / "session.log"),
        "PROTECTED_PATHS": "[]",
    }


def variants(root: Path, others: Sequence[str], fastmcp: str | None) -> list[Variant]:
    """The ways that are compared. The first is the direct one, the second the byte relay."""
    echo = [sys.executable, "-c", SERVER]
    found = [
        Variant("direct", echo, {}, root),
        Variant("byte relay", [sys.executable, "-c", RELAY, *echo], {}, root),
    ]
    for other in (*others, f"proxy={sys.executable}"):
        name, _, python = other.partition("=")
        env = settings(root / name, sys.executable)
        start_env = settings(root / f"{name} starts", sys.executable)
        argv = [python, "-m", "ironcurtain_proxy"]
        found.append(Variant(name, argv, env, root, start_env))
    if fastmcp is not None:
        found.append(Variant("fastmcp", [fastmcp, "-c", FASTMCP, *echo], {"HOME": str(root)}, root))
    return found


def processor_time(pid: int) -> float:
    """Milliseconds of all threads of a process; 0 where the system does not say."""
    total = 0
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e6


def resident(pid: int) -> float:
    """MiB; 0 where the system does not say."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return 0.0


def one_by_one(client: Client, count: int) -> dict[str, float]:
    """Calls that wait for each other."""
    times, cpu = [], processor_time(client.pid)
    for number in range(count):
        start = time.perf_counter()
        client.call(text=f"call {client.pid} {number}")
        times.append(time.perf_counter() - start)
    cpu = processor_time(client.pid) - cpu
    return {"call_ms": statistics.median(times) * 1e3, "call_cpu_ms": cpu / count}


def in_flight(client: Client) -> dict[str, float]:
    """Calls of which many are under way at once."""
    cpu, start = processor_time(client.pid), time.perf_counter()
    for number in range(FLIGHT + WIDTH):
        if number >= WIDTH:
            text_of(client.receive())
        if number < FLIGHT:
            arguments = {"text": f"flight {number}"}
            client.send("tools/call", {"name": "echo", "arguments": arguments})
    seconds = time.perf_counter() - start
    cpu = processor_time(client.pid) - cpu
    return {"flight_per_s": FLIGHT / seconds, "flight_cpu_ms": cpu / FLIGHT}


def large(client: Client) -> dict[str, float]:
    """Large results, one after the other: the first needs fresh memory."""
    times = []
    for number in range(3):
        size = LARGE + number
        start = time.perf_counter()
        text = client.call(n=size)
        times.append(time.perf_counter() - start)
        if len(text) != size:
            raise SystemExit("a result came back changed")
    return {"mib10_first_ms": times[0] * 1e3, "mib10_ms": statistics.median(times) * 1e3}


def started(variant: Variant) -> dict[str, float]:
    """A start."""
    client = Client(replace(variant, env=variant.start_env or variant.env))
    seconds = client.greet()
    client.close()
    return {"start_ms": seconds * 1e3}


class Rounds:
    """The figures of all variants: a list of each, with an entry for each round."""

    def __init__(self, found: Sequence[Variant]) -> None:
        self._clients = [(one, Client(one)) for one in found]
        self.figures: dict[str, dict[str, list[float]]] = {
            one.name: {name: [] for name in FIGURES} for one in found
        }
        for _, client in self._clients:
            client.greet()
            one_by_one(client, WARM)

    def each(self, measured: Callable[[Variant, Client], Mapping[str, float]]) -> None:
        """Measure the variants one after the other."""
        for variant, client in self._clients:
            for name, value in measured(variant, client).items():
                self.figures[variant.name][name].append(value)

    def close(self) -> None:
        """End all clients."""
        for _, client in self._clients:
            client.close()


def measure(found: Sequence[Variant], rounds: int, calls: int) -> dict[str, dict[str, list[float]]]:
    """The figures of each variant, one of each for each round."""
    run = Rounds(found)
    run.each(lambda _, client: {"rss_mib": resident(client.pid)})
    for _ in range(rounds):
        run.each(lambda _, client: one_by_one(client, calls))
        run.each(lambda _, client: in_flight(client))
        run.each(lambda _, client: large(client))
        run.each(lambda variant, _: started(variant))
    run.each(lambda _, client: {**large(client), "rss_large_mib": resident(client.pid)})
    time.sleep(SETTLE)
    run.each(lambda _, client: {"rss_after_mib": resident(client.pid)})
    run.close()
    return run.figures


def show(figures: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Print the medians, their spread, and what they mean beside direct and relay."""
    names = list(figures)
    sys.stdout.write(f"{'median (least to most)':34}" + "".join(f"{one:>27}" for one in names))
    sys.stdout.write("\n")
    for figure, (words, decimals) in FIGURES.items():
        cells = []
        for name in names:
            values = figures[name][figure]
            middle, least, most = statistics.median(values), min(values), max(values)
            cell = f"{middle:,.{decimals}f}"
            if len(values) > 1:
                cell += f" ({least:,.{decimals}f}-{most:,.{decimals}f})"
            cells.append(f"{cell:>27}")
        sys.stdout.write(f"{words:34}{''.join(cells)}\n")
    direct, relay = names[0], names[1]
    for name in names[2:]:
        pairs = zip(figures[name]["call_ms"], figures[relay]["call_ms"], strict=True)
        above = statistics.median([mine - its for mine, its in pairs])
        call, result = (
            ratio(figures[name][figure], figures[direct][figure])
            for figure in ("call_ms", "mib10_ms")
        )
        sys.stdout.write(
            f"{name}: {above:.3f} ms above the byte relay; one call takes {call:.2f} times direct, "
            f"10 MiB {result:.2f} times\n"
        )


def ratio(mine: Sequence[float], its: Sequence[float]) -> float:
    """The ratio of two medians."""
    return statistics.median(mine) / statistics.median(its)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calls", type=int, default=100, help="calls one by one in each round")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--fastmcp", help="a Python with fastmcp installed, as a peer")
    parser.add_argument("--json", action="store_true", help="print all figures of all rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = variants(Path(directory).resolve(), options.other, options.fastmcp)
        figures = measure(found, options.rounds, options.calls)
    if options.json:
        sys.stdout.write(orjson.dumps(figures).decode() + "\n")
    else:
        show(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
