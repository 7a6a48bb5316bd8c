"""Calls through one process while its policy changes: each is decided by exactly one policy.

    .venv/bin/python scripts/bench_reload.py --calls 10000 --changes 100

Starts a proxy with the server of the tests, changes `policy.yaml` in turn between a policy that
allows a tool and one that denies it, and compares each answer with the record of its call.
"""

import argparse
import json  # noqa: TID251  a program of its own
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO

SERVER = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "s", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    else:
        r = {"content": [{"type": "text", "text": "done"}]}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}) + chr(10))
    sys.stdout.flush()
"""
TOOL = {"toolName": "echo", "args": {"n": ["none"]}, "inputSchema": {"type": "object"}}


def main() -> int:
    """Make the calls. 1 if one is lost or was decided by two policies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        return _run(Path(directory), options.calls, options.changes)


def _run(home: Path, calls: int, changes: int) -> int:
    state = _set_up(home)
    environ = {**os.environ, "HOME": str(home)}
    proxy = subprocess.Popen(
        [sys.executable, "-m", "ironcurtain_proxy"],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    if proxy.stdin is None or proxy.stdout is None:
        return 1
    read = proxy.stdout
    _send(proxy.stdin, "initialize", 0, {"protocolVersion": "2025-06-18", "capabilities": {},
          "clientInfo": {"name": "bench", "version": "1"}})  # fmt: skip
    read.readline()
    _send(proxy.stdin, "tools/list", 1, {})
    read.readline()
    started, finished = time.monotonic(), threading.Event()
    changer = threading.Thread(target=_change, args=(state, changes, finished))
    changer.start()
    answers: Counter[str] = Counter()
    done = 0
    # The breaker counts identical calls, and the calls are to last as long as the changes.
    while done < calls or not finished.is_set():
        batch = range(2 + done, 2 + done + 50)
        for number in batch:
            params = {"name": "echo", "arguments": {"n": number}}
            _send(proxy.stdin, "tools/call", number, params)
        for _ in batch:
            answers["error" if b'"isError":true' in _next(read) else "result"] += 1
        done += len(batch)
        if done < calls:
            time.sleep(max(0.0, 0.6 * changes / calls * 50 - 0.01))
    changer.join()
    proxy.stdin.close()
    proxy.wait(30)
    seconds = time.monotonic() - started
    return _judge(state / "audit.jsonl", answers, done, seconds)


def _set_up(home: Path) -> Path:
    state, work = home / ".ironcurtain", home / "work"
    (state / "generated").mkdir(parents=True)
    work.mkdir()
    (home / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": [str(home / "server.py")], "sandbox": False}
    (state / "mcp-servers.json").write_text(json.dumps({"s": server}))
    tools = {"servers": {"s": {"tools": [TOOL]}}}
    (state / "generated/tool-annotations.json").write_text(json.dumps(tools))
    config = {"allowedDirectory": str(work), "security": {"interceptor": {"enabled": False}}}
    (state / "config.json").write_text(json.dumps(config))
    _write(state, 0)
    return state


def _next(read: IO[bytes]) -> bytes:
    while True:
        line = read.readline()
        if b'"id":' in line[:40] or b'"result"' in line or b'"error"' in line:
            return line


def _send(out: IO[bytes], method: str, number: int, params: object) -> None:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()


def _write(state: Path, number: int) -> None:
    new = state / "new.yaml"
    verb = ("allow", "deny")[number % 2]
    new.write_text(f"# {number}\n{verb} s: {{tools: echo, reason: version {number}}}\n")
    new.replace(state / "policy.yaml")


def _change(state: Path, changes: int, finished: threading.Event) -> None:
    for number in range(1, changes + 1):
        before = _version(state)
        _write(state, number)
        deadline = time.monotonic() + 20
        while _version(state) == before and time.monotonic() < deadline:
            time.sleep(0.05)
    finished.set()


def _version(state: Path) -> str:
    """The policy that the session says is in force."""
    for file in state.glob("sessions/*/session.json"):
        return str(json.loads(file.read_bytes())["policyVersion"])
    return ""


def _judge(log: Path, answers: Counter[str], calls: int, seconds: float) -> int:
    taken: dict[str, str] = {}
    rules: dict[str, set[str]] = {}
    effects: dict[str, str] = {}
    counted = 0
    for line in log.read_bytes().splitlines():
        record = json.loads(line)
        if record["toolName"] == "policy_change":
            taken[record["arguments"]["after"]] = record["timestamp"]
        # On a busy machine the calls go on longer: denied ones that come too fast are counted.
        counted += record.get("count", 0) if record.get("phase") == "counted" else 0
        if record["toolName"] != "echo":
            continue
        rules.setdefault(record["policyVersion"], set()).add(record["policyDecision"]["rule"])
        effects[record["requestId"]] = record["policyDecision"]["status"]
    mixed = {version: found for version, found in rules.items() if len(found) > 1}
    lost = calls - len(effects) - counted
    denied = f"{answers['error']} denied ({counted} of them counted in sum)"
    print(f"{calls} calls, {answers['result']} allowed, {denied}, {lost} without a record; "  # noqa: T201
          f"{len(taken)} policies took effect in {seconds:.0f} s; {len(mixed)} versions decided by "
          "two rules")  # fmt: skip
    return int(bool(mixed or lost or answers.total() != calls))


if __name__ == "__main__":
    sys.exit(main())
