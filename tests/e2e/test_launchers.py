"""Servers that are configured by `npx` and `uvx`, with their packages installed or not.

The launchers on the `PATH` are scripts of the test's own: what they are asked to run is written
down, and then the real server is run without any sandbox, as they would.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ironcurtain_proxy.administration.policy_loading import load_policy
from ironcurtain_proxy.administration.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.sandbox.probe import Available, probe
from ironcurtain_proxy.wiring.confinement import confinements
from ironcurtain_proxy.wiring.proxy import settled
from tests.e2e.house import PROXY, House, rule
from tests.e2e.raw_client import DEADLINE, Message, RawClient, text
from tests.e2e.real_servers import MODULES, npm_server, python_server

PATH: Final = f"{MODULES / '.bin'}:{os.environ['PATH']}"
PACKAGE: Final = "@modelcontextprotocol/server-filesystem"


@pytest.fixture(scope="module", autouse=True)
def available() -> None:
    """Skip all of this where no sandbox can be had, or fail if there must be one."""
    found = probe({**os.environ, "PATH": PATH})
    if isinstance(found, Available):
        return
    why = "; ".join(f"{one.name}: {one.why} ({one.remedy})" for one in found.missing)
    if os.environ.get("REQUIRE_SANDBOX") == "1":
        pytest.fail(f"no sandbox: {why}")
    pytest.skip(f"no sandbox: {why}")


def add_launched(house: House, name: str, command: list[str], real: list[str]) -> None:
    """Configure a server by a launcher, which runs the real one if it comes to that."""
    programs = house.root / "programs"
    programs.mkdir(exist_ok=True)
    launcher = programs / command[0]
    launcher.write_text(f'#!/bin/sh\necho "$@" >>{house.root}/launched\nexec {" ".join(real)}\n')
    launcher.chmod(0o755)
    house.add_server(name, command)
    configured = house.servers[name]
    assert isinstance(configured, dict)
    del configured["sandbox"]
    house.rules.append(rule(f"all-of-{name}", server=[name]))
    house.variables["PATH"] = f"{programs}:{PATH}"


def add_filesystem(house: House, package: str = PACKAGE) -> None:
    """The public file server as its documentation says."""
    real = npm_server("filesystem", str(house.workspace))
    add_launched(house, "filesystem", ["npx", "-y", package, str(house.workspace)], real)


def install(house: House, place: str) -> None:
    """Lay the npm packages of this project where npx looks for them."""
    modules = house.root / place
    modules.parent.mkdir(parents=True, exist_ok=True)
    modules.symlink_to(MODULES)


def was_launched(house: House) -> bool:
    return (house.root / "launched").exists()


def write(agent: RawClient, file: Path) -> None:
    given: Message = {"path": str(file), "content": "x"}
    assert "isError" not in agent.call("write_file", given)
    assert file.read_text() == "x"


PLACES: Final = {
    "above its directory": "home/node_modules",
    "globally": "prefix/lib/node_modules",
    "by an earlier npx": "home/.npm/_npx/0123456789abcdef/node_modules",
}


@pytest.mark.requirement("C-7", "C-14")
@pytest.mark.parametrize("place", PLACES.values(), ids=[*PLACES])
def test_a_package_that_is_installed_runs_confined_without_npx(house: House, place: str) -> None:
    add_filesystem(house)
    install(house, place)
    (house.root / "prefix" / "bin").mkdir(parents=True)
    house.variables["PATH"] += f":{house.root}/prefix/bin"
    house.variables["SANDBOX_POLICY"] = "enforce"
    agent = house.start()
    write(agent, house.workspace / "file.txt")
    assert [record["sandboxed"] for record in house.records()] == [True, True]
    assert not was_launched(house)
    assert "warning" not in agent.errors.read_text()


@pytest.mark.requirement("C-7", "C-14")
def test_a_tool_that_is_installed_runs_confined_without_uvx(house: House) -> None:
    real = python_server("git")
    add_launched(house, "git", ["uvx", "mcp-server-git"], real)
    tools = house.home / ".local" / "share" / "uv" / "tools"
    tools.mkdir(parents=True)
    (tools / "mcp-server-git").symlink_to(sys.prefix)
    house.variables["SANDBOX_POLICY"] = "enforce"
    subprocess.run(["git", "init", "-q", str(house.workspace)], check=True)
    agent = house.start()
    assert "branch" in text(agent.call("git_status", {"repo_path": str(house.workspace)}))
    assert house.outcomes()[-1]["sandboxed"] is True
    assert not was_launched(house)


@pytest.mark.requirement("C-15")
def test_a_package_that_is_not_installed_runs_unconfined_and_its_installation_is_named(
    house: House,
) -> None:
    add_filesystem(house)
    agent = house.start()
    write(agent, house.workspace / "file.txt")
    assert was_launched(house)
    assert [record["sandboxed"] for record in house.records()] == [False, False]
    assert f"run npm install -g {PACKAGE}\n" in agent.errors.read_text()


def refusal(house: House) -> str:
    """What a proxy says that must not start."""
    house.variables["SANDBOX_POLICY"] = "enforce"
    agent = house.launch()
    assert agent.process.wait(DEADLINE) == 2
    assert not was_launched(house)
    return agent.errors.read_text()


@pytest.mark.requirement("C-14")
def test_enforce_does_not_start_with_a_package_that_is_not_installed(house: House) -> None:
    add_filesystem(house)
    assert f"run npm install -g {PACKAGE}\n" in refusal(house)


@pytest.mark.requirement("C-14")
def test_enforce_does_not_start_with_another_version_than_the_written_one(house: House) -> None:
    add_filesystem(house, f"{PACKAGE}@2025.1.1")
    install(house, "home/node_modules")
    said = refusal(house)
    assert "(version 2026.8.31 is installed)" in said
    assert f"run npm install -g {PACKAGE}@2025.1.1\n" in said


@pytest.mark.requirement("C-14")
@pytest.mark.parametrize("place", ["node_modules", ".npm/_npx/0123456789abcdef/node_modules"])
def test_a_package_that_the_agent_may_have_written_is_not_run_in_its_place(
    house: House, place: str
) -> None:
    add_filesystem(house)
    install(house, f"home/workspace/{place}")
    configured = house.servers["filesystem"]
    assert isinstance(configured, dict)
    configured["cwd"] = str(house.workspace)
    house.variables["npm_config_cache"] = str(house.workspace / ".npm")
    assert "lies where the agent may write" in refusal(house)


@pytest.mark.requirement("C-11")
def test_a_trusted_server_keeps_its_launcher(house: House) -> None:
    add_filesystem(house)
    install(house, "home/node_modules")
    configured = house.servers["filesystem"]
    assert isinstance(configured, dict)
    configured["sandbox"] = False
    write(house.start(), house.workspace / "file.txt")
    assert was_launched(house)
    assert house.outcomes()[-1]["sandboxed"] is False


def test_check_live_starts_what_serve_would_start(house: House) -> None:
    add_filesystem(house)
    install(house, "home/node_modules")
    house.write_policy()
    environment = {**house.environment(), "SANDBOX_POLICY": "enforce"}
    ran = subprocess.run(
        [*PROXY, "check", "--live"],
        env=environment,
        cwd=house.workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert not was_launched(house)


@pytest.mark.requirement("C-14")
def test_a_package_that_is_gone_by_the_time_its_server_starts_is_not_fetched_under_enforce(
    house: House,
) -> None:
    add_filesystem(house)
    house.write_policy()
    environment = {**house.environment(), "SANDBOX_POLICY": "enforce"}
    settings = load_settings(dict(environment))
    policy = load_policy(settings).policy
    found = Available(("srt",))
    with pytest.raises(ConfigurationError, match=f"run npm install -g {PACKAGE}"):
        confinements(found, settled(settings, environment), settings, policy)
    install(house, "home/node_modules")
    confined = confinements(found, settled(settings, environment), settings, policy)
    assert [*confined] == ["filesystem"]
