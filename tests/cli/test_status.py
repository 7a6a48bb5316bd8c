"""What `status` says, run as a command."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sessions import note_session
from tests import program
from tests.program import PROXY


def status(
    tmp_path: Path, config: Mapping[str, Json], *arguments: str
) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "config.json"
    file.write_bytes(orjson.dumps(config))
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    # Without srt on the path: no server can be confined, wherever this runs.
    environment = {"PATH": os.path.dirname(sys.executable), "HOME": str(home)}  # noqa: PTH120
    return program.run([*PROXY, "status", "--config", str(file), *arguments], environment)


SERVERS: Mapping[str, Json] = {
    "mcpServers": {"trusted": {"command": "true", "sandbox": False}, "files": {"command": "true"}}
}


@pytest.mark.requirement("X-13", "X-14")
def test_status_prints_what_decides_and_who_is_asked(tmp_path: Path) -> None:
    shown = status(
        tmp_path,
        {
            **SERVERS,
            "security": {"interceptor": {"approvalPolicy": "none"}},
            "capabilities": {"profile": "autonomous"},
            "autoApprove": {"enabled": True, "modelId": "openai:some-model"},
            "containment": {"undo": True},
        },
    )
    assert shown.returncode == 0
    assert "Approval Policy: none\n" in shown.stdout
    assert "Profile:         autonomous (supervised holds)\n" in shown.stdout
    assert "Sandboxes:       not every server runs in one (below)\n" in shown.stdout
    assert "Auto-approver:   openai:some-model\n" in shown.stdout
    assert "Its evidence:    the user's words, where a program sends them; " in shown.stdout
    assert "Auto-confirm:    off\n" in shown.stdout
    none = "Containment:     on, but settles no call of the servers below: none has a sandbox\n"
    assert none in shown.stdout
    assert 'trusted, NOT SANDBOXED ("sandbox": false)' in shown.stdout
    assert "approvalPolicy" in shown.stderr
    assert "supervised holds instead" in shown.stderr


@pytest.mark.requirement("E-5", "X-14")
def test_without_a_word_in_the_configuration_the_policy_is_dangerous(tmp_path: Path) -> None:
    shown = status(tmp_path, SERVERS, "--json")
    fields = orjson.loads(shown.stdout)
    assert fields["approvalPolicy"] == "dangerous"
    assert fields["profile"] == "none"
    assert fields["sandboxPolicy"] == "warn"
    assert [server["sandboxed"] for server in fields["servers"]] == [False, False]


def test_each_line_has_a_blank_between_its_name_and_its_value(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "home/project"
    workspace.mkdir(parents=True)
    # The longest name of a client.
    words = [*PROXY, "hooks", "install", "opencode", "--workspace", str(workspace)]
    program.run(words, {**os.environ, "HOME": str(home)}, workspace)
    lines = status(tmp_path, SERVERS).stdout.splitlines()
    assert [line for line in lines if line.startswith("Hooks of opencode: ")]
    assert [line for line in lines if not re.match(r"[^:]+: +\S", line)] == []


def test_a_configuration_that_cannot_be_used_is_told_in_lines(tmp_path: Path) -> None:
    shown = status(tmp_path, {**SERVERS, "sandboxPolicy": "sometimes"})
    assert shown.returncode == 2
    assert "sandboxPolicy" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_session_of_some_servers_is_held_against_its_own_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    packed: Json = {"command": "mcp-server-sqlite", "annotations": "sqlite", "sandbox": False}
    config: Mapping[str, Json] = {"mcpServers": {"notes": packed, "clock": {"command": "true"}}}
    file = tmp_path / "config.json"
    file.write_bytes(orjson.dumps(config))
    said = {"HOME": str(home), "IRONCURTAIN_CONFIG": str(file), "SERVER_FILTER": "clock"}
    settings = load_settings(said)
    version = load_policy(settings).version
    note_session(settings, "a client", version)
    shown = status(tmp_path, config)
    assert f"policy {version[:12]} (as its files are)" in shown.stdout
    (here,) = re.findall("Policy version: +([0-9a-f]+) \\(of the servers below\\)", shown.stdout)
    assert here != version[:12]
    note_session(settings, "a client", "0" * 64)
    shown = status(tmp_path, config)
    assert f"policy 000000000000 (its files: {version[:12]})" in shown.stdout
