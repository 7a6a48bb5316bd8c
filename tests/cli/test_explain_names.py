"""`explain` knows a tool by the names that agents and clients use, and says which was meant."""

import os
import subprocess
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli.explain_overlay import tool_meant
from ironcurtain_proxy.errors import ConfigurationError
from tests import program
from tests.program import PROXY

FS = {"command": "true", "annotations": "filesystem", "sandbox": False}


def explain(home: Path, servers: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    (home / "work").mkdir(exist_ok=True)
    config = home / "config.json"
    document = {"mcpServers": dict.fromkeys(servers, FS), "allowedDirectory": "work"}
    config.write_bytes(orjson.dumps(document))
    command = [*PROXY, "explain", *arguments, "--config", str(config)]
    return program.run(command, {"PATH": os.defpath, "HOME": str(home)})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("git/git_status", ("git", "git_status")),
        ("git__git_status", ("git", "git_status")),
        ("a__b__c", ("a__b", "c")),
        ("a__c", ("a", "c")),
        ("other__tool", ("other", "tool")),
        ("git/a__b", ("git", "a__b")),
    ],
)
def test_server_and_tool_are_found_in_either_form(name: str, meant: tuple[str, str]) -> None:
    assert tool_meant(name, ["git", "a", "a__b"], may_be_bare=False) == meant


@pytest.mark.parametrize("name", ["", "/", "git/", "/x", "__", "git__", "__x", "status"])
def test_what_is_no_name_of_a_tool_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not SERVER/TOOL"):
        tool_meant(name, ["git"], may_be_bare=False)


def test_a_bare_name_is_the_agents_where_there_is_one_server(tmp_path: Path) -> None:
    one = explain(tmp_path, ["fs"], "read_text_file", "--args", '{"path": "~/.ssh/id"}')
    assert one.stdout.startswith("fs/read_text_file: deny by structural-protected-path")
    two = explain(tmp_path, ["fs", "docs"], "read_text_file")
    assert two.returncode == 2
    assert "is not SERVER/TOOL" in two.stderr


def test_the_agents_name_is_understood(tmp_path: Path) -> None:
    arguments = ("fs__read_text_file", "--args", '{"path": "work/a"}')
    shown = explain(tmp_path, ["fs", "docs"], *arguments)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("fs/read_text_file: allow by ")


def test_a_misspelt_server_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    shown = explain(tmp_path, ["files", "docs"], "fils/read_text_file")
    assert shown.returncode == 2
    assert 'no server "fils" (did you mean "files"?); configured: files, docs' in shown.stderr


def test_a_misspelt_tool_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    shown = explain(tmp_path, ["fs"], "fs/raed_text_file")
    assert shown.stdout.startswith("fs/raed_text_file: deny by missing-annotation")
    assert 'did you mean "read_text_file"?' in shown.stdout
    other = explain(tmp_path, ["fs"], "fs/burn_file")
    assert "did you mean" not in other.stdout
    assert "`ironcurtain-proxy annotate`" in other.stdout
    listing = explain(tmp_path, ["fs"], "fs/list_media_file")
    assert "did you mean" not in listing.stdout, "read_media_file does something else"


def test_what_stops_the_proxy_is_said_besides(tmp_path: Path) -> None:
    shown = explain(tmp_path, [], "filesystem/read_text_file", "--args", '{"path": "/etc/x"}')
    assert "serve refuses to start: " in shown.stderr
    assert "the policy alone" in shown.stdout
