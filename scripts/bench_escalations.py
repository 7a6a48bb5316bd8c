"""How long an answer takes from its file to the forwarded call.

    bench_escalations.py [--rounds 60]

A proxy with a scripted server and an escalation directory; this program is the agent and the
person. Measured from the rename of the response file to the agent's result, and the same call
without a question beside it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

SERVER = r"""
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        r = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        r["serverInfo"] = {"name": "s", "version": "1"}
    elif m.get("method") == "tools/list":
        s = {"type": "object", "properties": {"text": {"type": "string"}}}
        r = {"tools": [{"name": n, "inputSchema": s} for n in ("ask", "go")]}
    elif "id" in m:
        r = {"content": [{"type": "text", "text": "done"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""


def furnish(root: Path) -> dict[str, str]:
    """Policy, annotations and environment of one proxy."""
    rules = [
        {"name": "ask", "if": {"tool": ["ask"]}, "then": "escalate"},
        {"name": "go", "if": {"tool": ["go"]}, "then": "allow"},
    ]
    words = {"description": "bench", "principle": "bench", "reason": "bench"}
    tools = [
        {
            "toolName": n,
            "serverName": "s",
            "comment": "",
            "args": {"text": ["none"]},
            "inputSchema": {},
        }
        for n in ("ask", "go")
    ]
    stamp = {"generatedAt": "2026-01-01T00:00:00Z"}
    policy = {**stamp, "rules": [{**rule, **words} for rule in rules]}
    annotations = {**stamp, "servers": {"s": {"inputHash": "0", "tools": tools}}}
    (root / "compiled-policy.json").write_bytes(orjson.dumps(policy))
    (root / "tool-annotations.json").write_bytes(orjson.dumps(annotations))
    (root / "server.py").write_text(SERVER, encoding="utf-8")
    server = {"command": sys.executable, "args": [str(root / "server.py")], "sandbox": False}
    return {
        **os.environ,
        "HOME": str(root),
        "MCP_SERVERS_CONFIG": orjson.dumps({"s": server}).decode(),
        "GENERATED_DIR": str(root),
        "AUDIT_LOG_PATH": str(root / "audit.jsonl"),
        "ESCALATION_DIR": str(root / "escalations"),
    }


class Agent:
    """A client that waits for each answer."""

    def __init__(self, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ironcurtain_proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        self._id = 0

    def send(self, method: str, params: dict[str, object], *, answered: bool = True) -> None:
        """Send one message."""
        self._id += 1
        head = {"id": self._id} if answered else {}
        message = {"jsonrpc": "2.0", **head, "method": method, "params": params}
        stdin = self._process.stdin
        if stdin is not None:
            stdin.write(orjson.dumps(message) + b"\n")
            stdin.flush()

    def receive(self) -> None:
        """Wait for the answer to the last request."""
        stdout = self._process.stdout
        while stdout is not None:
            if orjson.loads(stdout.readline()).get("id") == self._id:
                return

    def close(self) -> None:
        """Hang up."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(10)


def greet(agent: Agent) -> None:
    """Shake hands and list the tools."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    agent.send("initialize", {**hello, "clientInfo": {"name": "bench", "version": "1"}})
    agent.receive()
    agent.send("notifications/initialized", {}, answered=False)
    agent.send("tools/list", {})
    agent.receive()


def ask(agent: Agent, mailbox: Path, number: int) -> float:
    """Seconds from the answer's rename to the result of one escalated call."""
    agent.send("tools/call", {"name": "ask", "arguments": {"text": str(number)}})
    while not (found := list(mailbox.glob("request-*.json"))):
        time.sleep(0.001)
    identifier = orjson.loads(found[0].read_bytes())["escalationId"]
    answer = mailbox / f"response-{identifier}.json"
    draft = answer.with_suffix(".tmp")
    draft.write_bytes(b'{"decision":"approved"}')
    # A person takes a while: the watch is set up by then.
    time.sleep(0.05)
    start = time.perf_counter()
    draft.rename(answer)
    agent.receive()
    return time.perf_counter() - start


def go(agent: Agent, number: int) -> float:
    """Seconds of one call that is allowed."""
    start = time.perf_counter()
    agent.send("tools/call", {"name": "go", "arguments": {"text": str(number)}})
    agent.receive()
    return time.perf_counter() - start


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve()
        agent = Agent(furnish(root))
        greet(agent)
        both = [(ask(agent, root / "escalations", n), go(agent, n)) for n in range(rounds)]
        agent.close()
    for name, place in (("from answer to result", 0), ("the same call, allowed", 1)):
        ordered = sorted(times[place] for times in both)
        p50, p90 = statistics.median(ordered) * 1e3, ordered[int(len(ordered) * 0.9)] * 1e3
        sys.stdout.write(f"{name:26} p50 {p50:7.2f} ms   p90 {p90:7.2f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
