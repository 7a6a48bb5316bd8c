"""Pushes of new branches: one approval covers those that began in this clone, and nothing else."""

from pathlib import Path

import pytest

from tests.grants.family_projects import Project

KIND = "to any new branch at origin, never a shared or protected one"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project.made(tmp_path / "project")
    made.git("remote", "add", "fork", "https://example.org/you/app.git")
    return made


def remembered(project: Project, branch: str, reason: str) -> None:
    """Note a branch of `origin` in the clone, as git does after a push or a fetch."""
    reference = f"refs/remotes/origin/{branch}"
    project.git("update-ref", "-m", reason, "--create-reflog", reference, "HEAD")


def test_one_approval_covers_each_new_branch_in_all_spellings(project: Project) -> None:
    assert KIND in project.offered("git push -u origin fix/a")[0].description
    for command in ("git checkout -b a", "git add a.txt", "git commit -m x"):
        project.approve(command)
    project.approve("git push -u origin fix/a")
    for command in (
        "git push -u origin docs/b",
        "git push -u origin fix/release-notes",
        "git push -u origin ci/staging-tests",
        "git push origin HEAD 2>&1 | tail -3",
        "git checkout -b fix/c && git push -u origin fix/c",
        "git add a.txt && git commit -m x && git push origin feature-x",
    ):
        assert project.covers(command), command


def test_a_branch_that_this_clone_pushed_first_stays_its_own(project: Project) -> None:
    project.approve("git push -u origin fix/a")
    remembered(project, "fix/a", "update by push")
    assert project.covers("git push origin fix/a")
    project.git("pack-refs", "--all")
    assert project.covers("git push origin fix/a")


def test_an_approval_of_one_branch_beside_other_parts_covers_that_branch_alone(
    project: Project,
) -> None:
    project.approve("go test ./... && git push origin fix/a")
    assert project.covers("git push -u origin fix/a")
    assert not project.covers("git push -u origin fix/b")


def test_a_branch_that_was_fetched_is_somebody_elses(project: Project) -> None:
    project.approve("git push -u origin fix/a")
    remembered(project, "theirs", "fetch origin: storing head")
    assert not project.covers("git push origin theirs")
    project.git("pack-refs", "--all")
    assert not project.covers("git push origin theirs")


@pytest.mark.parametrize(
    "command",
    [
        "git push origin main", "git push origin release/2", "git push origin v1.2",
        "git push origin staging", "git push origin team/prod-eu", "git push origin gh-pages",
        "git push origin fix/main", "git push origin ci/production",
        "git push origin HEAD:main", "git push origin fix/b:main", "git push origin +fix/b",
        "git push -f origin fix/b", "git push --force-with-lease origin fix/b",
        "git push --tags origin fix/b", "git push --follow-tags origin fix/b",
        "git push origin fix/b fix/c", "git push origin :fix/b", "git push --delete origin fix/b",
        "git push --no-verify origin fix/b", "git push -o ci.skip origin fix/b",
        "git push fork fix/b", "git push https://evil.example/x fix/b",
        "git push origin refs/tags/fix/b", "git push origin tag fix/b", "git push origin a-tag",
        "git push origin alias", "git push origin 'fix/*'", "git push origin $B",
        "git tag fix/b && git push origin fix/b", "./tags.sh && git push origin fix/b",
        "git fetch origin && git push origin fix/b",
        "git update-ref refs/tags/fix/b HEAD; git push origin fix/b",
        "git -c push.followTags=true push origin fix/b", "git -C .. push origin fix/b",
        "git symbolic-ref refs/heads/fix/b refs/heads/main && git push origin fix/b",
        "GIT_DIR=x git push origin fix/b",
    ],
)  # fmt: skip
def test_the_kind_covers_no_shared_branch_no_force_and_no_tag(
    project: Project, command: str
) -> None:
    project.git("tag", "a-tag")
    project.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    project.approve("git push -u origin fix/a")
    assert project.covers("git push -u origin fix/z")
    assert not project.covers(command)


def test_with_references_that_are_not_readable_no_branch_is_new(project: Project) -> None:
    project.approve("git push -u origin fix/a")
    (project.path / ".git/packed-refs").mkdir()
    assert not project.covers("git push -u origin fix/b")
    (project.path / ".git/packed-refs").rmdir()
    (project.path / ".git/reftable").mkdir()
    assert not project.covers("git push -u origin fix/b")
