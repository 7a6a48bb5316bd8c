"""What very many calls do to the proxy: nothing.

    bench_many.py [--calls 200000] [--step 10000]

Calls go through one proxy, 32 of them in flight. After each step it prints how many calls a second
passed, the time of calls made one by one, and the resident memory. The server looks each call up in
the audit log before it answers: its intent must be there. At the end the log is verified, and each
call must have one intent and after it one outcome.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson
from bench_escalations import Agent, furnish, greet

SERVER = r"""
import json, sys
log, known, rest = open(sys.argv[1], "rb"), set(), b""
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        r = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        r["serverInfo"] = {"name": "s", "version": "1"}
    elif m.get("method") == "tools/list":
        s = {"type": "object", "properties": {"text": {"type": "string"}}}
        r = {"tools": [{"name": n, "inputSchema": s} for n in ("ask", "go")]}
    elif "id" in m:
        *records, rest = (rest + log.read()).split(b"\n")
        for record in map(json.loads, records):
            if record.get("phase") == "intent":
                known.add(record["arguments"]["text"])
        text = m["params"]["arguments"]["text"]
        said = "recorded" if text in known else "missing"
        known.discard(text)
        r = {"content": [{"type": "text", "text": said}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""

WIDTH = 32
ONE_BY_ONE = 200


class Busy(Agent):
    """A client with many calls in flight."""

    def __init__(self, env: dict[str, str]) -> None:
        super().__init__(env)
        self.pid = self._process.pid
        self.unrecorded = 0
        """Calls that their server had before their intent was in the log."""
        self.refused = 0
        """Calls that no server had."""

    def call(self) -> None:
        """Send a call."""
        self.send("tools/call", {"name": "go", "arguments": {"text": f"call {self._id}"}})

    def take(self) -> None:
        """Take an answer, whichever it is."""
        stdout = self._process.stdout
        if stdout is not None:
            answer = orjson.loads(stdout.readline())
            said = answer["result"]["content"][0]["text"]
            self.unrecorded += said == "missing"
            self.refused += said not in {"missing", "recorded"}


def in_flight(agent: Busy, count: int) -> float:
    """Calls a second, with as many in flight as there are."""
    start = time.perf_counter()
    for number in range(count):
        agent.call()
        if number >= WIDTH:
            agent.take()
    for _ in range(min(WIDTH, count)):
        agent.take()
    return count / (time.perf_counter() - start)


def one_by_one(agent: Busy) -> list[float]:
    """Milliseconds of each of some calls, sorted."""
    times = []
    for _ in range(ONE_BY_ONE):
        start = time.perf_counter()
        agent.call()
        agent.take()
        times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)


def resident(pid: int) -> float:
    """MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def out_of_order(log: Path) -> int:
    """Calls of which an intent does not stand before its one outcome."""
    open_calls: set[str] = set()
    wrong = 0
    with log.open("rb") as lines:
        for record in map(orjson.loads, lines):
            call = record["requestId"]
            if record.get("phase") == "intent":
                wrong += call in open_calls
                open_calls.add(call)
            else:
                wrong += call not in open_calls
                open_calls.discard(call)
    return wrong + len(open_calls)


def main() -> int:
    """Measure, check and print. 1: something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--step", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve()
        log = root / "audit.jsonl"
        server = [str(root / "server.py"), str(log)]
        configured = {"s": {"command": sys.executable, "args": server, "sandbox": False}}
        env = {**furnish(root), "MCP_SERVERS_CONFIG": orjson.dumps(configured).decode()}
        (root / "server.py").write_text(SERVER, encoding="utf-8")
        agent = Busy(env)
        greet(agent)
        made = 0
        while made < options.calls:
            rate, times = in_flight(agent, options.step), one_by_one(agent)
            made += options.step + ONE_BY_ONE
            p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
            sys.stdout.write(
                f"{made:8} calls {rate:8,.0f} /s   p50 {p50:6.3f} ms   p99 {p99:6.2f} ms   "
                f"{resident(agent.pid):6.1f} MiB\n"
            )
            sys.stdout.flush()
        agent.close()
        command = [sys.executable, "-m", "ironcurtain_proxy", "audit", "verify", str(log)]
        verified = subprocess.run(command, env=env, check=False, stdout=subprocess.DEVNULL)
        wrong = out_of_order(log)
    sys.stdout.write(f"sent before their intent was in the log: {agent.unrecorded}\n")
    sys.stdout.write(f"refused: {agent.refused}\n")
    sys.stdout.write(f"without an intent before one outcome: {wrong}\n")
    sys.stdout.write(f"audit verify: {verified.returncode}\n")
    return 1 if agent.unrecorded or agent.refused or wrong or verified.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
