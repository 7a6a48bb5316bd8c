"""The user's own settings start programs of the workspace; no contained call changes these.

With the real sandbox, by our own shell and by a server of somebody else's. The settings lie in the
workspace, above it, in the repository of which it is a part, and in the home directory. What they
start is what the host then runs: a program that ran outside every sandbox has made the file `ran`.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct

from tests.e2e.confined_installation import done, folder
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, RawClient
from tests.e2e.test_containment import contained
from tests.e2e.test_left_behind import WHO
from tests.e2e.test_own_shell import run, shelled
from tests.program import PATIENCE, wait_until
from tests.tables import table

pytestmark = pytest.mark.usefixtures("sandbox")


class Attack(Struct, forbid_unknown_fields=True):
    """`{w}` is the workspace, `{d}` a directory for this attack in it, `{top}` what is above it."""

    user: str
    """What the user has set up."""
    call: str
    """The command in the sandbox. `evil FILE` writes a program, a module, or what a shell loads."""
    host: str
    """What the user's programs do afterwards."""


ATTACKS: Final = table("e2e/own_settings.attacks", dict[str, Attack])
EVIL: Final = (
    'evil() { mkdir -p "$(dirname "$1")"; rm -f "$1"; case $1 in'
    " *.py) echo \"open('{ran}', 'w')\" > \"$1\" ;; *) printf '#!/bin/sh\\ntouch {ran}\\n' > \"$1\""
    ' ;; esac; chmod 755 "$1"; }\n'
)
PROGRAM: Final = (
    'program() { mkdir -p "$(dirname "$1")"; printf \'#!/bin/sh\\n\' > "$1"; chmod 755 "$1"; }\n'
    'hook() { program "$1"; echo "$2" >> "$1"; }\n'
)


def _between_looks(agent: RawClient, here: Path, command: str) -> Message:
    """Run a command while the proxy stands: on a busy machine it would put too much back."""
    begun, go, over = (here / name for name in ("begun", "go", "over"))
    wait = f"touch {begun}; until [ -e {go} ]; do sleep 0.01; done"
    call = agent.start_call("shell", {"command": f"{wait}; {command}; touch {over}"})
    wait_until(begun.exists)
    os.kill(agent.process.pid, signal.SIGSTOP)
    go.touch()
    wait_until(over.exists)
    os.kill(agent.process.pid, signal.SIGCONT)
    return agent.result(call)


@pytest.fixture(scope="module", params=["our own shell", "another server"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The attacks after which a program ran outside, of one session with all of them."""
    installation = Installation(tmp_path_factory.mktemp("own-settings"))
    top = installation.workspace
    here = installation.workspace = top / "pkg"
    out = folder(installation, "out") / "ran"
    environment = {**os.environ, "HOME": str(installation.home), **WHO}
    for place in (top, here):
        place.mkdir(exist_ok=True)
        _host(f"git init -q -b main {place}", place, environment)
    names = {"w": here, "top": top, "ran": out}
    for number, attack in enumerate(ATTACKS.values()):
        there = {**names, "d": here / f"d{number}"}
        there["d"].mkdir()
        _host(PROGRAM + _filled(attack.user, there), there["d"], environment)
    is_ours = request.param == "our own shell"
    agent = shelled(installation) if is_ours else contained(installation)
    lines = [_filled(EVIL, names)]
    for number, attack in enumerate(ATTACKS.values()):
        there = {**names, "d": here / f"d{number}"}
        lines.append(f"cd {there['d']}; {_filled(attack.call, there)}\n")
    (here / "all.sh").write_text("".join([*lines, "true\n"]))
    command = f"cd {here} && sh all.sh"
    done(run(agent, command) if is_ours else _between_looks(agent, here, command))
    assert installation.outcomes()[-1]["decidedBy"] == "containment"
    found = []
    for number, (name, attack) in enumerate(ATTACKS.items()):
        there = {**names, "d": here / f"d{number}"}
        _host(_filled(attack.host, there), there["d"], environment)
        if out.exists():
            out.unlink()
            found.append(name)
    installation.end()
    return found


def _filled(text: str, names: Mapping[str, Path]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def _host(command: str, place: Path, environment: Mapping[str, str]) -> None:
    subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=dict(environment),
        check=False,
        capture_output=True,
        timeout=PATIENCE,
    )


def test_nothing_that_the_users_own_settings_start_was_changed(ran: list[str]) -> None:
    assert ran == []
