"""Real servers with generated calls, alone and behind the proxy, in each era that they speak.

    .venv/bin/python scripts/eras/generated.py [--each N] [--scratch DIR] [NAME …]

The servers are those of `scripts/servers` and nine more. Arguments are generated from the tools'
schemas, the same in each run. Each server answers alone, behind the proxy, and alone again: what
differs from itself says nothing. A difference whose reason is known is counted under it (`KNOWN`);
the exit status is 1 if there is another.
"""

import argparse
import json  # noqa: TID251  read by other programs
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "packs")]
import servers as known  # noqa: E402
from fetch import from_npm, from_pypi  # noqa: E402

_APP: Final = "@modelcontextprotocol/server-"
MORE: Final = {
    "calculator": ({"pypi": "mcp-server-calculator", "version": "0.2.1"}, ()),
    "code-index": ({"pypi": "code-index-mcp", "version": "2.17.1"}, ()),
    "notion": ({"npm": "@notionhq/notion-mcp-server", "version": "2.5.2"}, ()),
    "antv-chart": ({"npm": "@antv/mcp-server-chart", "version": "0.9.10"}, ()),
    **{
        f"app-{name}": ({"npm": f"{_APP}{name}", "version": "2.0.3"}, ("--stdio",))
        for name in ("budget-allocator", "cohort-heatmap", "scenario-modeler", "map", "threejs")
    },
}
"""The package and the arguments of each server that `scripts/servers` has not."""

BROWSER: Final = shutil.which("chromium")
OF_BROWSER: Final = {
    "playwright": ("--headless", "--isolated", "--no-sandbox", "--executable-path", str(BROWSER)),
    "chrome-devtools": (
        *("--headless", "--isolated", "--chromeArg=--no-sandbox", "--executablePath", str(BROWSER)),
    ),
}
"""Further arguments of servers that drive a browser, where one is installed."""

KNOWN: Final = {
    "arguments that the schema does not admit are refused in the words of the proxy": (
        "must be",
        "Invalid arguments at",
        "Unknown argument",
        "Missing argument",
    ),
    "a browser is there sooner or later, and its files are named by the time": (
        ".playwright-mcp/page-",
    ),
}
"""Words of the proxy's answer, by the reason of a difference."""

META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "generated", "version": "1"},
}
LEFT_OUT: Final = frozenset(
    {
        *("trigger-long-running-operation", "simulate-research-query", "get-env"),
        *("toggle-simulated-logging", "toggle-subscriber-updates", "get_usage_stats"),
        "get_recent_tool_calls",
        *("kill_process", "force_terminate"),
    }
)
"""Tools that wait, tell what differs on purpose (the environment of a server, how often it was
called), or end processes by a made-up number: 0 is whoever runs this."""

LISTS: Final = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
DEADLINE: Final = 10.0


class Client:
    """A raw client of one process, in one era."""

    def __init__(self, command: list[str], env: dict[str, str], *, is_modern: bool) -> None:
        self.process = subprocess.Popen(
            command,
            env=env,
            cwd=known.WORK,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._is_modern = is_modern
        self._id = 0
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        if not is_modern:
            hello = {"protocolVersion": known.REVISION, "capabilities": {}}
            self.ask("initialize", {**hello, "clientInfo": {"name": "g", "version": "1"}}, 60)
            self._send({"method": "notifications/initialized"})

    def ask(self, method: str, params: dict, seconds: float = DEADLINE) -> dict:
        """Return the result or error of a request, without the marks of the proxy and the era."""
        self._id += 1
        said = {**params, "_meta": META} if self._is_modern else params
        self._send({"id": self._id, "method": method, "params": said})
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                return {"late": True}
            try:
                message = json.loads(line or "{}")
            except ValueError:
                continue
            if not line:
                return {"ended": True}
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "error": {"code": -32601, "message": "no"}})
            elif message.get("id") == self._id:
                return _plain(message)

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _send(self, message: dict) -> None:
        try:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._lines.put(b"")

    def end(self) -> None:
        """End the process."""
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def _plain(message: dict) -> dict:
    found = {key: message[key] for key in ("result", "error") if key in message}
    result = found.get("result")
    if isinstance(result, dict):
        for key in ("ttlMs", "cacheScope", "nextCursor", "resultType"):
            result.pop(key, None)
        meta = result.get("_meta")
        if isinstance(meta, dict):
            meta.pop("io.modelcontextprotocol/serverInfo", None)
            if not meta:
                del result["_meta"]
    return found


