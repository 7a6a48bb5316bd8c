"""One session through the clients of both official SDKs, of two generations each: all see the same.

Each comes over standard input and output, and over HTTP.

The first generation of the Python SDK is installed beside the second (`scripts/setup`), and used by
a process of its own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.http_front import TOKENS, an_http_front
from tests.e2e.installation import ROOT, Installation
from tests.e2e.real_servers import PACKAGES, missing
from tests.e2e.servers import scripted as scripted_server
from tests.program import PATIENCE, for_others
from tests.tables import table

PROGRAMS: Final = Path(__file__).parent / "clients"
PYTHON_1: Final = Path(sys.prefix) / "mcp-1"
FASTMCP: Final = Path(sys.prefix) / "fastmcp"

EVERYTHING: Final[Mapping[str, Json]] = table("e2e/sdk_clients.everything", dict[str, Json])


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


def seen_by(
    program: list[str], besides: dict[str, str], stdio: Installation, http: Installation
) -> list[dict[str, Json]]:
    """What a client prints of a session with a command, and of one over HTTP.

    It is one process: to load an SDK takes most of its time.
    """
    # The environment of the proxy is the client's to give: ours holds where its SDK is.
    command = ["/usr/bin/env", "-u", "PYTHONPATH", "-u", "MCP_TOKEN", *for_others()]
    environ = {**stdio.environment(), "PINS": "off", **besides, "MCP_TOKEN": TOKENS["alice"]}
    with an_http_front(http, PINS="off") as front:
        done = subprocess.run(
            [*program, front.url, *command],
            env=environ, cwd=ROOT, capture_output=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    assert done.stdout, done.stderr.decode()[-3000:]
    seen: list[dict[str, Json]] = orjson.loads(done.stdout)
    return seen


@pytest.mark.requirement("C-1")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_client_of_an_sdk_sees_all_that_is_served_over_stdio_and_http(
    client: str, both: tuple[Installation, Installation]
) -> None:
    program, besides = CLIENTS[client]()
    for installation in both:
        installation.variables["ESCALATION_CHANNELS"] = "elicitation"
        # The tool that is added is in no annotation, so all its calls are denied.
        installation.variables["SHOW_DENIED_TOOLS"] = "true"
    sessions = seen_by(program, besides, *both)
    for seen, installation in zip(sessions, both, strict=True):
        tools, approved = seen.pop("tools"), seen.pop("approved")
        assert seen == EVERYTHING
        assert isinstance(tools, list)
        assert set(scripted_server.TOOLS) - {"forbidden"} <= {*tools}
        assert approved == {"name": "ask", "arguments": {"text": "/srv/x"}}
        if client != "python 1":  # it does not tell of what it does not wait for any more
            assert b"notifications/cancelled" in installation.journal_file().read_bytes()


def test_clients_of_each_era_use_servers_of_each_era() -> None:
    """`ts1` and the first client know the older era alone, and `alone` only the newer one.

    Behind each proxy a server of Python takes longer to start than all the rest; `scripts/eras/run`
    has them.
    """
    for folder in (PYTHON_1, FASTMCP, PACKAGES / "client", PACKAGES / "server"):
        if not folder.exists():
            missing(folder.name)
    done = subprocess.run(
        [
            *(sys.executable, "scripts/eras/run.py"),
            *("--client", "typescript-1", "fastmcp-auto", "--server", "ts1", "alone"),
        ],
        env={**os.environ, "ERAS_PROXY": " ".join(for_others())},
        cwd=ROOT, capture_output=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3000:]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Installation, Installation]]:
    """An installation for each way, with one scripted server."""
    made = Installation(tmp_path / "stdio"), Installation(tmp_path / "http")
    for installation in made:
        installation.add_scripted()
        installation.allow_scripted()
        installation.write_policy()
    yield made
    for installation in made:
        installation.end()
