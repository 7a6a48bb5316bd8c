"""What a sandbox costs: one real server behind two proxies, confined and not.

    bench_sandbox.py [--rounds 10] [--calls 100] [--starts 7]

The public filesystem server, which reads a small file. Starts and rounds of calls alternate between
the two, so a ratio holds where an absolute time does not.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

MODULES: Final = Path(__file__).resolve().parents[1] / "node_modules"
SERVER: Final = MODULES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
LINE: Final = "a line of text"
WARM: Final = 30


def furnish(root: Path, name: str, entry: Mapping[str, object]) -> dict[str, str]:
    """Environment of one proxy, with a home and a workspace of its own."""
    home = root / name
    workspace = home / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "file.txt").write_text(f"{LINE}\n" * 20, encoding="utf-8")
    node = shutil.which("node") or "node"
    server = {"command": node, "args": [str(SERVER), str(workspace)], **entry}
    return {
        "PATH": f"{MODULES / '.bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "MCP_SERVERS_CONFIG": orjson.dumps({"filesystem": server}).decode(),
        "ALLOWED_DIRECTORY": str(workspace),
    }


class Agent:
    """A client that waits for each answer. Shakes hands and lists tools when it is made."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._file = f"{environment['ALLOWED_DIRECTORY']}/file.txt"
        self._last = 0
        self._errors = Path(environment["HOME"]) / "stderr"
        start = time.perf_counter()
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ironcurtain_proxy"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                cwd=environment["HOME"],
            )
        client = {"name": "bench", "version": "0"}
        version = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self._request("initialize", version)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        answer = self._request("tools/list", {})
        self.start = time.perf_counter() - start
        if b"read_text_file" not in answer:
            raise SystemExit("the server has no tools: is it installed? Run scripts/setup")

    def call(self) -> float:
        """Read the file. Seconds."""
        # The same call again and again would be refused.
        arguments = {"path": self._file, "head": 100 + self._last}
        start = time.perf_counter()
        answer = self._request("tools/call", {"name": "read_text_file", "arguments": arguments})
        seconds = time.perf_counter() - start
        if LINE.encode() not in answer:
            raise SystemExit(f"a call failed: {answer.decode()}")
        return seconds

    def memory(self) -> tuple[int, float, float]:
        """Processes of the whole tree, their resident MiB, and the share that is theirs."""
        family = tree(self._process.pid)
        rolls = [roll_up(pid) for pid in family]
        return len(family), sum(one["Rss"] for one in rolls), sum(one["Pss"] for one in rolls)

    def warnings(self) -> str:
        """What the proxy has said for people."""
        return self._errors.read_text(encoding="utf-8", errors="replace").strip()

    def end(self) -> None:
        """Hang up."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(20)

    def _request(self, method: str, params: object) -> bytes:
        self._last += 1
        self._send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        if self._process.stdout is None:
            raise SystemExit("no pipe")
        while line := self._process.stdout.readline():
            message = orjson.loads(line)
            if message.get("id") == self._last and "method" not in message:
                return line
        raise SystemExit(f"the proxy ended: {self.warnings()}")

    def _send(self, message: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(orjson.dumps(message) + b"\n")
            self._process.stdin.flush()


def tree(root: int) -> set[int]:
    """A process and all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def roll_up(pid: int) -> dict[str, float]:
    """MiB by the kernel's names; zero of a process that has just gone."""
    figures = {"Rss": 0.0, "Pss": 0.0}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in figures:
                figures[name] = int(rest.split()[0]) / 1024
    return figures


def measure_starts(homes: Mapping[str, dict[str, str]], count: int) -> dict[str, list[float]]:
    """Milliseconds until the tools are listed."""
    starts: dict[str, list[float]] = {name: [] for name in homes}
    for _ in range(count):
        for name, home in homes.items():
            agent = Agent(home)
            starts[name].append(agent.start * 1e3)
            agent.end()
    return starts


def measure_calls(agents: Mapping[str, Agent], rounds: int, calls: int) -> dict[str, list[float]]:
    """Milliseconds of each call."""
    for agent in agents.values():
        for _ in range(WARM):
            agent.call()
    times: dict[str, list[float]] = {name: [] for name in agents}
    for _ in range(rounds):
        for name, agent in agents.items():
            times[name] += [agent.call() * 1e3 for _ in range(calls)]
    return times


def percentile(times: list[float], percent: int) -> float:
    """The time that so many percent of all stay below."""
    return sorted(times)[len(times) * percent // 100]


def row(what: str, figures: list[float], digits: int = 1) -> None:
    """One line of the table: without a sandbox, within one."""
    without, within = figures
    sys.stdout.write(
        f"{what:34}{without:12.{digits}f}{within:12.{digits}f}"
        f"{within - without:+12.{digits}f}{within / without:9.2f}\n"
    )


def report(
    starts: Mapping[str, list[float]],
    times: Mapping[str, list[float]],
    memory: list[tuple[int, float, float]],
) -> None:
    """The table."""
    sys.stdout.write(f"{'one real server':34}{'without':>12}{'sandbox':>12}{'added':>12}{'x':>9}\n")
    row("start to tools/list, ms, median", [statistics.median(one) for one in starts.values()])
    row("start to tools/list, ms, best", [min(one) for one in starts.values()])
    row("one call, ms, p50", [statistics.median(one) for one in times.values()], 3)
    row("one call, ms, p99", [percentile(one, 99) for one in times.values()], 3)
    row("resident memory of the tree, MiB", [one[1] for one in memory])
    row("the same, shared pages once, MiB", [one[2] for one in memory])
    row("processes", [one[0] for one in memory], 0)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--starts", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-sandbox-") as folder:
        homes = {
            "without": furnish(Path(folder), "without", {"sandbox": False}),
            "within": furnish(Path(folder), "within", {}),
        }
        agents = {name: Agent(home) for name, home in homes.items()}
        first, said = agents["within"].start, agents["within"].warnings()
        for agent in agents.values():
            agent.end()
        if "unconfined" in said:
            sys.stdout.write(f"no sandbox can be had here, left out: {said}\n")
            return 0
        starts = measure_starts(homes, options.starts)
        agents = {name: Agent(home) for name, home in homes.items()}
        times = measure_calls(agents, options.rounds, options.calls)
        memory = [agent.memory() for agent in agents.values()]
        for agent in agents.values():
            agent.end()
    report(starts, times, memory)
    sys.stdout.write(f"the first start of all, which tries a sandbox: {first * 1e3:.0f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
