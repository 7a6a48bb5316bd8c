"""Well-known servers, alone and behind the proxy: what each of them lists and answers.

    scripts/servers [--scratch DIR] [--json] [NAME …]

Each server is installed in a scratch directory in an exact version, and started twice: alone, and
behind a proxy whose policy allows everything. Its lists, three calls, a read and a prompt are
compared as JSON texts. An answer that differs is asked for twice without the proxy, too: a server
may differ from itself. Nothing of it needs a network once the packages are there.
"""

import argparse
import contextlib
import fcntl
import json  # noqa: TID251  read by other programs, and indented
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent / "packs"))
from fetch import from_npm, from_pypi

REVISION: Final = "2025-11-25"
WORK: Final = Path("/tmp/ironcurtain-servers/work")  # noqa: S108  the same for every run
"""Where servers work: answers name it, so it is the same whoever starts them."""
LOCK: Final = Path(f"{WORK.parent}.lock")
"""Held while servers are compared: two runs at once would clear each other's directory."""

Call = tuple[str, dict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server, and what is asked of it. `@work` is its directory."""

    package: dict
    calls: tuple[Call, Call, Call]
    read: str = ""
    prompt: Call | None = None
    args: tuple[str, ...] = ()


def _npm(name: str, version: str) -> dict:
    return {"npm": name, "version": version}


def _pypi(name: str, version: str, **more: object) -> dict:
    return {"pypi": name, "version": version, **more}


_OFFICIAL: Final = "@modelcontextprotocol/server-"
_THOUGHT: Final = {"thought": "x", "nextThoughtNeeded": False, "totalThoughts": 3}
_ENTITY: Final = {"name": "a", "entityType": "b", "observations": ["c"]}
_TIMES: Final = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}
SERVERS: Final[dict[str, Server]] = {
    "filesystem": Server(
        package=_npm(f"{_OFFICIAL}filesystem", "2026.8.31"),
        args=("@work",),
        calls=(
            ("list_allowed_directories", {}),
            ("list_directory", {"path": "@work"}),
            ("read_text_file", {"path": "@work/notes.txt"}),
        ),
    ),
    "memory": Server(
        package=_npm(f"{_OFFICIAL}memory", "2026.8.31"),
        calls=(
            ("create_entities", {"entities": [_ENTITY]}),
            ("read_graph", {}),
            ("search_nodes", {"query": "a"}),
        ),
        read="memory://knowledge-graph",
    ),
    "everything": Server(
        package=_npm(f"{_OFFICIAL}everything", "2026.8.31"),
        args=("stdio",),
        calls=(
            ("echo", {"message": "x"}),
            ("get-sum", {"a": 1, "b": 2}),
            ("get-tiny-image", {}),
        ),
        read="demo://resource/static/document/architecture.md",
        prompt=("simple-prompt", {}),
    ),
    "sequential-thinking": Server(
        package=_npm(f"{_OFFICIAL}sequential-thinking", "2026.8.31"),
        calls=tuple([("sequentialthinking", {**_THOUGHT, "thoughtNumber": n}) for n in (1, 2, 3)]),
    ),
    "git": Server(
        package=_pypi("mcp-server-git", "2026.10.19"),
        calls=(
            ("git_status", {"repo_path": "@work"}),
            ("git_log", {"repo_path": "@work"}),
            ("git_diff_unstaged", {"repo_path": "@work"}),
        ),
    ),
    "time": Server(
        package=_pypi("mcp-server-time", "2026.10.19"),
        calls=tuple([("convert_time", {**_TIMES, "time": f"{hour}:00"}) for hour in (10, 11, 12)]),
    ),
    "fetch": Server(
        package=_pypi("mcp-server-fetch", "2026.10.24"),
        calls=tuple([("fetch", {"url": f"http://127.0.0.1:9/{n}"}) for n in (1, 2, 3)]),
        prompt=("fetch", {"url": "http://127.0.0.1:9/"}),
    ),
    "sqlite": Server(
        package=_pypi("mcp-server-sqlite", "2025.4.25", **{"with": ["mcp<1.10", "pydantic<2.12"]}),
        args=("--db-path", "@work/x.db"),
        calls=(
            ("create_table", {"query": "create table t (a int)"}),
            ("list_tables", {}),
            ("read_query", {"query": "select * from t"}),
        ),
        read="memo://insights",
        prompt=("mcp-demo", {"topic": "x"}),
    ),
    "motherduck": Server(
        package=_pypi("mcp-server-motherduck", "1.1.0", python="python3.12"),
        args=("--db-path", ":memory:", "--read-write"),
        calls=(
            ("execute_query", {"sql": "select 1"}),
            ("list_databases", {}),
            ("list_tables", {}),
        ),
    ),
    "playwright": Server(
        package=_npm("@playwright/mcp", "0.0.83"),
        calls=(
            ("browser_tabs", {"action": "list"}),
            ("browser_snapshot", {}),
            ("browser_console_messages", {"level": "info"}),
        ),
    ),
    "desktop-commander": Server(
        package=_npm("@wonderwhy-er/desktop-commander", "0.2.52"),
        calls=(
            ("list_directory", {"path": "@work"}),
            ("read_file", {"path": "@work/notes.txt"}),
            ("list_searches", {}),
        ),
    ),
    "context7": Server(
        package=_npm("@upstash/context7-mcp", "4.1.1"),
        calls=tuple(
            [("resolve-library-id", {"query": q, "libraryName": q}) for q in ("a", "b", "c")]
        ),
    ),
    "chrome-devtools": Server(
        package=_npm("chrome-devtools-mcp", "1.11.0"),
        calls=(
            ("list_pages", {}),
            ("take_snapshot", {"pageId": 1}),
            ("list_network_requests", {"pageId": 1}),
        ),
    ),
    "serena": Server(
        package=_pypi("serena-agent", "2.1.0", program="serena", python="python3.12", source=True),
        args=("start-mcp-server", "--enable-web-dashboard", "False"),
        calls=tuple([("initial_instructions", {})] * 3),
    ),
}


@dataclass(slots=True)
class Client:
    """A raw client of one process."""

    process: subprocess.Popen[bytes]
    _id: int = field(default=0)

    def ask(self, method: str, params: dict) -> str:
        """The result of a request as compact JSON in the server's order; or its error."""
        self._id += 1
        self.send({"id": self._id, "method": method, "params": params})
        while True:
            message = json.loads(self.process.stdout.readline() or '{"id": null}')
            if "method" in message and "id" in message:
                self._answer(message)
            elif message.get("id") in {self._id, None} and "method" not in message:
                return _text(message.get("result", {"error": message.get("error")}))

    def _answer(self, question: dict) -> None:
        known = {"roots/list": {"roots": []}, "ping": {}}
        answer = known.get(question["method"])
        reply = (
            {"error": {"code": -32601, "message": "no"}} if answer is None else {"result": answer}
        )
        self.send({"id": question["id"], **reply})

    def send(self, message: dict) -> None:
        """Send one message."""
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def entries(client: Client, method: str, key: str) -> list[dict]:
    """All pages of a list; none if there is no such list."""
    found: list[dict] = []
    params: dict = {}
    while True:
        page = json.loads(client.ask(method, params))
        found += page.get(key, [])
        if not page.get("nextCursor"):
            return found
        params = {"cursor": page["nextCursor"]}


_LISTS: Final = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}


