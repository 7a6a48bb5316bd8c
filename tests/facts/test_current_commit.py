"""The commit that a push would publish is a fact: what is approved is what is pushed."""

import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.repositories import current_commit
from ironcurtain_proxy.model.values import RealPath


def git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=u", "-c", "user.email=u@x.org", *words],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "topic")
    return tmp_path


def test_it_is_read_loose_and_packed_and_in_a_worktree(root: Path) -> None:
    assert current_commit(RealPath.from_text(str(root))) is None
    for pack in (False, True):
        git(root, "commit", "-q", "--allow-empty", "-m", "x")
        if pack:
            git(root, "pack-refs", "--all")
        assert current_commit(RealPath.from_text(str(root))) == git(root, "rev-parse", "HEAD")
    git(root, "worktree", "add", "-q", "-b", "other", "tree")
    git(root / "tree", "commit", "-q", "--allow-empty", "-m", "y")
    found = current_commit(RealPath.from_text(str(root / "tree")))
    assert found == git(root / "tree", "rev-parse", "HEAD") != git(root, "rev-parse", "HEAD")


@pytest.mark.parametrize("head", ["ref: refs/heads/gone", "0" * 40, "../x", ""])
def test_what_is_no_branch_with_a_commit_is_not_known(root: Path, head: str) -> None:
    git(root, "commit", "-q", "--allow-empty", "-m", "x")
    (root / ".git" / "HEAD").write_text(head)
    assert current_commit(RealPath.from_text(str(root))) is None
