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


ATTACKS: Final[Mapping[str, Attack]] = {
    "settings flipped": Attack(
        f"git init -q .; for i in 1 2 3; do cp .git/config c; {EVIL} >> .git/config; done"
    ),
    "hooks of a new repository": Attack(
        "git init -q .; for h in pre-commit post-checkout reference-transaction; do"
        " cp {w}/evil.sh .git/hooks/$h; done"
    ),
    "a sample renamed to a hook": Attack(
        "git init -q .; cp {w}/evil.sh .git/hooks/pre-commit.sample;"
        " mv .git/hooks/pre-commit.sample .git/hooks/pre-commit"
    ),
    "hooks as a link": Attack(
        "git init -q .; rm -rf .git/hooks; mkdir h; cp {w}/evil.sh h/pre-commit;"
        " ln -s ../h .git/hooks"
    ),
    "a repository made of pieces": Attack(f"{REPOSITORY}; {EVIL} > config; cp {{w}}/evil.sh hooks"),
    "a repository in another's data": Attack(
        f"git init -q .; for d in objects refs logs lfs; do mkdir -p .git/$d/q; (cd .git/$d/q;"
        f" {REPOSITORY}; {EVIL} > config; cp {{w}}/evil.sh hooks/post-checkout); done"
    ),
    "pointers in a chain": Attack(
        f"mkdir a b; git init -q r; mv r/.git real; {EVIL} >> real/config;"
        " echo 'gitdir: ../real' > a/.git; echo 'gitdir: ../a/.git' > b/.git"
    ),
    "a common directory elsewhere": Attack(
        f"mkdir a b; (cd b; {REPOSITORY}; {EVIL} > config); cd a; echo ../b > commondir;"
        " echo ref: refs/heads/main > HEAD"
    ),
    "settings of a worktree": Attack(
        f"git init -q .; git commit -q --allow-empty -m x; git worktree add -q t;"
        f" {EVIL} > .git/worktrees/t/config.worktree"
    ),
    "modules as a link": Attack(
        f"git init -q .; mkdir m; (cd m; {REPOSITORY}; {EVIL} > config); ln -s ../m .git/modules"
    ),
    "other places of objects": Attack(
        "git init -q .; echo {w} > .git/objects/info/alternates; echo x > .git/info/grafts",
        (".git/objects/info/alternates", ".git/info/grafts"),
    ),
    "attributes of its own": Attack(
        "git init -q .; echo '* filter=x' > .git/info/attributes", (".git/info/attributes",)
    ),
    "waiting operations": Attack(
        "git init -q .; mkdir .git/rebase-merge .git/sequencer; echo 'exec {w}/evil.sh' |"
        " tee .git/rebase-merge/git-rebase-todo .git/sequencer/todo .git/BISECT_RUN",
        (".git/rebase-merge", ".git/sequencer", ".git/BISECT_RUN"),
    ),
    "submodules with commands": Attack(
        'git init -q .; printf \'[submodule "x"]\\n\\tpath = x\\n\\turl = ext::{w}/evil.sh\\n'
        "\\tupdate = !{w}/evil.sh\\n' > .gitmodules"
    ),
    "an index with a hook": Attack(
        "git init -q .; git update-index --add --cacheinfo"
        " 100755,$(git hash-object -w {w}/evil.sh),-git/hooks/post-checkout;"
        " LC_ALL=C sed -i s,-git/hooks,.git/hooks, .git/index"
    ),
    "a program that the user's settings name": Attack(
        "git init -q .; mkdir tools; cp {w}/evil.sh tools/monitor"
    ),
    "names in other letters": Attack(
        "mkdir .Claude .VSCODE; touch .Claude/settings.json .VSCODE/tasks.json .MCP.JSON",
        (".Claude/settings.json", ".VSCODE/tasks.json", ".MCP.JSON"),
    ),
    "a directory renamed at last": Attack(
        "mkdir x; touch x/settings.json; for i in 1 2 3; do mv x .claude; mv .claude x; done;"
        " mv x .claude",
        (".claude/settings.json",),
    ),
    "directories that change places": Attack(
        'mkdir x .vscode; touch x/tasks.json; python3 -c "import ctypes;'
        " ctypes.CDLL(None).renameat2(-100, b'x', -100, b'.vscode', 2)\"",
        (".vscode/tasks.json",),
    ),
    "a closed directory": Attack(
        "mkdir -p m/.claude; touch m/.claude/settings.json; chmod 0 m/.claude m",
        ("m/.claude/settings.json",),
    ),
    "a crowd": Attack(
        "mkdir .vscode; cd .vscode; seq -f a%g 3000 | xargs touch; touch tasks.json",
        (".vscode/tasks.json",),
    ),
    "a cache renamed and linked": Attack(
        "mkdir -p node_modules/x/.vscode; touch node_modules/x/.vscode/tasks.json;"
        " cp -r node_modules n; ln -s node_modules/x l",
        ("n/x/.vscode/tasks.json", "l/.vscode/tasks.json"),
    ),
    "a second name": Attack("touch x; ln x .envrc; ln -s x .mcp.json", (".envrc", ".mcp.json")),
    "names nobody knows": Attack(
        "mkdir .frob '.claude ' '.git '; touch .frob/x '.claude /x' '.git /config'",
        (".frob", ".claude ", ".git "),
    ),
    "a process left behind": Attack(
        "(setsid sh -c 'sleep 0.3; cp {w}/evil.sh x; mkdir .zed; touch .zed/tasks.json' &)"
        " > /dev/null 2>&1",
        (".zed/tasks.json",),
    ),
    "devices, pipes and sockets": Attack(
        "mkfifo p; mknod c c 1 3; git init -q .; rm -f .git/COMMIT_EDITMSG;"
        " mkfifo .git/COMMIT_EDITMSG",
        ("p", "c", ".git/COMMIT_EDITMSG"),
    ),
    "notes of the overlay": Attack(
        'mkdir x; for n in opaque redirect whiteout metacopy; do python3 -c "import os, sys;'
        " os.setxattr('x', 'user.overlay.$n', b'y')\"; done; mknod w c 0 0; touch x/.envrc",
        ("w", "x/.envrc"),
    ),
    "a file without a name": Attack(
        "python3 -c \"import os; f = os.open('.', os.O_TMPFILE | os.O_RDWR);"
        " os.link(f'/proc/self/fd/{f}', '.envrc', follow_symlinks=True)\"",
        (".envrc",),
    ),
    "out of the workspace": Attack(
        "echo x > {w}/../beside; ln -s {w}/../../out/ran l; echo x > l; mv . {w}/../moved;"
        " python3 -c \"import os; os.link('{w}/evil.sh', '{w}/../linked')\""
    ),
    "mounts": Attack(
        "mount --bind {w} .; unshare -Urm mount -t tmpfs x .; touch .envrc", (".envrc",)
    ),
}


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
        timeout=60,
    )
    acted = ran.exists()
    ran.unlink(missing_ok=True)
    return acted


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_of_a_view_acts_on_the_host(ran: Mapping[str, list[str]], attack: str) -> None:
    assert ran[attack] == []
