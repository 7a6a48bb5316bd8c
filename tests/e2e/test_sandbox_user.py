"""A confined server of an ordinary user. All other tests show it of whoever runs them."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import pytest

from tests.e2e.confined_installation import (
    BLOCKED,
    PATH,
    add_hostile,
    directory_of,
    done,
    escalations,
    is_guardian,
    kill_at_once,
    refused,
    sandboxes,
    those,
)
from tests.e2e.installation import ROOT, Installation
from tests.e2e.process_tree import Watch, descendants

pytestmark = pytest.mark.usefixtures("sandbox")

USER: Final = 65534
AS_USER: Final = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--", "env")
"""`env`, for what setpriv itself starts, it starts with the rights that it had."""


def why_not(*command: str) -> str | None:
    """Why the user cannot run a command; None if it can."""
    ran = subprocess.run(
        [*AS_USER, *command],
        check=False,
        cwd="/",
        env={"PATH": PATH},
        capture_output=True,
        text=True,
    )
    return None if ran.returncode == 0 else ran.stderr.strip() or f"status {ran.returncode}"


def interpreter() -> str:
    """A Python of our version that the user may run: a home directory holds the test's own."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [one for one in (sys.executable, shutil.which(version, path="/usr/bin")) if one]
    usable = [one for one in found if why_not(one, "-c", "") is None]
    return usable[0] if usable else pytest.skip(f"no {version} that uid {USER} may run")


@pytest.fixture
def theirs() -> Iterator[Installation]:
    """An installation of the ordinary user's with one confined server."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can run something as another user, with setpriv")
    why = why_not("bwrap", "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "true")
    if why is not None:
        pytest.skip(f"uid {USER} can have no sandbox here: {why}")
    python = interpreter()
    # The tests' own temporary directories are root's alone.
    place = Path(tempfile.mkdtemp(prefix="installation-"))
    installation = Installation(place)
    installation.command = [*AS_USER, python, "-m", "ironcurtain_proxy"]
    site = Path(anyio.__file__).parents[1]
    add_hostile(installation, "hostile")
    installation.known_sandbox = None  # it was found by another user
    configured = installation.servers["hostile"]
    assert isinstance(configured, dict)
    configured["command"] = python
    escalations(installation)
    installation.variables |= {"SANDBOX_POLICY": "enforce", "PYTHONPATH": f"{ROOT}:{site}"}
    installation.write_policy()
    installation.environment()  # makes the temporary directory
    for path in (place, *place.rglob("*")):
        os.chown(path, USER, USER)
    yield installation
    installation.end()
    shutil.rmtree(place)


@pytest.mark.requirement("C-7", "C-11", "C-12")
def test_the_server_of_an_ordinary_user_is_confined(theirs: Installation) -> None:
    agent = theirs.start()
    outside = theirs.root / "outside.txt"
    inside = theirs.workspace / "inside.txt"
    done(agent.call("write", {"path": str(inside), "text": "x"}))
    assert inside.stat().st_uid == USER
    assert BLOCKED in refused(agent.call("write", {"path": str(outside), "text": "x"}))
    assert not outside.exists()
    hidden = theirs.root / "escalations" / "answer.json"
    assert BLOCKED in refused(agent.call("write", {"path": str(hidden), "text": "x"}))
    assert not hidden.exists()
    assert theirs.outcomes()[-1]["sandboxed"] is True
    processes = theirs.processes(agent)
    assert {Path(f"/proc/{pid}/cmdline").stat().st_uid for pid in sandboxes(processes)} == {USER}
    (sandbox,) = sandboxes(processes)
    directory = directory_of(sandbox)
    watch = Watch(processes)
    assert agent.close() == 0
    assert watch.survivors() == set()
    assert not directory.exists()


def test_a_command_that_starts_ever_more_processes_fails_and_ends_with_its_server(
    theirs: Installation,
) -> None:
    configured = theirs.servers["hostile"]
    assert isinstance(configured, dict)
    configured["sandbox"] = {"limits": {"processes": 40}}
    agent = theirs.start()
    assert 20 < int(done(agent.call("fork"))) < 40
    watch = Watch(theirs.processes(agent))
    assert agent.close() == 0
    assert watch.survivors() == set()


@pytest.mark.requirement("C-12")
def test_what_is_left_of_an_ordinary_user_is_removed_by_the_next_start(
    theirs: Installation,
) -> None:
    agent = theirs.start()
    done(agent.call("stay"))
    below = descendants(agent.process.pid)
    (sandbox,) = sandboxes(below)
    directory = directory_of(sandbox)
    watch = Watch(below)
    kill_at_once({agent.process.pid, sandbox} | those(below, is_guardian))
    assert directory.exists()
    theirs.start().call("pids")
    assert watch.survivors() == set()
    assert not directory.exists()
