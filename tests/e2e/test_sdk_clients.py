"""One session through the clients of both official SDKs, of two generations each: all see the same.

Each comes over standard input and output, and over HTTP.

The first generation of the Python SDK is installed beside the second (`scripts/setup`), and used by
a process of its own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.json import Json
from tests.e2e.http_front import TOKENS, an_http_front
from tests.e2e.installation import ROOT, Installation
from tests.e2e.real_servers import PACKAGES, missing
from tests.e2e.servers import scripted as scripted_server
from tests.program import PROXY

PROGRAMS: Final = Path(__file__).parent / "clients"
PYTHON_1: Final = Path(sys.prefix) / "mcp-1"
FASTMCP: Final = Path(sys.prefix) / "fastmcp"

EVERYTHING: Final[Mapping[str, Json]] = {
    "version": "2025-11-25",
    "capabilities": {
        "logging": {},
        "completions": {},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
    },
    "server": "ironcurtain-proxy",
    "instructed": True,
    "ping": {},
    "answer": "hello \u00e9\U0001f600",
    "log": ["a word", "held"],
    "progress": [1, 2, 3],
    "asked": "May the agent use scripted/ask?",
    "denied": [True, "DENIED"],
    "gave_up": True,
    "changed": True,
    "added": True,
}


def python(folder: Path | None) -> tuple[list[str], dict[str, str]]:
    if folder is not None and not folder.exists():
        missing("the first generation of the Python SDK")
    path = {} if folder is None else {"PYTHONPATH": str(folder)}
    return [sys.executable, str(PROGRAMS / "python_sdk.py")], path


def typescript(which: str, package: str) -> tuple[list[str], dict[str, str]]:
    node = shutil.which("node")
    if node is None or not (PACKAGES / package).exists():
        missing(f"@modelcontextprotocol/{package}")
    # Modules are looked for beside the program.
    return [str(node), str(PROGRAMS / "typescript_sdk.mjs"), which], {}


CLIENTS: Final = {
    "python 1": lambda: python(PYTHON_1),
    "python 2": lambda: python(None),
    "typescript 1": lambda: typescript("1", "sdk"),
    "typescript 2": lambda: typescript("2", "client"),
}


def seen_by(program: list[str], environ: dict[str, str], *server: str) -> dict[str, Json]:
    """What a client prints of its session with a command or URL."""
    done = subprocess.run(
        [*program, *server], env=environ, cwd=ROOT, capture_output=True, check=False, timeout=55
    )
    assert done.stdout, done.stderr.decode()[-3000:]
    seen: dict[str, Json] = orjson.loads(done.stdout)
    return seen


@pytest.mark.requirement("C-1")
@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize("client", CLIENTS)
def test_the_client_of_an_sdk_sees_all_that_is_served(
    client: str, way: str, scripted_: Installation
) -> None:
    program, besides = CLIENTS[client]()
    if way == "stdio":
        environ = {**scripted_.environment(), "PINS": "off", **besides}
        # The environment of the proxy is the client's to give: ours holds where its SDK is.
        seen = seen_by(program, environ, "/usr/bin/env", "-u", "PYTHONPATH", *PROXY)
    else:
        with an_http_front(scripted_, PINS="off") as front:
            environ = {**os.environ, "MCP_TOKEN": TOKENS["alice"], **besides}
            seen = seen_by(program, environ, front.url)
    tools, approved = seen.pop("tools"), seen.pop("approved")
    assert seen == EVERYTHING
    assert isinstance(tools, list)
    assert set(scripted_server.TOOLS) - {"forbidden"} <= {*tools}
    assert approved == {"name": "ask", "arguments": {"text": "/srv/x"}}
    if client != "python 1":  # it does not tell of what it does not wait for any more
        assert b"notifications/cancelled" in scripted_.journal_file().read_bytes()


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_the_client_of_fastmcp_lists_calls_and_is_denied(way: str, scripted: Installation) -> None:
    if not FASTMCP.exists():
        missing("fastmcp")
    scripted.write_policy()
    program = [sys.executable, str(PROGRAMS / "fastmcp_client.py")]
    besides = {"PYTHONPATH": str(FASTMCP), "MCP_TOKEN": TOKENS["alice"]}
    if way == "stdio":
        seen = seen_by(program, {**scripted.environment(), **besides}, *PROXY)
    else:
        with an_http_front(scripted) as front:
            seen = seen_by(program, {**os.environ, **besides}, front.url)
    tools = seen.pop("tools")
    assert isinstance(tools, list)
    assert set(scripted_server.TOOLS) - {"forbidden"} <= {*tools}
    assert seen == {"answer": "hello", "denied": True, "resources": 0, "prompts": 0}


@pytest.fixture
def scripted_(installation: Installation) -> Installation:
    """One scripted server, and an agent's client whose person is asked."""
    installation.add_scripted()
    installation.allow_scripted()
    installation.variables["ESCALATION_CHANNELS"] = "elicitation"
    installation.write_policy()
    return installation
