"""The entries that `init` writes for servers, by what it has read of them."""

import os
from pathlib import Path

import msgspec
import orjson
import pytest

from ironcurtain_proxy.cli.init_servers import lasting_entries, path_to, settings_for, summed_up
from ironcurtain_proxy.cli.init_wants import _failure, near_services, not_installed
from ironcurtain_proxy.config.annotating.texts import ReadServer, ReadTool
from ironcurtain_proxy.config.presets import preset
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.installed import project_of
from tests import program
from tests.program import PROXY


def lasting(tmp_path: Path, command: str, *args: str, kind: str = "shell") -> dict[str, Json]:
    entries: dict[str, dict[str, Json]] = {"s": {"command": command, "args": [*args]}}
    tools = (ReadTool(name="run", kind=kind, arguments={}),)  # type: ignore[arg-type]
    read = [ReadServer(name="s", annotations="s", tools=tools)]
    found = lasting_entries(entries, settings_for(entries, tmp_path), read, tmp_path)["s"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "line",
    ["npx -y mcp-server-commands", "uvx mcp-shell-server", "bunx x", "pipx run x", "/opt/x/run"],
)
def test_a_shell_server_works_in_the_workspace_also_under_a_launcher(
    tmp_path: Path, line: str
) -> None:
    assert lasting(tmp_path, *line.split())["cwd"] == "@workspace"
    assert "cwd" not in lasting(tmp_path, *line.split(), kind="files")


def test_a_server_that_does_not_start_is_told_what_its_pack_knows() -> None:
    silent = ReadServer(name="s", annotations="s", error="it exited with status 1")
    known = ServerSpec(name="s", annotations="s", command="/opt/bin/mcp-server-sqlite")
    failure = _failure(known, silent, may_start_outside=False)
    assert 'uvx --with "mcp<1.10"' in failure.remedy
    assert failure.remedy.endswith("Then run init again")
    other = msgspec.structs.replace(known, command="/opt/bin/of-nobody")
    assert _failure(other, silent, may_start_outside=False).remedy.startswith("start its command")


def test_a_package_whose_installer_is_missing_asks_for_that_first() -> None:
    missing = not_installed("uv was not found", "uv tool install x")
    assert missing.remedy == "install uv, run `uv tool install x`, and init again"
    failed = not_installed("error: no such package", "uv tool install x")
    assert failed.remedy == "run `uv tool install x`, and init again"


def test_a_place_that_cannot_be_looked_at_counts_as_not_there(tmp_path: Path) -> None:
    program_here = tmp_path / "bin" / "only-here"
    program_here.parent.mkdir()
    program_here.write_text("#!/bin/sh\n")
    program_here.chmod(0o755)
    # Too long for the kernel: as a directory of another user, it fails otherwise than by absence.
    closed = f"/{'a' * 300}"
    environ = {"PATH": f"{closed}:{program_here.parent}"}
    found = path_to(["only-here"], tmp_path / "workspace", environ)
    assert found.split(":")[0] == str(program_here.parent)
    assert project_of(Path(closed)) is None


def test_a_server_of_hundreds_of_tools_takes_some_lines_of_the_screen() -> None:
    tools = tuple([ReadTool(name=f"get_{at}", kind="looks", arguments={}) for at in range(198)])
    server = ReadServer(name="linear", annotations="linear", tools=tools)
    heading, *lines = summed_up([server], preset("coding"))
    assert heading == "linear: 198 tools"
    assert lines[-1].endswith("and 174 more")
    assert len(lines) < 8


def test_the_project_of_a_launcher_stays_its_own(tmp_path: Path) -> None:
    line = ("uv", "run", "--directory", str(tmp_path), "server.py")
    assert "cwd" not in lasting(tmp_path, *line)


def test_only_a_known_server_of_the_users_own_file_gets_its_hosts_opened(tmp_path: Path) -> None:
    package = "@modelcontextprotocol/server-github"
    document = {"mcpServers": {"gh": {"command": "npx", "args": ["-y", package]}}}
    planted = {"mcpServers": {"gh2": {"command": "node", "args": [f"node_modules/{package}/x.js"]}}}
    workspace = tmp_path / "project"
    for file, servers in (
        (tmp_path / ".cursor/mcp.json", document),
        (workspace / ".mcp.json", planted),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps(servers))
    (workspace / ".git").mkdir()
    words = [*PROXY, "init", "--dry-run"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    said = program.run(words, environ, workspace).stdout
    project, _, own = said.partition("Cursor  ~/.cursor/mcp.json")
    assert "its sandbox lets it reach api.github.com" in own
    assert "lets it reach" not in project
    assert "api.github.com, where all its work goes, is closed to it" in project


@pytest.mark.parametrize(
    ("entry", "services"),
    [
        ({"args": ["postgresql://me:x@localhost/db"]}, ("127.0.0.1:5432",)),
        ({"args": ["--url=redis://127.0.0.1:6380/0"]}, ("127.0.0.1:6380",)),
        ({"env": {"DB": "mongodb://localhost:27017/?x=http://a"}}, ("127.0.0.1:27017",)),
        ({"args": ["http://localhost", "https://localhost"]}, ("127.0.0.1:80", "127.0.0.1:443")),
        ({"args": ["postgresql://db.example/db", "localhost:5432", "x://localhost"]}, ()),
        ({"args": ["http://localhost:99999", "http://[", 7, "://"], "env": []}, ()),
    ],
)
def test_the_services_of_an_entry_are_those_of_this_machine_that_its_addresses_name(
    entry: dict[str, Json], services: tuple[str, ...]
) -> None:
    assert near_services(entry) == services


@pytest.mark.parametrize(("server", "is_offline"), [("github-reference", False), ("redis", True)])
def test_no_sandbox_with_a_network_is_said_to_hold_a_call(server: str, *, is_offline: bool) -> None:
    tools = (ReadTool(name="make", kind="unknown", arguments={}, effect="writes"),)
    read = [ReadServer(name="s", annotations=server, tools=tools)]
    (_, line) = summed_up(read, preset("coding"))
    assert ("unless a sandbox holds the call" in line) is is_offline
