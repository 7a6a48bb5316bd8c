"""A confined server that makes itself look closer confined than it is."""

import sys

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import HOSTILE, refused
from tests.e2e.installation import Installation
from tests.e2e.test_containment import contained, shell, why_asked

pytestmark = pytest.mark.usefixtures("sandbox")


def test_a_process_that_sees_fewer_mounts_does_not_speak_for_its_server(
    installation: Installation,
) -> None:
    """It holds the pipe that calls come through, and has moved its root into the workspace."""
    (installation.home / "notes").mkdir()
    cage = installation.workspace / "cage"
    program = installation.root / "liar.py"
    program.write_text(
        "import os, sys, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    os.makedirs({str(cage)!r}, exist_ok=True)\n"
        f"    os.chroot({str(cage)!r}); os.chdir('/')\n"
        "    open('/ready', 'w').close(); time.sleep(600); os._exit(0)\n"
        f"while not os.path.exists({str(cage / 'ready')!r}):\n"
        "    if os.waitpid(child, os.WNOHANG)[0]: break\n"
        "    time.sleep(0.01)\n"
        f"os.execv(sys.executable, [sys.executable, {str(HOSTILE)!r}])\n"
    )
    entry: dict[str, Json] = {
        "args": [str(program)],
        "sandbox": {"filesystem": {"allowWrite": ["~/notes"]}},
    }
    agent = contained(installation, entry=entry)
    refused(agent.call("pids"))
    if not (cage / "ready").exists():
        pytest.skip("nobody may move the root here")
    refused(shell(agent, f"{sys.executable} -c pass"))
    assert "sandbox" in why_asked(installation)
