"""Commits that a call throws away come back."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.planning import ConflictError
from tests.snapshots.timeline.workspace_fixture import Timelined
from tests.tables import table

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin:/usr/local/bin",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


def git(where: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=where, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace that each test gets a copy of: git has run for it once."""
    top = tmp_path_factory.mktemp("seed")
    for place in (top, top / "nested"):
        place.mkdir(exist_ok=True)
        git(place, "init", "-q", "-b", "main")
        for number in range(3):
            (place / "file").write_text(f"{number}")
            git(place, "add", "file")
            git(place, "commit", "-qm", f"commit {number}")
        git(place, "branch", "other")
        (place / "file").write_text("stashed")
        git(place, "stash", "-q")
        (place / "untracked").write_text("never committed")
    return top


@pytest.fixture
def w(seed: Path, tmp_path: Path) -> Timelined:
    shutil.copytree(seed, tmp_path / "w")
    return Timelined(tmp_path / "w", tmp_path / "s")


LOSING = table("snapshots/timeline/repositories.losing", dict[str, tuple[str, ...]])  # fmt: skip


@pytest.mark.parametrize("how", LOSING)
@pytest.mark.parametrize("rewind", [False, True])
def test_what_a_call_threw_away_of_a_repository_comes_back(
    w: Timelined, how: str, rewind: bool
) -> None:
    before = w.picture()

    def lose() -> None:
        for line in LOSING[how]:
            subprocess.run(line.split(), cwd=w.top, env=ENVIRONMENT, check=True)

    point, changes = w.call(lose)
    assert changes
    w.back(point, rewind=rewind)
    assert w.picture() == before
    for place in (w.top, w("nested")):
        git(place, "fsck", "--full", "--strict")
        assert git(place, "rev-list", "--count", "main").strip() == "3"
        assert git(place, "stash", "list").startswith("stash@{0}")


def test_objects_that_a_later_commit_may_need_stay_when_one_call_is_taken_back(
    w: Timelined,
) -> None:
    def add() -> None:
        w("new").write_text("content of both")
        git(w.top, "hash-object", "-w", "new")

    def commit_elsewhere() -> None:
        blob = git(w.top, "hash-object", "new").strip()
        git(w.top, "update-ref", "refs/tags/kept", blob)

    point, _ = w.call(add)
    w.call(commit_elsewhere)
    done = w.back(point)
    assert not w("new").exists()
    assert any(path.startswith(".git/objects/") for path in done.plan.stays)
    assert git(w.top, "cat-file", "-p", "kept") == "content of both"
    git(w.top, "fsck", "--full")


def test_what_git_only_noted_of_files_since_is_no_later_change(w: Timelined) -> None:
    w("new").write_text("x")
    point, _ = w.call(lambda: git(w.top, "add", "new"))
    index = w(".git/index").read_bytes()
    # A file's time is another one, so that `git status` notes it again.
    os.utime(w("file"), (1, 1))
    git(w.top, "status")
    assert w(".git/index").read_bytes() != index
    w.back(point)
    assert git(w.top, "ls-files") == "file\n"
    point, _ = w.call(lambda: git(w.top, "add", "new"))
    git(w.top, "add", "untracked")
    with pytest.raises(ConflictError, match="came later"):
        w.back(point)
    assert git(w.top, "ls-files") == "file\nnew\nuntracked\n"


@pytest.mark.parametrize("rewind", [False, True])
def test_a_lock_that_the_users_git_held_when_the_point_was_made_is_not_brought_back(
    w: Timelined, rewind: bool
) -> None:
    lock = w("nested/.git/index.lock")
    lock.write_bytes(b"")

    def change() -> None:
        w("new").write_text("x")
        lock.unlink()

    point, _ = w.call(change)
    w.back(point, rewind=rewind)
    assert (w("new").exists(), lock.exists()) == (False, False)
    git(w("nested"), "add", "file")
    point, _ = w.call(lambda: lock.write_bytes(b""))
    w.back(point, rewind=rewind)
    assert not lock.exists()
