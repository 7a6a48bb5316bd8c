"""What a contained process leaves in the workspace does not act when the user goes on working.

With the real sandbox. Each attack is one or more calls, with what the user does between them; then
the user's own git goes on in the repositories concerned. A program that ran outside every sandbox
has made the file `ran`.
"""

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import done, folder
from tests.e2e.installation import Installation
from tests.e2e.test_contained_attacks import Attacked
from tests.program import PATIENCE
from tests.tables import table

pytestmark = pytest.mark.usefixtures("sandbox")

BARE: Final = "git init -q --bare {x}; git -C {x} config core.bare false; "
WHO: Final = {
    f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
IDENTITY: Final = "".join(
    f"export {name}={value}\n" for name, value in {**WHO, "GIT_CONFIG_GLOBAL": "/dev/null"}.items()
)


@dataclass(frozen=True)
class Attack:
    """Calls, and what the user does. `{w}` is the workspace, `{d}` a directory for this attack."""

    calls: tuple[str, ...]
    """Commands in the sandbox; one that begins with `host: ` is the user's own."""
    pokes: tuple[str, ...] = ("git status",)
    """The user's commands afterwards."""
    gone: tuple[str, ...] = ()
    """Files that may not exist afterwards."""


ATTACKS: Final = table("e2e/left_behind.attacks", dict[str, Attack])


@dataclass
class Left:
    """A session, and what each attack did."""

    attacked: Attacked
    ran: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        one = self.attacked
        self.environment = {
            **os.environ,
            "HOME": str(one.home),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **WHO,
        }

    def names(self, attack: str) -> dict[str, str]:
        number = [*ATTACKS].index(attack)
        here = self.attacked.workspace
        return {
            "w": str(here),
            "d": str(here / f"d{number}"),
            "out": str(self.attacked.out),
            "project": str(self.attacked.out / "project"),
        }

    def filled(self, text: str, attack: str) -> str:
        for name, value in self.names(attack).items():
            text = text.replace("{" + name + "}", value)
        return text

    def host(self, command: str, where: str) -> None:
        subprocess.run(
            ["sh", "-c", command],
            check=False,
            capture_output=True,
            cwd=where if Path(where).is_dir() else self.attacked.workspace,
            env=self.environment,
            timeout=PATIENCE,
        )

    def call(self, attack: str) -> None:
        for text in ATTACKS[attack].calls:
            command = self.filled(text, attack)
            if command.startswith("host: "):
                self.host(command.removeprefix("host: "), str(self.attacked.workspace))
                continue
            self.count += 1
            script = folder(self.attacked.installation, "scripts") / f"call-{self.count}.sh"
            script.write_text(f"{IDENTITY}cd {self.attacked.workspace}\n{command}\n")
            done(
                self.attacked.agent.call(
                    "shell", {"command": f"timeout 10 sh {script} < /dev/null"}
                )
            )

    def poke(self, attack: str) -> list[str]:
        """Let the user's own git go on; gives what should not be."""
        directory = Path(self.names(attack)["d"])
        found = []
        for command in ATTACKS[attack].pokes:
            self.host(self.filled(command, attack), str(directory))
            with suppress(FileNotFoundError):
                (self.attacked.out / "ran").unlink()
                found.append(f"{command} ran a program outside every sandbox")
        return found + [one for one in ATTACKS[attack].gone if os.path.lexists(directory / one)]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """One session with all attacks, which has ended when it is given."""
    installation = Installation(tmp_path_factory.mktemp("left"))
    here = installation.workspace
    project = installation.root / "out/project"
    project.mkdir(parents=True)
    of = {here: "scripts/hooks", project: ".husky/_", project.parent / "other": "tools/hooks"}
    for place, hooks in of.items():
        subprocess.run(["git", "init", "-q", "-b", "main", place], check=True)
        subprocess.run(["git", "-C", place, "config", "core.hooksPath", hooks], check=True)
    subprocess.run(
        ["git", "-C", here, "config", "filter.x.clean", "sh ./tools/clean.sh"], check=True
    )
    (here / ".gitattributes").write_text("*.filtered filter=x\n")
    (here / "tools").mkdir()
    (here / "tools/clean.sh").write_text("cat\n")
    (here / ".claude").mkdir()
    (here / ".claude/settings.json").write_text("{}")
    (here / "evil.sh").write_text(f"#!/bin/sh\necho >> {installation.root}/out/ran\n")
    (here / "evil.sh").chmod(0o755)
    left = Left(Attacked(installation))
    for name in ATTACKS:
        left.call(name)
        left.ran[name] = left.poke(name)
    installation.end()
    for name in ATTACKS:
        left.ran[name] += left.poke(name)
    return left


def test_nothing_that_a_contained_call_left_acts_on_the_host(left: Left) -> None:
    assert [attack for attack in ATTACKS if left.ran[attack] != []] == []