def generated(chance: random.Random, schema: object, name: str = "", depth: int = 0) -> object:  # noqa: C901, PLR0911  one branch for each kind of schema
    """Return a value that mostly fits a schema."""
    if not isinstance(schema, dict) or depth > 4:  # noqa: PLR2004
        return None
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return generated(chance, chance.choice(schema[key]), name, depth + 1)
    if "const" in schema or schema.get("enum"):
        return schema.get("const", chance.choice(schema.get("enum", [None])))
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match chance.choice(kind) if isinstance(kind, list) else kind:
        case "object":
            needed = schema.get("required", [])
            return {
                key: generated(chance, one, key, depth + 1)
                for key, one in schema.get("properties", {}).items()
                if key in needed or chance.random() < 0.4  # noqa: PLR2004
            }
        case "array":
            least = schema.get("minItems", 0)
            count = chance.randint(least, max(least, 2))
            return [generated(chance, schema.get("items"), name, depth + 1) for _ in range(count)]
        case "integer" | "number" as number:
            least = schema.get("minimum", 0)
            found = chance.randint(int(least), int(min(schema.get("maximum", least + 5), 1e6)))
            return found if number == "integer" else chance.choice([found, found + 0.25])
        case "boolean":
            return chance.random() < 0.5  # noqa: PLR2004
        case "null":
            return None
    if "repo" in name.lower():
        return str(known.WORK)
    if any(word in name.lower() for word in ("path", "file", "directory", "source", "destination")):
        return str(known.WORK / chance.choice(["notes.txt", ".", "none", "new"]))
    if any(word in name.lower() for word in ("url", "uri")):
        return "http://127.0.0.1:9/x"
    return chance.choice(["x", "ä😀", "a" * 300, "one", "", " ", "UTC", "1"])


def answers(
    command: list[str], env: dict[str, str], each: int, *, is_modern: bool
) -> tuple[dict, list[tuple[dict, dict]]]:
    """Return the lists of a server, and each generated call with its answer."""
    known.make_work(known.WORK)
    client = Client(command, env, is_modern=is_modern)
    try:
        lists = {method: client.ask(method, {}, 60) for method in LISTS}
        chance = random.Random(7)  # noqa: S311  the same in each run
        calls = [
            {"name": tool["name"], "arguments": generated(chance, tool["inputSchema"]) or {}}
            for tool in lists["tools/list"].get("result", {}).get("tools", [])
            if tool["name"] not in LEFT_OUT
            for _ in range(each)
        ]
        return lists, [(call, client.ask("tools/call", call)) for call in calls]
    finally:
        client.end()


def compared(name: str, scratch: Path, each: int) -> list[dict]:
    """Return a row for each era of a server."""
    package, words = (
        MORE[name] if name in MORE else (known.SERVERS[name].package, known.SERVERS[name].args)
    )
    base = scratch / name
    (base / "proxy").mkdir(parents=True, exist_ok=True)
    program, _ = (from_npm if "npm" in package else from_pypi)(package, base)
    words = (*words, *(OF_BROWSER.get(name, ()) if BROWSER else ()))
    command = [*program, *[word.replace("@work", str(known.WORK)) for word in words]]
    command[0] = shutil.which(command[0]) or command[0]
    own = {
        "HOME": str(known.WORK.parent / "home"),
        "MEMORY_FILE_PATH": str(known.WORK / "memory.json"),
    }
    env = {"PATH": known.os.environ["PATH"], **own}
    rows = []
    for is_modern in (False, True):
        lists, direct = answers(command, env, each, is_modern=is_modern)
        if "result" not in lists["tools/list"]:
            continue  # it does not speak this era
        told = {
            key: lists[method].get("result", {}).get(field, [])
            for key, (method, field) in known._LISTS.items()  # noqa: SLF001  of the other script
        }
        around = known.behind(command, told, own, base) | {"CIRCUIT_BREAKER": "off"}
        proxy = [sys.executable, "-m", "ironcurtain_proxy"]
        ours, through = answers(proxy, around, each, is_modern=is_modern)
        _, again = answers(command, env, each, is_modern=is_modern)
        lists_differ = [one for one in LISTS if "result" in lists[one] and lists[one] != ours[one]]
        count: Counter[str] = Counter()
        for (call, alone), (_, behind), (_, once_more) in zip(direct, through, again, strict=False):
            why = _why(alone, behind, once_more)
            count[why] += 1
            if why == "NOT KNOWN":
                pieces = [
                    json.dumps(one, ensure_ascii=False)[:400] for one in (call, alone, behind)
                ]
                sys.stderr.write(f"{name}: " + "\n    ".join(pieces) + "\n")
        for one in lists_differ:
            sys.stderr.write(f"{name} {one}: {str(lists[one])[:400]}\n    {str(ours[one])[:400]}\n")
        rows.append(
            {"server": name, "era": "2026-07-28" if is_modern else "initialize",
             "tools": len(told["tools"]), "calls": len(direct), **count, "lists": lists_differ}
        )  # fmt: skip
    return rows


def _why(alone: dict, behind: dict, once_more: dict) -> str:
    if alone == behind:
        return "same"
    if alone != once_more:
        return "itself"
    said = json.dumps(behind, ensure_ascii=False)
    return next(
        (why for why, words in KNOWN.items() if any(word in said for word in words)), "NOT KNOWN"
    )


def main() -> int:
    """Compare the named servers, or all. 1: a difference has no known reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=4, help="calls of each tool")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "servers")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    rows: list[dict] = []
    failed = 0
    with known.alone():
        for name in options.names or [*known.SERVERS, *MORE]:
            try:
                found = compared(name, options.scratch, options.each)
            except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
                sys.stderr.write(f"{name}: {type(error).__name__} {str(error)[:300]}\n")
                failed = 2
                continue
            rows += found
            for row in found:
                sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
            sys.stdout.flush()
    calls = sum(row["calls"] for row in rows)
    sys.stdout.write(f"{len({row['server'] for row in rows})} servers, {calls} calls\n")
    return failed or int(any(row.get("NOT KNOWN") or row["lists"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
