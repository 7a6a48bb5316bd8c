"""`ironcurtain-proxy shell` on a real directory."""

import os
from pathlib import Path

import orjson
import pytest

from tests.program import PROXY, run


def _effect(command: str, workspace: Path) -> object:
    argv = [*PROXY, "shell", "--json", "--workspace", str(workspace), command]
    done = run(argv, os.environ, workspace)
    assert done.returncode == 0, done.stderr
    return orjson.loads(done.stdout)["effect"]


@pytest.mark.parametrize("command", ["cat notes", "cat home/hosts.yml", "cat < notes", "ls home"])
def test_a_link_out_of_the_workspace_does_not_only_read(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes").symlink_to("/etc/passwd")
    (tmp_path / "home").symlink_to("/root")
    assert _effect(command, tmp_path) != "reads"


def test_a_link_within_the_workspace_only_reads(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "notes").symlink_to("README.md")
    assert _effect("cat notes", tmp_path) == "reads"


def test_a_file_that_leads_to_another_repository_is_none_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "laid-out").mkdir()
    (tmp_path / ".git").write_text("gitdir: laid-out\n")
    assert _effect("git status", tmp_path) != "reads"


def test_a_password_in_the_remote_of_the_workspace_is_seen(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    config = tmp_path / ".git" / "config"
    config.write_text('[remote "origin"]\n\turl = https://github.com/a/b\n')
    assert _effect("git remote -v", tmp_path) == "reads"
    config.write_text('[remote "origin"]\n\turl = https://me:word@github.com/a/b\n')
    assert _effect("git remote -v", tmp_path) != "reads"


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("uv pip list", "local"),
        ("uv pip install x", "outward"),
        ("terraform validate", "local"),
        ("terraform apply", "outward"),
        ("kubectl config current-context", "local"),
        ("kubectl get pods", "outward"),
    ],
)
def test_what_looks_at_its_own_files_is_local(command: str, effect: str, tmp_path: Path) -> None:
    assert _effect(command, tmp_path) == effect