def observe(command: list[str], env: dict[str, str], server: Server, work: Path) -> dict:
    """What a server lists and answers, started by this command."""
    make_work(work)
    with (
        (work.parent / "stderr.txt").open("ab") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=work
        ) as process,
    ):
        try:
            return _observed(Client(process), server, work)
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _observed(client: Client, server: Server, work: Path) -> dict:
    hello = {
        "protocolVersion": REVISION,
        "capabilities": {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
        "clientInfo": {"name": "servers", "version": "1"},
    }
    client.ask("initialize", hello)
    client.send({"method": "notifications/initialized"})
    time.sleep(1)  # some list more tools once they have heard what the client can do
    seen: dict = {name: entries(client, *how) for name, how in _LISTS.items()}
    placed = json.loads(json.dumps(server.calls).replace("@work", str(work)))
    seen["calls"] = [
        client.ask("tools/call", {"name": name, "arguments": given}) for name, given in placed
    ]
    if server.read:
        seen["read"] = client.ask("resources/read", {"uri": server.read})
    if server.prompt is not None:
        name, given = server.prompt
        seen["prompt"] = client.ask("prompts/get", {"name": name, "arguments": given})
    return seen


def make_work(work: Path) -> None:
    """A directory with a repository and one file, always the same."""
    shutil.rmtree(work.parent, ignore_errors=True)
    (work.parent / "home").mkdir(parents=True)
    work.mkdir()
    (work / "notes.txt").write_text("notes\n", "utf-8")
    fixed = {
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    }
    git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, **fixed})


