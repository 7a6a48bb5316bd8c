"""Real clients of each era of MCP before real servers of each era, with the proxy between.

    scripts/eras/run [--client NAME …] [--server NAME …] [--sample SEED]

Each client has a session over standard input and output, and one over HTTP. Behind the proxy are
all servers, each as a process and over HTTP. A client lists the tools of a server, calls one, calls
one that reports progress, answers a server's question, calls one that waits for a reviewer, reads a
resource and gets a prompt. A cell of the table counts what came as it should. ERAS_PROXY is what
starts the proxy over standard input and output, if not `python -m ironcurtain_proxy`.
"""

import argparse
import contextlib
import json  # noqa: TID251  read by other programs, and indented
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT)]
from conformance import _port_in, approve  # noqa: E402

from tests.e2e.real_servers import INSPECTOR, NODE_22  # noqa: E402
from tests.hooks.hooked import CLAUDE  # noqa: E402
from tests.hooks.scripted_model import serving  # noqa: E402

TOKEN: Final = "alice-" + "a" * 40
MODERN: Final = "2026-07-28"
_SECONDS: Final = 240

EXPECTED: Final[dict] = {
    "tools": 4,
    "add": "5",
    "steps": "done",
    "progress": [1, 2, 3],
    "who": "Hello Ann",
    "guard": "x",
    "read": "one",
    "prompt": "Hello Bo",
}
"""What a client sees of each server."""

TOOLS: Final[dict] = {"add": ["a", "b"], "guard": ["text"], "steps": ["times"], "who": []}


@dataclass(frozen=True, slots=True)
class Program:
    """A client or a server."""

    title: str
    command: tuple[str, ...]
    path: str = ""
    """Where its library is."""
    steps: tuple[str, ...] = ()
    """What it can be made to do, and shows; empty: all of them."""

    def environment(self) -> dict[str, str]:
        """Return the variables with which it finds its library."""
        return {"PYTHONPATH": self.path} if self.path else {}


def _python(what: str, title: str, which: str, *more: str) -> Program:
    folder = {"python-1": ".venv/mcp-1", "fastmcp": ".venv/fastmcp"}.get(which)
    command = (sys.executable, str(HERE / f"{what}.py"), which, *more)
    return Program(title, command, str(ROOT / folder) if folder else "")


def _typescript(what: str, title: str, which: str, *more: str) -> Program:
    return Program(title, ("node", str(HERE / f"{what}.mjs"), which, *more))


SERVERS: Final = {
    "py1": _python("server", "Python SDK 1", "python-1"),
    "py2": _python("server", "Python SDK 2", "python-2"),
    "fast": _python("server", "fastmcp", "fastmcp"),
    "ts1": _typescript("server", "TypeScript SDK 1", "1"),
    "ts2": _typescript("server", "TypeScript SDK 2", "2"),
    "alone": _typescript("server", "2, alone", "2", "--alone"),
}

CLIENTS: Final = {
    "python-1": _python("client", "Python SDK 1", "python-1", "legacy"),
    **{
        f"python-2-{mode}": _python("client", f"Python SDK 2, {mode}", "python-2", mode)
        for mode in ("legacy", "auto", MODERN)
    },
    **{
        f"fastmcp-{mode}": _python("client", f"fastmcp, {mode}", "fastmcp", mode)
        for mode in ("legacy", "auto", MODERN)
    },
    "typescript-1": _typescript("client", "TypeScript SDK 1", "1", "legacy"),
    **{
        f"typescript-2-{mode}": _typescript("client", f"TypeScript SDK 2, {mode}", "2", mode)
        for mode in ("legacy", "auto", MODERN)
    },
    # Both have no person who would answer a server's question here.
    "inspector": Program(
        "Inspector 2",
        (str(NODE_22), str(INSPECTOR), "--cli"),
        steps=("tools", "add", "steps", "guard", "read", "prompt"),
    ),
    "claude": Program("Claude Code", (str(CLAUDE),), steps=("add", "steps", "guard", "read")),
}


@contextlib.contextmanager
def listening(program: Program) -> Iterator[str]:
    """Run a server over HTTP; gives its address."""
    environ = {**os.environ, **program.environment()}
    command = [*program.command, "--http"]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environ, **quiet) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


