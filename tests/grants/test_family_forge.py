"""Reading at the forge: all spellings of the project's own repository are one kind."""

from pathlib import Path

import pytest

from tests.grants.family_projects import Project
from tests.tables import table

SPELLINGS = table("grants/family_forge.spellings", tuple[str, ...])
OTHERS = table("grants/family_forge.others", tuple[str, ...])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project.made(tmp_path / "project")
    made.git("remote", "set-url", "origin", "git@github.com:me/app.git")
    return made


@pytest.mark.parametrize("approved", SPELLINGS)
def test_one_approval_covers_every_spelling_of_the_own_repository(
    project: Project, approved: str
) -> None:
    project.approve(approved)
    assert [one for one in SPELLINGS if not project.covers(one)] == []
    assert [one for one in OTHERS if project.covers(one)] == []


@pytest.mark.parametrize(
    "settings",
    [
        ("remote.upstream.url", "https://github.com/base/app"),
        ("remote.origin.pushurl", "https://github.com/base/app"),
        ("remote.origin.gh-resolved", "base/app"),
        ("remote.origin.url", "https://ghe.example/me/app"),
        ("remote.origin.url", "ext::ssh github.com me/app"),
        ("url.https://github.com/base/app.insteadOf", "git@github.com:me/app.git"),
    ],
)
def test_a_name_says_more_where_no_name_may_mean_another_repository(
    project: Project, settings: tuple[str, str]
) -> None:
    project.git("config", *settings)
    project.approve("gh api repos/me/app/pulls/12")
    assert not project.covers("gh pr view 12")
    assert project.covers("gh pr view 12 --repo me/app")
    project.grants.clear()
    project.approve("gh pr view 12")
    assert not project.covers("gh api repos/me/app/pulls/12")


def test_the_remotes_own_repository_may_be_the_chosen_one(project: Project) -> None:
    project.git("config", "remote.origin.gh-resolved", "base")
    project.approve("gh api repos/me/app/pulls/12")
    assert project.covers("gh pr view 12")
    project.git("remote", "set-url", "origin", "https://github.com/you/app")
    assert not project.covers("gh pr view 12")


def test_another_repository_has_no_name_of_its_own_here(project: Project) -> None:
    """The remotes are those of the directory that the call began in."""
    other = project.path / "other"
    other.mkdir()
    project.git("init", "-q", str(other))
    project.git("-C", str(other), "remote", "add", "origin", "https://github.com/you/app")
    project.approve("cd other && gh api repos/me/app/pulls/12")
    assert not project.covers("gh pr view 12", cwd="other")
    assert not project.covers("cd other && gh pr view 12")
