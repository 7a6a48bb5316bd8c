"""What a contained process leaves in the workspace does not act when the user goes on working.

With the real sandbox. Each attack is one or more calls, with what the user does between them; then
the user's own git goes on in the repositories concerned. A program that ran outside every sandbox
has made the file `ran`.
"""

# ruff: noqa: E501, ISC004  commands over several lines

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

pytestmark = pytest.mark.usefixtures("sandbox")

MONITOR: Final = "printf '[core]\\n\\tfsmonitor = {w}/evil.sh\\n' >> "
BARE: Final = "git init -q --bare {x}; git -C {x} config core.bare false; "
WHO: Final = {
    f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
IDENTITY: Final = "".join(
    f"export {name}={value}\n" for name, value in {**WHO, "GIT_CONFIG_GLOBAL": "/dev/null"}.items()
)
REBASE: Final = (
    "git init -q -b main {d}; cd {d}; for n in 1 2 3; do echo $n > f; git add f; git commit -qm $n;"
    " done; git checkout -qb other HEAD~2; echo x > f; git commit -qam x; echo y > f;"
    " git commit -qam y; "
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


ATTACKS: Final = {
    "hooks behind a crowd": Attack(
        (
            "git init -q {d}; cd {d}/.git/hooks; seq -f a%g.sample 2500 | xargs touch;"
            " for h in pre-commit post-commit prepare-commit-msg post-index-change; do"
            " cp {w}/evil.sh $h; done",
        ),
        ("git commit --allow-empty -qm x",),
    ),
    "hooks behind a crowd in a repository that was accepted": Attack(
        (
            "git init -q {d}",
            "cd {d}/.git/hooks; seq -f a%g.sample 2500 | xargs touch; seq -f b%g 300 |"
            " xargs touch; for h in pre-commit post-commit; do cp {w}/evil.sh $h; done",
        ),
        ("git commit --allow-empty -qm x",),
    ),
    "settings behind a crowd, renamed into place": Attack(
        (
            "mkdir -p node_modules/p/.claude node_modules/p/.vscode {d}; cd node_modules/p;"
            " (cd .claude; seq -f a%g 2500 | xargs touch); echo {} > .claude/settings.json;"
            " echo {} > .vscode/tasks.json; mv .claude .vscode {d}",
        ),
        gone=(".claude/settings.json", ".vscode/tasks.json"),
    ),
    "a configuration under a second name among decoys": Attack(
        (
            "git init -q {d}; mkdir -p node_modules/x; ln {d}/.git/config node_modules/x/c2;"
            " for n in $(seq 60); do mkdir -p decoy/$n/.git; done; (setsid sh -c"
            " 'sleep 1; printf \"[core]\\n\\tfsmonitor = {w}/evil.sh\\n\" >> node_modules/x/c2'"
            " > /dev/null 2>&1 &)",
            "sleep 2",
        )
    ),
    "the workspace's own configuration after the user's git rewrote it": Attack(
        (
            "true",
            "host: cd {w}; git config user.name me",
            "mkdir -p node_modules/x; ln .git/config node_modules/x/c3;"
            + MONITOR
            + "node_modules/x/c3",
        ),
        ("cd {w}; git status",),
    ),
    "settings that their client has saved anew": Attack(
        (
            "host: cp {w}/.claude/settings.json {w}/.claude/s; mv {w}/.claude/s {w}/.claude/settings.json",
            "echo '{\"evil\": 1}' > .claude/settings.json || ln .claude/settings.json x.json;"
            " echo '{\"evil\": 1}' > x.json",
            "host: grep -q evil {w}/.claude/settings.json && touch {out}/ran || true",
        ),
        (),
    ),
    "a gitlink into a cache": Attack(
        (
            "git init -q node_modules/y; cd node_modules/y; git commit -q --allow-empty -m x;"
            " git config core.fsmonitor {w}/evil.sh; cd {w}; git add -f node_modules/y",
        ),
        ("cd {w}; git status",),
    ),
    "a gitlink into a directory below a module": Attack(
        (
            "mkdir -p .git/modules/a; echo 'ref: refs/heads/x' > .git/modules/a/HEAD",
            BARE.replace("{x}", ".git/modules/a/evil")
            + "git -C .git/modules/a/evil config core.fsmonitor {w}/evil.sh; mkdir -p sub1;"
            " echo 'gitdir: {w}/.git/modules/a/evil' > sub1/.git; cd sub1;"
            " git commit -q --allow-empty -m x; cd ..; git add -f sub1",
        ),
        ("cd {w}; git status", "cd {w}/sub1; git status"),
    ),
    "a gitlink into a directory below a worktree": Attack(
        (
            "mkdir -p .git/worktrees/a; echo 'ref: refs/heads/x' > .git/worktrees/a/HEAD",
            BARE.replace("{x}", ".git/worktrees/a/evil")
            + "git -C .git/worktrees/a/evil config core.fsmonitor {w}/evil.sh; mkdir -p sub2;"
            " echo 'gitdir: {w}/.git/worktrees/a/evil' > sub2/.git; cd sub2;"
            " git commit -q --allow-empty -m x; cd ..; git add -f sub2",
        ),
        ("cd {w}; git status", "cd {w}/sub2; git status"),
    ),
    "a pointer to another project of the user's, with relative hooks": Attack(
        (
            "mkdir -p {d}/.husky/_; cp evil.sh {d}/.husky/_/pre-commit;"
            " cp evil.sh {d}/.husky/_/post-index-change; echo 'gitdir: {project}/.git' > {d}/.git",
        ),
        ("git commit --allow-empty -qm x", "git status"),
    ),
    "a pointer that git reads up to its carriage return": Attack(
        (
            'mkdir -p {d}/x/tools/hooks; cd {d}; r="$(printf \'r\\r\')"; git init -q --bare "$r";'
            " ln -s {project}/../other/.git r; cp {w}/evil.sh x/tools/hooks/post-index-change;"
            " printf 'gitdir: {d}/r\\r\\n' > x/.git",
        ),
        ("cd {d}/x; git status",),
    ),
    "a pointer with NUL, which no look must stumble over": Attack(
        (
            "mkdir -p {d}/n; printf 'gitdir: {w}/.git\\0y\\n' > {d}/n/.git; git init -q {d}/e;"
            + MONITOR
            + "{d}/e/.git/config",
        ),
        ("cd {d}/e; git status",),
    ),
    "a pointer together with the hooks that it leads to": Attack(
        (
            "mkdir -p {d}/scripts/hooks; cp evil.sh {d}/scripts/hooks/post-index-change;"
            " echo 'gitdir: {w}/.git' > {d}/.git",
        )
    ),
    "a link into the server's own directory for temporary files": Attack(
        (
            "git init -q /tmp/r;" + MONITOR + "/tmp/r/.git/config; ln -s $(grep ' /tmp ' "
            "/proc/self/mountinfo | tail -n 1 | cut -d ' ' -f 4)/r {d}",
        )
    ),
    "a link of the kernel into the mounts of a sandbox": Attack(
        ("mkdir {d}; ln -s /dev/fd/../../1/root/tmp {d}/l",), (), ("l",)
    ),
    "a configuration at the inode of the closed one": Attack(
        ("host: cd {w}; git config user.name a; git config user.name b", MONITOR + ".git/config"),
        ("cd {w}; git status",),
    ),
    "an order added to a waiting rebase": Attack(
        (
            REBASE + "git rebase main",
            "cd {d}; echo 'exec {w}/evil.sh' >> .git/rebase-merge/git-rebase-todo",
        ),
        ("git checkout --theirs f; git add f; git -c core.editor=true rebase --continue",),
    ),
    "a strategy of a waiting rebase": Attack(
        (
            REBASE + "git rebase main",
            "cd {d}; mkdir -p git-merge-x evil; cp {w}/evil.sh evil/run; cp {w}/evil.sh git-merge-x/x;"
            " echo 'x/../../evil.sh' > .git/rebase-merge/strategy; cp {w}/evil.sh evil.sh",
        ),
        ("git checkout --theirs f; git add f; git -c core.editor=true rebase --continue",),
        gone=(".git/rebase-merge/strategy",),
    ),
    "a strategy of a waiting cherry-pick": Attack(
        (
            REBASE + "git checkout -q main; git cherry-pick other~1 other",
            "cd {d}; printf '[options]\\n\\tstrategy = x/../evil\\n' > .git/sequencer/opts",
        ),
        gone=(".git/sequencer/opts",),
    ),
    "a write through a mapping, by a process left behind": Attack(
        (
            "git init -q {d}; printf '%200s' >> {d}/.git/config; python3 -c \"\nimport mmap, os\n"
            "f = open('{d}/.git/config', 'r+b'); m = mmap.mmap(f.fileno(), 0)\n"
            "if os.fork() == 0:\n"
            "    os.setsid(); [os.close(n) for n in (0, 1, 2)]\n"
            "    import time; time.sleep(1)\n"
            "    t = b'\\n[core]\\nfsmonitor = {w}/evil.sh\\n'; m[-len(t):] = t\n\"",
            "sleep 2",
        )
    ),
    "settings that no list of agents' names knew": Attack(
        (
            "mkdir -p {d}; cd {d}; for f in .claude/commands/x.md .claude/skills/x/SKILL.md"
            " .claude/agents/x.md .kilocode/mcp.json .github/extensions/x/run .pi/extensions/x"
            " .jj/repo/config.toml .helix/languages.toml .unheard-of/hooks.json; do"
            " mkdir -p $(dirname $f); echo x > $f; done; echo x | tee kilo.json kilo.jsonc"
            " .pre-commit-config.yaml lefthook.yml a.code-workspace > /dev/null",
        ),
        gone=(
            *(".claude/commands/x.md", ".claude/skills/x/SKILL.md", ".claude/agents/x.md"),
            *(".kilocode/mcp.json", ".github/extensions/x/run", ".pi/extensions/x"),
            *(".jj/repo/config.toml", ".helix/languages.toml", ".unheard-of/hooks.json"),
            *("kilo.json", "kilo.jsonc", ".pre-commit-config.yaml", "lefthook.yml"),
            "a.code-workspace",
        ),
    ),
    "a link in the data of a repository": Attack(
        ("git init -q {d}; cd {d}; mkdir -p .git/logs; ln -s {out}/ran .git/logs/HEAD",),
        ("git commit --allow-empty -qm x",),
    ),
    "settings in the data of what looks like a repository": Attack(
        (
            "git init -q --bare {d}; mkdir {d}/objects/.claude; echo x > {d}/objects/.claude/settings.json",
        ),
        (),
        gone=("objects/.claude/settings.json",),
    ),
    "an entry of the index in a directory of git": Attack(
        (
            "git init -q {d}; cd {d};"
            " git update-index --add --cacheinfo 100755,$(git hash-object -w {w}/evil.sh),-git/hooks/post-checkout;"
            " LC_ALL=C sed -i s,-git/hooks,.git/hooks, .git/index",
        ),
        ("git checkout -- .; git checkout -q -b new",),
    ),
    "an entry of the index outside of the worktree": Attack(
        (
            "true; git init -q {d}",
            "cd {d}; git update-index --add --cacheinfo 100755,$(git hash-object -w {w}/evil.sh),xx/xx/xx/out/ran;"
            " LC_ALL=C sed -i s,xx/xx/xx/out,../../../out, .git/index",
        ),
        ("git checkout -- .",),
    ),
    "a file outside of which git keeps a copy": Attack(
        (
            "git init -q {d}; cd {d}; i=$(printf 'a%.0s' $(seq 40)); mkdir -p .git/rr-cache/$i; "
            'echo x > .git/rr-cache/$i/preimage; printf "$i\\t../../../out/precious.txt\\0" > .git/MERGE_RR',
        ),
        ("git commit -q --allow-empty -m x; grep -rq precious .git && touch {out}/ran",),
    ),
    "a program that git's settings name": Attack(
        (
            "cp evil.sh tools/clean.sh; rm -f tools/clean.sh; cp evil.sh tools/clean.sh; mv tools t2;"
            " cp -r t2 tools; cp evil.sh tools/clean.sh; echo x > a.filtered",
        ),
        ("cd {w}; git add a.filtered; git status",),
    ),
    "an editor's settings in a cache, shown by a link": Attack(
        (
            "mkdir -p node_modules/v/.vscode; echo {} > node_modules/v/.vscode/tasks.json;"
            " ln -s node_modules/v {d}",
        ),
        (),
        gone=(".vscode/tasks.json",),
    ),
    "a hook that becomes executable": Attack(
        (
            "host: git init -q {d}; cp {w}/evil.sh {d}/.git/hooks/pre-commit; chmod 644"
            " {d}/.git/hooks/pre-commit",
            "chmod 755 {d}/.git/hooks/pre-commit",
        ),
        ("git commit --allow-empty -qm x",),
    ),
}


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
            timeout=60,
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
