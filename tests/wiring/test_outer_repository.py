"""Whether git could commit in a workspace: what is said, and that the advice works. Real git."""

import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.wiring.serving import outer_repository


def git(place: Path, *words: str) -> None:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *named, "-C", str(place), *words], check=True, capture_output=True)


def said(workspace: Path, home: Path) -> str | None:
    return outer_repository(RealPath.from_text(str(workspace)), home)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "home/code/main"
    made.mkdir(parents=True)
    git(made, "init", "-q")
    git(made, "commit", "-q", "--allow-empty", "-m", "x")
    return made


def test_a_repository_of_its_own_or_none_is_nothing_to_speak_of(
    repository: Path, tmp_path: Path
) -> None:
    assert said(repository, tmp_path) is None
    assert said(tmp_path, tmp_path) is None


def test_a_worktree_beside_its_repository_names_the_directory_of_both(
    repository: Path, tmp_path: Path
) -> None:
    beside = repository.parent / "topic"
    git(repository, "worktree", "add", "-q", str(beside))
    words = said(beside, tmp_path / "home") or ""
    assert f"outside, in {repository / '.git'}" in words
    assert f"make {repository.parent} the workspace" in words
    assert said(repository.parent, tmp_path / "home") is None


def test_home_is_never_proposed_as_the_workspace(repository: Path, tmp_path: Path) -> None:
    beside = tmp_path / "home/topic"
    git(repository, "worktree", "add", "-q", str(beside))
    words = said(beside, tmp_path / "home") or ""
    assert "make the worktree inside the repository" in words


def test_a_worktree_inside_the_workspace_keeps_its_data_there(
    repository: Path, tmp_path: Path
) -> None:
    inside = repository / ".worktrees/topic"
    git(repository, "worktree", "add", "-q", str(inside))
    assert said(repository, tmp_path) is None
    assert f"outside, in {repository / '.git'}" not in (said(inside, tmp_path) or "")


def test_a_directory_of_a_larger_repository_names_that(repository: Path, tmp_path: Path) -> None:
    below = repository / "web/app"
    below.mkdir(parents=True)
    words = said(below, tmp_path) or ""
    assert f"make {repository} the workspace" in words


@pytest.mark.parametrize(
    "content", ["", "gitdir: ", "gitdir: /nowhere/x", "x" * 9999, "gitdir: .git"]
)
def test_a_git_file_of_any_content_is_survived(tmp_path: Path, content: str) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.git").write_text(content)
    said(tmp_path / "w", tmp_path)
