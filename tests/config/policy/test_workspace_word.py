"""`@workspace` in a policy and in a server's entry stands for the workspace of the session."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.values import Json, RealPath
from tests.tables import table

RULES = table("config/policy/workspace_word.rules", dict[str, Json])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".ironcurtain" / "generated").mkdir(parents=True)
    (home / ".ironcurtain" / "generated" / "compiled-policy.json").write_bytes(orjson.dumps(RULES))
    servers = {"shell": {"command": "true", "cwd": "@workspace"}}
    (home / ".ironcurtain" / "mcp-servers.json").write_bytes(orjson.dumps(servers))
    return home


def settings(home: Path, workspace: Path | None) -> Settings:
    environ = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    if workspace is not None:
        environ["ALLOWED_DIRECTORY"] = str(workspace)
    return Settings.from_environment(environ)


@pytest.mark.parametrize("name", ["a", "b"])
def test_one_policy_and_one_servers_file_serve_every_workspace(home: Path, name: str) -> None:
    workspace = home / name
    workspace.mkdir()
    found = settings(home, workspace)
    (rule,) = load_policy(found).policy.rules
    assert rule.paths is not None
    assert rule.paths.within == RealPath.from_text(str(workspace.resolve()))
    assert found.servers[0].cwd == str(workspace.resolve())


def test_without_a_workspace_the_rule_speaks_of_no_directory(home: Path) -> None:
    found = settings(home, None)
    (rule,) = load_policy(found).policy.rules
    assert rule.paths is not None
    assert not RealPath.from_text("/").is_within(rule.paths.within)
    assert not RealPath.from_text("/home/me/x").is_within(rule.paths.within)
    assert found.servers[0].cwd is None
    assert any("there is no workspace" in str(problem) for problem in found.warnings)
