"""Commits in a worktree, contained and taken back, where the workspace holds its repository too."""

import subprocess
from pathlib import Path

import pytest

from tests import program
from tests.e2e.installation import Installation
from tests.e2e.raw_client import text
from tests.e2e.test_containment import PROGRAM, contained, last, shell

pytestmark = pytest.mark.usefixtures("sandbox")


def git(place: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    command = ["git", *named, "-C", str(place), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("where", ["beside", "main/.worktrees/inside"])
def test_a_commit_in_a_worktree_is_contained_and_taken_back(
    installation: Installation, where: str
) -> None:
    main, tree = installation.workspace / "main", installation.workspace / where
    main.mkdir()
    git(main, "init", "-q", "-b", "main")
    git(main, "config", "user.name", "Dev")
    git(main, "config", "user.email", "dev@example.com")
    git(main, "commit", "-q", "--allow-empty", "-m", "start")
    git(main, "worktree", "add", "-q", "-b", "topic", str(tree))
    agent = contained(installation)
    told = shell(agent, f"cd {tree} && echo x > new && git add new && git commit -qm made")
    assert not told.get("isError"), text(told)
    record = last(installation)
    assert (record["decidedBy"], record.get("putBack")) == ("containment", None)
    assert git(main, "log", "--format=%s", "topic").split() == ["made", "start"]
    words = [*PROGRAM, "rollback", str(record["requestId"])]
    done = program.run(words, installation.environment(), installation.workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(main, "log", "--format=%s", "topic").split() == ["start"]
    assert not (tree / "new").exists()
    assert git(tree, "status", "--porcelain", "--untracked-files=no") == ""
