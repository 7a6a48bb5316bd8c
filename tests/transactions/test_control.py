"""Control places do not come in, in any directory and however they were made."""

import subprocess

import pytest

from tests.transactions.bench import Workbench, said, steps

_EVIL = "printf '[core]\\n\\tfsmonitor = ./evil.sh\\n'"
_BECOMES_ONE = "mkdir -p x/objects x/refs; echo ref: refs/heads/main > x/HEAD"


def git(w: Workbench, *words: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(w.ws), *name, *words], check=True, capture_output=True)


@pytest.fixture
def repository(w: Workbench) -> Workbench:
    git(w, "init", "-q", "-b", "main", ".")
    w.write("a")
    w.write(".frobnicate/settled")
    git(w, "add", "-A")
    git(w, "commit", "-q", "-m", "first")
    return w


@pytest.mark.parametrize(
    ("script", "kept_back"),
    [
        (f"{_EVIL} >> .git/config", [".git/config"]),
        (f"ln .git/config node; {_EVIL} >> node", [".git/config"]),
        (f"{_EVIL} > x; mv x .git/config", [".git/config"]),
        ("rm .git/config", [".git/config"]),
        ("echo id > .git/hooks/pre-commit", [".git/hooks/pre-commit"]),
        (
            "rm -r .git/hooks; mkdir .git/hooks; echo id > .git/hooks/post-merge",
            [".git/hooks/post-merge"],
        ),
        ("rm -r .git/hooks; ln -s ../evil .git/hooks", [".git/hooks"]),
        ("mkdir -p .git/rebase-merge; echo x > .git/rebase-merge/strategy", [".git/rebase-merge"]),
        ("mkdir .git/sequencer; echo x > .git/sequencer/opts", [".git/sequencer"]),
        ("echo x > .git/info/attributes", [".git/info/attributes"]),
        ("mkdir .git/branches; echo x > .git/branches/br", [".git/branches/br"]),
        ("echo /x > .git/objects/info/alternates", [".git/objects/info/alternates"]),
        (f"git init -q lib; {_EVIL} >> lib/.git/config", ["lib/.git/config"]),
        ("git init -q lib; echo id > lib/.git/hooks/pre-commit", ["lib/.git/hooks/pre-commit"]),
        (
            f"git init -q node_modules/x; {_EVIL} >> node_modules/x/.git/config",
            ["node_modules/x/.git/config"],
        ),
        (f"git init -q --bare x; {_EVIL} >> x/config", ["x/config"]),
        (f"{_BECOMES_ONE}; {_EVIL} > x/config", ["x/config"]),
        ("echo gitdir: /somewhere > sub", []),
        ("mkdir sub; echo gitdir: ../other/.git > sub/.git", ["sub/.git"]),
        ("mkdir sub; ln -s ../other/.git sub/.git", ["sub/.git"]),
        (
            f"git init -q --bare .git/modules/a/evil; {_EVIL} >> .git/modules/a/evil/config",
            [".git/modules/a"],
        ),
        (
            f"git init -q --bare .git/worktrees/a/evil; {_EVIL} >> .git/worktrees/a/evil/config",
            [".git/worktrees/a"],
        ),
        ("mkdir .claude; echo {} > .claude/settings.json", [".claude"]),
        ("mkdir -p deep/.vscode; echo {} > deep/.vscode/tasks.json", ["deep/.vscode"]),
        ("mkdir -p p/q; echo {} > p/q/.mcp.json; mv p node", ["node/q/.mcp.json"]),
        ("mkdir .unheard; echo x > .unheard/of", [".unheard"]),
        ("echo more > .frobnicate/settled; echo x > .frobnicate/new", []),
        ("echo x > .envrc", [".envrc"]),
        ("ln -s a .envrc", [".envrc"]),
        ("echo x > .gitignore; mkdir -p .github/workflows; echo x > .github/workflows/ci.yml", []),
        ("mkdir .cursor", []),
    ],
)
def test_control_places_are_kept_back_and_said(
    repository: Workbench, script: str, kept_back: list[str]
) -> None:
    before = repository.picture()
    found = repository.run(script)
    assert said(found.kept_back) == kept_back
    after = repository.picture()
    for path in map(str.encode, kept_back):
        inside = [one for one in {**before, **after} if one == path or one.startswith(path + b"/")]
        for one in inside:
            assert after.get(one) == before.get(one)
    status = subprocess.run(
        ["git", "-C", str(repository.ws), "status"], capture_output=True, check=True
    )
    assert b"evil" not in status.stderr


def test_a_gitlink_in_the_index_is_kept_back(repository: Workbench) -> None:
    found = repository.run(
        "git init -q n/x; cd n/x; git -c user.name=a -c user.email=b commit -q --allow-empty -m x;"
        "cd ../..; git add -f n/x 2> /dev/null"
    )
    assert said(found.kept_back) == [".git/index"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_data_is_judged_when_its_directory_becomes_a_repository(
    repository: Workbench, when: str
) -> None:
    first, second = f"mkdir x; {_EVIL} > x/config", _BECOMES_ONE
    if when == "after":
        first, second = second, f"{_EVIL} > x/config"
    assert said(repository.run(first).kept_back) == []
    assert said(repository.run(second).kept_back) != []
    ran = subprocess.run(
        ["git", "-C", str(repository.ws / "x"), "config", "core.fsmonitor"],
        check=False,
        capture_output=True,
    )
    assert b"evil" not in ran.stdout


@pytest.mark.parametrize(
    "script",
    [
        "echo b >> a; git add -A; git commit -qm second",
        "git switch -qc topic; echo b > b; git add b; git commit -qm b; git switch -q main",
        "echo b >> a; git stash -q; git stash pop -q",
        "git tag v1; git branch other; git branch -D other",
        "git remote add origin https://example.com/x.git",
        "git switch -qc t; git commit -q --allow-empty -m t; git switch -q main; git merge -q t",
        "git gc -q",
        "git init -q nested; cd nested; echo x > y; git add y; git commit -qm nested",
        "git rm -qr .frobnicate; git commit -qm less; git clone -q . copy",
        "git reset -q --hard; git clean -fdq; git rebase -q main",
    ],
)
def test_everyday_commands_of_git_come_in_whole(repository: Workbench, script: str) -> None:
    who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b"
    found = repository.run(f"{who}; {script}")
    assert not found.kept_back, found.kept_back
    assert not found.conflicts
    git(repository, "fsck", "--strict")
    git(repository, "status")


def test_a_history_is_not_left_in_the_middle_of_a_rebase(repository: Workbench) -> None:
    for branch in ("main", "topic"):
        if branch == "topic":
            git(repository, "switch", "-q", "-c", "topic", "HEAD~")
        repository.write("a", branch)
        git(repository, "commit", "-q", "-a", "-m", branch)
    before = {p: v for p, v in repository.picture().items() if p.startswith(b".git/")}
    found = repository.run("git -c user.name=a -c user.email=b rebase main || true")
    assert ".git/rebase-merge" in said(found.kept_back)
    assert steps(found) == ["swap a"]
    assert {p: v for p, v in repository.picture().items() if p.startswith(b".git/")} == before


def test_an_approved_place_comes_in(repository: Workbench) -> None:
    found = repository.run(
        "mkdir .claude; echo {} > .claude/settings.json; echo x > .envrc", approved=[".claude"]
    )
    assert said(found.kept_back) == [".envrc"]
    assert (repository.ws / ".claude/settings.json").read_text() == "{}\n"
