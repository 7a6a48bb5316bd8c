"""Servers that are configured by `npx` and `uvx`, with their packages installed or not.

The launchers on the `PATH` are scripts of the test's own: what they are asked to run is written
down, and then the real server is run without any sandbox, as they would.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.wiring.confining import confinements
from ironcurtain_proxy.wiring.proxy import settled
from tests import program
from tests.e2e.confined_installation import HOSTILE, PATH, known_sandbox, require_sandbox
from tests.e2e.installation import QUICK, Installation, rule
from tests.e2e.raw_client import Message, RawClient, text
from tests.e2e.real_servers import MODULES, npm_server, python_server
from tests.program import PATIENCE, PROXY

PACKAGE: Final = "@modelcontextprotocol/server-filesystem"


@pytest.fixture(scope="module", autouse=True)
def available() -> None:
    """Skip all of this where no sandbox can be had, or fail if there must be one."""
    require_sandbox()


def add_launched(
    installation: Installation, name: str, command: list[str], real: list[str]
) -> None:
    """Configure a server by a launcher, which runs the real one if it comes to that."""
    programs = installation.root / "programs"
    programs.mkdir(exist_ok=True)
    launcher = programs / command[0]
    launcher.write_text(
        f'#!/bin/sh\necho "$@" >>{installation.root}/launched\nexec {" ".join(real)}\n'
    )
    launcher.chmod(0o755)
    installation.add_server(name, command)
    configured = installation.servers[name]
    assert isinstance(configured, dict)
    del configured["sandbox"]
    installation.rules.append(rule(f"all-of-{name}", server=[name]))
    installation.variables["PATH"] = f"{programs}:{PATH}"
    installation.known_sandbox = known_sandbox()


def add_filesystem(installation: Installation, package: str = PACKAGE) -> None:
    """The public file server as its documentation says."""
    real = npm_server("filesystem", str(installation.workspace))
    add_launched(
        installation, "filesystem", ["npx", "-y", package, str(installation.workspace)], real
    )


def install(installation: Installation, place: str) -> None:
    """Lay the npm packages of this project where npx looks for them."""
    modules = installation.root / place
    modules.parent.mkdir(parents=True, exist_ok=True)
    modules.symlink_to(MODULES)


def was_launched(installation: Installation) -> bool:
    return (installation.root / "launched").exists()


def write(agent: RawClient, file: Path) -> None:
    given: Message = {"path": str(file), "content": "x"}
    assert "isError" not in agent.call("write_file", given)
    assert file.read_text() == "x"


@pytest.mark.requirement("C-7", "C-14")
def test_a_package_that_is_installed_runs_confined_without_npx(installation: Installation) -> None:
    """By an earlier npx. `tests/sandbox/test_installed.py` has the other places."""
    add_filesystem(installation)
    install(installation, "home/.npm/_npx/0123456789abcdef/node_modules")
    installation.variables["SANDBOX_POLICY"] = "enforce"
    agent = installation.start()
    write(agent, installation.workspace / "file.txt")
    assert [record["sandboxed"] for record in installation.records()] == [True, True]
    assert not was_launched(installation)
    assert "warning" not in agent.errors.read_text()


@pytest.mark.requirement("C-7", "C-14")
def test_a_tool_that_is_installed_runs_confined_without_uvx(installation: Installation) -> None:
    real = python_server("git")
    add_launched(installation, "git", ["uvx", "mcp-server-git"], real)
    tools = installation.home / ".local" / "share" / "uv" / "tools"
    tools.mkdir(parents=True)
    (tools / "mcp-server-git").symlink_to(sys.prefix)
    installation.variables["SANDBOX_POLICY"] = "enforce"
    subprocess.run(["git", "init", "-q", str(installation.workspace)], check=True)
    agent = installation.start()
    assert "branch" in text(agent.call("git_status", {"repo_path": str(installation.workspace)}))
    assert installation.outcomes()[-1]["sandboxed"] is True
    assert not was_launched(installation)


@pytest.mark.requirement("C-15")
def test_a_package_that_is_not_installed_runs_unconfined_and_its_installation_is_named(
    installation: Installation,
) -> None:
    add_filesystem(installation)
    agent = installation.start()
    write(agent, installation.workspace / "file.txt")
    assert was_launched(installation)
    assert [record["sandboxed"] for record in installation.records()] == [False, False]
    assert f"run npm install -g {PACKAGE}\n" in agent.errors.read_text()


def refusal(installation: Installation) -> str:
    """What a proxy says that must not start."""
    installation.variables["SANDBOX_POLICY"] = "enforce"
    agent = installation.launch()
    assert agent.process.wait(PATIENCE) == 2
    assert not was_launched(installation)
    return agent.errors.read_text()


@pytest.mark.requirement("C-14")
def test_enforce_does_not_start_with_a_package_that_is_not_installed(
    installation: Installation,
) -> None:
    add_filesystem(installation)
    assert f"run npm install -g {PACKAGE}\n" in refusal(installation)


@pytest.mark.requirement("C-14")
def test_enforce_does_not_start_with_another_version_than_the_written_one(
    installation: Installation,
) -> None:
    add_filesystem(installation, f"{PACKAGE}@2025.1.1")
    install(installation, "home/node_modules")
    said = refusal(installation)
    assert "(version 2026.8.31 is installed)" in said
    assert f"run npm install -g {PACKAGE}@2025.1.1\n" in said


@pytest.mark.requirement("C-14")
@pytest.mark.parametrize("place", ["node_modules", ".npm/_npx/0123456789abcdef/node_modules"])
def test_a_package_that_the_agent_may_have_written_is_not_run_in_its_place(
    installation: Installation, place: str
) -> None:
    add_filesystem(installation)
    install(installation, f"home/workspace/{place}")
    configured = installation.servers["filesystem"]
    assert isinstance(configured, dict)
    configured["cwd"] = str(installation.workspace)
    installation.variables["npm_config_cache"] = str(installation.workspace / ".npm")
    assert "lies where the agent may write" in refusal(installation)


@pytest.mark.requirement("C-11")
def test_a_trusted_server_keeps_its_launcher(installation: Installation) -> None:
    add_filesystem(installation)
    install(installation, "home/node_modules")
    configured = installation.servers["filesystem"]
    assert isinstance(configured, dict)
    configured["sandbox"] = False
    write(installation.start(), installation.workspace / "file.txt")
    assert was_launched(installation)
    assert installation.outcomes()[-1]["sandboxed"] is False


def test_check_live_starts_what_serve_would_start(installation: Installation) -> None:
    add_filesystem(installation)
    install(installation, "home/node_modules")
    installation.write_policy()
    environment = {**installation.environment(), "SANDBOX_POLICY": "enforce"}
    ran = program.run([*PROXY, "check", "--live"], environment, installation.workspace)
    assert ran.returncode == 0, ran.stdout
    assert not was_launched(installation)


@pytest.mark.requirement("C-14")
def test_a_package_that_is_gone_by_the_time_its_server_starts_is_not_fetched_under_enforce(
    installation: Installation,
) -> None:
    add_filesystem(installation)
    installation.write_policy()
    environment = {**installation.environment(), "SANDBOX_POLICY": "enforce"}
    settings = load_settings(dict(environment))
    policy = load_policy(settings).policy
    found = Available(("srt",))
    with pytest.raises(ConfigurationError, match=f"run npm install -g {PACKAGE}"):
        confinements(found, settled(settings, environment), settings, policy)
    install(installation, "home/node_modules")
    confined = confinements(found, settled(settings, environment), settings, policy)
    assert [*confined] == ["filesystem"]


def add_shell(installation: Installation) -> None:
    """A server that runs commands, by `npx`, in the workspace."""
    real = [*QUICK, str(HOSTILE)]
    add_launched(installation, "box", ["npx", "-y", "tiny-shell"], real)
    configured = installation.servers["box"]
    assert isinstance(configured, dict)
    configured["cwd"] = "@workspace"
    installation.annotations["box"] = {"shell": {"command": ["none"]}}


def lay_shell(installation: Installation, modules: Path) -> None:
    package = modules / "tiny-shell"
    package.mkdir(parents=True)
    (package / "package.json").write_text(
        '{"name": "tiny-shell", "version": "1.0.0", "bin": "run.sh"}'
    )
    script = package / "run.sh"
    script.write_text(f"#!/bin/sh\nexec {' '.join(QUICK)} {HOSTILE}\n")
    script.chmod(0o755)


def test_the_directory_of_a_shell_server_by_npx_is_the_workspace(
    installation: Installation,
) -> None:
    add_shell(installation)
    lay_shell(installation, installation.home / "node_modules")
    agent = installation.start()
    assert str(installation.workspace) in text(agent.call("shell", {"command": "pwd"}))
    assert installation.records()[-1]["sandboxed"] is True
    assert not was_launched(installation)


def test_a_launcher_that_fetches_does_not_start_where_the_agent_writes(
    installation: Installation,
) -> None:
    add_shell(installation)
    # What npx would find first: a program that the agent has written.
    lay_shell(installation, installation.workspace / "node_modules")
    agent = installation.start()
    said = text(agent.call("shell", {"command": "pwd"}))
    assert was_launched(installation)
    assert "box.cwd" in said
    assert str(installation.workspace) not in said