def installation(directory: Path, addresses: dict[str, str]) -> dict[str, str]:
    """Write a policy for all servers; return the variables of the proxy."""
    servers: dict[str, dict] = {}
    for name, address in addresses.items():
        command, *args = SERVERS[name].command
        env = SERVERS[name].environment()
        servers[name] = {"command": command, "args": args, "env": env}
        servers[f"{name}http"] = {"url": address}
    annotated = {
        name: {
            "inputHash": "0",
            "tools": [
                {"toolName": tool, "args": {one: ["none"] for one in given}}
                for tool, given in TOOLS.items()
            ],
            "prompts": [{"promptName": "hello", "args": {"name": ["none"]}}],
        }
        for name in servers
    }
    operations = {"operations": ["resources/read", "prompts/get"]}
    why = {"reason": "Clients and servers are tried"}
    rules = [
        {"name": "guarded", "if": {"tool": ["guard"]}, "then": "escalate", **why},
        {"name": "all", "if": {}, "then": "allow", **why},
        {"name": "operations", "if": operations, "then": "allow", **why},
    ]
    generated = directory / "generated"
    generated.mkdir()
    (directory / "workspace").mkdir()
    (generated / "tool-annotations.json").write_text(json.dumps({"servers": annotated}), "utf-8")
    (generated / "compiled-policy.json").write_text(json.dumps({"rules": rules}), "utf-8")
    entries = {
        name: {**one, "ask": ["form"], **({"sandbox": False} if "command" in one else {})}
        for name, one in servers.items()
    }
    return {
        "HOME": str(directory),
        "MCP_SERVERS_CONFIG": json.dumps(entries),
        "ALLOWED_DIRECTORY": str(directory / "workspace"),
        "GENERATED_DIR": str(generated),
        "ESCALATION_DIR": str(directory / "questions"),
    }


@contextlib.contextmanager
def front(variables: dict[str, str]) -> Iterator[str]:
    """Run the proxy over HTTP; gives its address."""
    port_file = Path(variables["HOME"]) / "port"
    told = {**variables, "PROXY_PORT_FILE": str(port_file), "PROXY_TOKEN": TOKEN}
    command = [sys.executable, "-m", "ironcurtain_proxy", "serve", "--http"]
    with subprocess.Popen(command, env={**os.environ, **told}, cwd=ROOT) as process:
        try:
            yield f"http://127.0.0.1:{_port_in(port_file)}/mcp"
        finally:
            process.terminate()


Names = list[str]
"""The names of servers."""


def proxy(variables: dict[str, str]) -> list[str]:
    """Return the command of the proxy, with its variables."""
    own = [f"{name}={value}" for name, value in variables.items()]
    words = os.environ.get("ERAS_PROXY") or f"{sys.executable} -m ironcurtain_proxy"
    return ["env", "-u", "PYTHONPATH", *own, *words.split()]


def output(command: list[str], **variables: str) -> bytes:
    """Return what a client prints; what went wrong goes to stderr."""
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_SECONDS,
    )
    if not done.stdout:
        sys.stderr.write(done.stderr.decode("utf-8", "replace")[-2000:])
    return done.stdout


def seen_by_a_program(
    client: Program, ways: dict[str, str], variables: dict[str, str], names: Names
) -> dict[str, dict]:
    """Return what a client that was written with an SDK sees; it is loaded once for all ways."""
    command = [*client.command, ",".join(names), ",".join(ways.values()), *proxy(variables)]
    seen = json.loads(output(command, **client.environment(), MCP_TOKEN=TOKEN) or "[]")
    return dict(zip(ways, seen, strict=bool(seen)))


def seen_by_inspector(
    client: Program, url: str, variables: dict[str, str], names: Names
) -> dict[str, dict]:
    """Return what the Inspector sees. Each request has a proxy of its own, with one server."""
    servers = json.loads(variables["MCP_SERVERS_CONFIG"])

    def ask(name: str, method: str, *more: str) -> dict:
        if url == "-":
            only = {**variables, "MCP_SERVERS_CONFIG": json.dumps({name: servers[name]})}
            there = proxy(only)
        else:
            there = [url, "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}"]
        said = output([*client.command, *there, "--method", method, *more])
        return json.loads(said or "{}")

    seen: dict[str, dict] = {}
    for name in names:
        tool, uri = (f"{name}__", f"{name}+note://one") if url != "-" else ("", "note://one")
        tools = [one["name"] for one in ask(name, "tools/list").get("tools", [])]
        seen[name] = {"tools": len([one for one in tools if one.startswith(tool)])}
        for what, given in (
            ("add", ("a=2", "b=3")),
            ("steps", ("times=3",)),
            ("guard", ("text=x",)),
        ):
            words = [word for one in given for word in ("--tool-arg", one)]
            said = ask(name, "tools/call", "--tool-name", f"{tool}{what}", *words)
            seen[name][what] = said.get("content", [{}])[0].get("text")
        said = ask(name, "resources/read", "--uri", uri)
        seen[name]["read"] = said.get("contents", [{}])[0].get("text")
        greeting = ("--prompt-name", f"{tool}hello", "--prompt-args", "name=Bo")
        said = ask(name, "prompts/get", *greeting)
        seen[name]["prompt"] = said.get("messages", [{}])[0].get("content", {}).get("text")
    return seen