def behind(command: list[str], direct: dict, variables: dict[str, str], base: Path) -> dict:
    """The environment of a proxy with this one server and a policy that allows everything."""
    entry = {
        "inputHash": "0",
        "tools": [
            {
                "toolName": tool["name"],
                "args": {
                    name: ["none"] for name in tool.get("inputSchema", {}).get("properties", {})
                },
            }
            for tool in direct["tools"]
        ],
        "prompts": [
            {
                "promptName": one["name"],
                "args": {arg["name"]: ["none"] for arg in one.get("arguments", [])},
            }
            for one in direct["prompts"]
        ],
    }
    schemes = sorted({one["uri"].partition(":")[0] for one in direct["resources"]})
    schemes += sorted({one["uriTemplate"].partition(":")[0] for one in direct["templates"]})
    rules = [
        {"name": "tools", "if": {}, "then": "allow", "reason": "measured"},
        {"name": "rest", "if": {"operations": ["resources/read", "prompts/get"]}, "then": "allow",
         "reason": "measured"},
    ]  # fmt: skip
    if schemes:
        rules.append({"name": "uris", "if": {"uris": {"schemes": schemes}}, "then": "allow",
                      "reason": "measured"})  # fmt: skip
    generated = base / "generated"
    generated.mkdir(exist_ok=True)
    annotations = {"servers": {"measured": entry}}
    (generated / "tool-annotations.json").write_text(json.dumps(annotations), "utf-8")
    (generated / "compiled-policy.json").write_text(json.dumps({"rules": rules}), "utf-8")
    server = {
        "command": command[0],
        "args": command[1:],
        "sandbox": False,
        "annotations": "measured",
        "env": variables,
        "cwd": "@workspace",
        "ask": ["form", "url", "sampling"],
    }
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(base / "proxy"),
        "MCP_SERVERS_CONFIG": json.dumps({"measured": server}),
        "ALLOWED_DIRECTORY": str(WORK),
        "GENERATED_DIR": str(generated),
        "PINS": "off",
    }


def compare(name: str, scratch: Path) -> dict:
    """One row of the table."""
    server = SERVERS[name]
    base = scratch / name
    base.mkdir(parents=True, exist_ok=True)
    install = from_npm if "npm" in server.package else from_pypi
    program, version = install(server.package, base)
    work = WORK
    command = [*program, *[word.replace("@work", str(work)) for word in server.args]]
    command[0] = shutil.which(command[0]) or command[0]
    variables = {"HOME": str(work.parent / "home"), "MEMORY_FILE_PATH": str(work / "memory.json")}
    env = {"PATH": os.environ["PATH"], **variables}
    direct = observe(command, env, server, work)
    told = behind(command, direct, variables, base)
    (base / "proxy").mkdir(exist_ok=True)
    proxy = [sys.executable, "-m", "ironcurtain_proxy"]
    through = observe(proxy, told, server, work)
    again = direct if through == direct else observe(command, env, server, work)
    row: dict = {"server": name, "version": version}
    for part in _LISTS:
        row[part] = _same_list(direct[part], through[part])
    both = list(zip(direct["calls"], through["calls"], again["calls"], strict=True))
    for one, (direct_call, through_call, _) in zip(server.calls, both, strict=True):
        if direct_call != through_call:
            sys.stderr.write(f"{name} {one[0]}: {direct_call[:400]}\n    {through_call[:400]}\n")
    row["calls"] = ", ".join([_same(*one) for one in both])
    for part in ("read", "prompt"):
        row[part] = _same(direct[part], through[part], again[part]) if part in direct else "-"
    return row


def _same_list(direct: list, through: list) -> str:
    count = f"{len(through)}/{len(direct)}"
    return count if _text(direct) == _text(through) else f"{count} differs"


def _same(direct: str, through: str, again: str) -> str:
    if direct == through:
        return "same"
    return "differs from itself" if direct != again else "DIFFERS"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other run compares servers, and keep others waiting."""
    with LOCK.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("waiting for another run of scripts/servers\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Compare the named servers, or all. 1 if one differs, 2 if one could not be compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "servers")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    rows: list[dict] = []
    failed = 0
    with alone():
        for name in options.names or SERVERS:
            try:
                rows.append(compare(name, options.scratch))
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                failed = 2
                sys.stderr.write(f"{name}: {str(error)[:300]}\n")
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    else:
        columns = ["server", "version", *_LISTS, "calls", "read", "prompt"]
        sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
        for row in rows:
            sys.stdout.write(f"| {' | '.join([row[one] for one in columns])} |\n")
        kinds = Counter(one for row in rows for one in row["calls"].split(", "))
        own = kinds["differs from itself"]
        note = f", {own} differ between two answers of the server alone as well" if own else ""
        sys.stdout.write(f"{kinds['same']} of {kinds.total()} calls are equal{note}\n")
    differs = any("iffers" in value.replace("differs from itself", "") for row in rows
                  for value in row.values())  # fmt: skip
    return failed or int(differs)


if __name__ == "__main__":
    raise SystemExit(main())
