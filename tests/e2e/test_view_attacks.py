"""Attacks of one command in a view, all at once: then the user's git and editors go on.

With the real sandbox and kernel. Each attack has a directory of its own. A program that ran outside
every sandbox has made the file `ran`; a file in `gone` is what a program of the host acts on.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import done, folder
from tests.e2e.installation import Installation
from tests.e2e.test_left_behind import IDENTITY, WHO
from tests.e2e.test_own_shell import last, run, shelled
from tests.program import PATIENCE
from tests.tables import table

pytestmark = pytest.mark.usefixtures("sandbox")

EVIL: Final = "printf '[core]\\n\\tfsmonitor = {w}/evil.sh\\n'"
REPOSITORY: Final = "echo ref: refs/heads/main > HEAD; mkdir -p objects refs hooks"
POKES: Final = (
    "git status; git add -A; git commit -q --allow-empty -m x; git checkout -- .;"
    " git checkout -q -b new; git submodule update --init"
)
"""What the user does in the directory of each attack, and in what lies below it."""


@dataclass(frozen=True)
class Attack:
    """`{w}` is the workspace."""

    script: str
    gone: tuple[str, ...] = ()


ATTACKS: Final[Mapping[str, Attack]] = table("e2e/view_attacks.attacks", dict[str, Attack])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, list[str]]]:
    installation = Installation(tmp_path_factory.mktemp("view-attacks"))
    here, out = installation.workspace, folder(installation, "out")
    subprocess.run(["git", "init", "-q", "-b", "main", str(here)], check=True)
    (installation.home / ".gitconfig").write_text("[core]\n\tfsmonitor = ./tools/monitor\n")
    (here / "evil.sh").write_text(f"#!/bin/sh\necho >> {out}/ran\n")
    (here / "evil.sh").chmod(0o755)
    agent = shelled(installation)
    lines = [IDENTITY]
    for number, attack in enumerate(ATTACKS.values()):
        place = here / f"d{number}"
        script = folder(installation, "scripts") / f"{number}.sh"
        script.write_text(attack.script.replace("{w}", str(here)))
        lines.append(f"mkdir {place}; cd {place}; timeout 20 sh {script} > /dev/null 2>&1\n")
    (folder(installation, "scripts") / "all.sh").write_text("".join([*lines, "true\n"]))
    assert "KEPT BACK" in done(run(agent, f"sh {installation.root}/scripts/all.sh"))
    assert last(installation)["decidedBy"] == "containment"
    environment = {**os.environ, "HOME": str(installation.home), **WHO}
    found: dict[str, list[str]] = {}
    for number, (name, attack) in enumerate(ATTACKS.items()):
        top = here / f"d{number}"
        found[name] = [one for one in attack.gone if os.path.lexists(top / one)]
        for place in {top, *[one.parent for one in top.rglob("HEAD")], *top.glob("*/")}:
            if (
                os.access(place, os.R_OK | os.X_OK)
                and not place.is_symlink()
                and any(place.iterdir())
            ):
                found[name] += [str(place)] * _acted(place, environment, out / "ran")
    beside = {one.name for one in installation.home.iterdir()}
    found["out of the workspace"] += sorted(beside - {".gitconfig", ".ironcurtain", "workspace"})
    yield found
    installation.end()


def _acted(place: Path, environment: Mapping[str, str], ran: Path) -> bool:
    subprocess.run(
        ["sh", "-c", POKES],
        cwd=place,
        env=dict(environment),
        check=False,
        capture_output=True,
        timeout=PATIENCE,
    )
    acted = ran.exists()
    ran.unlink(missing_ok=True)
    return acted


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_of_a_view_acts_on_the_host(ran: Mapping[str, list[str]], attack: str) -> None:
    assert ran[attack] == []