def seen_by_claude(
    client: Program, url: str, variables: dict[str, str], names: Names
) -> dict[str, dict]:
    """Return what Claude Code gives to a model, which is a script here."""
    calls = [
        (name, step, call)
        for name in names
        for step, call in (
            ("add", (f"mcp__p__{name}__add", {"a": 2, "b": 3})),
            ("steps", (f"mcp__p__{name}__steps", {"times": 3})),
            ("guard", (f"mcp__p__{name}__guard", {"text": "x"})),
            ("read", ("ReadMcpResourceTool", {"server": "p", "uri": f"{name}+note://one"})),
        )
    ]
    command = proxy(variables)
    entry = {"command": command[0], "args": command[1:]}
    if url != "-":
        headers = {"Authorization": f"Bearer {TOKEN}"}
        entry = {"type": "http", "url": url, "headers": headers}
    with tempfile.TemporaryDirectory() as home, serving([call for *_, call in calls]) as model:
        file = Path(home) / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"p": entry}}), "utf-8")
        words = ["--mcp-config", str(file), "--strict-mcp-config", "--output-format", "json"]
        allowed = ["--allowedTools", "mcp__p", "ReadMcpResourceTool"]
        output(
            [*client.command, "-p", "go", *words, *allowed],
            HOME=home,
            ANTHROPIC_BASE_URL=model.address,
            ANTHROPIC_API_KEY="dummy",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_TELEMETRY="1",
            DISABLE_AUTOUPDATER="1",
            ENABLE_TOOL_SEARCH="false",
            MCP_TIMEOUT="60000",
        )
    seen: dict[str, dict] = {name: {} for name in names}
    for (name, step, _), (_, said) in zip(calls, model.results, strict=False):
        seen[name][step] = _within(said)
    return seen


def _within(said: str) -> str:
    """Return the text of a result, which Claude Code may hand on as JSON."""
    try:
        found = json.loads(said)
        return found["contents"][0]["text"] if "contents" in found else found["result"]
    except (ValueError, KeyError, TypeError):
        return said


_SEEN_BY: Final = {"inspector": seen_by_inspector, "claude": seen_by_claude}
"""How some clients are made to do something; the others are programs of their own."""


def measured(chosen: list[str], servers: list[str]) -> dict[str, dict[str, dict[str, dict]]]:
    """Return what each client sees of each server, by `stdio` and `http`."""
    found: dict[str, dict] = {}
    names = [f"{name}{over}" for name in servers for over in ("", "http")]
    with contextlib.ExitStack() as stack:
        addresses = {name: stack.enter_context(listening(SERVERS[name])) for name in servers}
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        variables = installation(directory, addresses)
        threading.Thread(target=approve, args=[directory], daemon=True).start()
        ways = {"stdio": "-", "http": stack.enter_context(front(variables))}
        for name in chosen:
            started = time.monotonic()
            client, look = CLIENTS[name], _SEEN_BY.get(name)
            found[name] = (
                {over: look(client, url, variables, names) for over, url in ways.items()}
                if look is not None
                else seen_by_a_program(client, ways, variables, names)
            )
            sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")
    return found


def cell(client: Program, sessions: dict[str, dict], server: str) -> str:
    """Return how many steps of how many came as they should; those that did not go to stderr."""
    steps = {step: EXPECTED[step] for step in client.steps or EXPECTED}
    right = total = 0
    for over in ("stdio", "http"):
        seen = sessions.get(over, {})
        for name in (server, f"{server}http"):
            for step, wanted in steps.items():
                got = seen.get(name, {}).get(step)
                right, total = right + (got == wanted), total + 1
                if got != wanted:
                    sys.stderr.write(f"  over {over}, {name} {step}: {got}\n")
    return f"{right}/{total}"


def table(found: dict[str, dict], servers: list[str]) -> list[str]:
    """Return the rows of the clients."""
    heads = ["client", *[SERVERS[name].title for name in servers]]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, sessions in found.items():
        sys.stderr.write(f"{name}\n")
        cells = [cell(CLIENTS[name], sessions, server) for server in servers]
        lines.append(f"| {CLIENTS[name].title} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Print the table. 1: a step of a client did not come as it should."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=[*CLIENTS])
    parser.add_argument("--server", nargs="+", choices=SERVERS, default=[*SERVERS])
    parser.add_argument("--sample", type=int, metavar="SEED", help="two of each, by a seed")
    options = parser.parse_args()
    if options.sample is not None:
        chance = Random(options.sample)  # noqa: S311  which ones are tried is no secret
        options.client = chance.sample([*CLIENTS][:-2], 2)
        options.server = chance.sample([*SERVERS], 2)
    lines = table(measured(options.client, options.server), options.server)
    sys.stdout.write("\n".join(lines) + "\n")
    counts = [one.split("/") for line in lines[2:] for one in line.split(" | ")[1:]]
    return int(any(right != total.rstrip(" |") for right, total in counts))


if __name__ == "__main__":
    sys.exit(main())
