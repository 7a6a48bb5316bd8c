"""Reading in a repository outside the workspace: one approval for all of git that only reads."""

from pathlib import Path

import pytest

from tests.grants.family_projects import Project
from tests.tables import table


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project.made(tmp_path / "project")
    Project.made(tmp_path / "other")
    Project.made(tmp_path / "third")
    return made


@pytest.fixture
def approved(project: Project) -> Project:
    project.approve("cd ../other && git log --oneline | head")
    return project


@pytest.mark.parametrize(
    "command",
    [
        "cd ../other && git show HEAD --stat", "git -C ../other branch -a",
        "cd ../other && git diff HEAD~1 | grep x", "cd ../other && git status && git log -1",
    ],
)  # fmt: skip
def test_other_reading_of_that_repository_is_covered(approved: Project, command: str) -> None:
    assert approved.covers(command)


@pytest.mark.parametrize(
    "command",
    table("grants/stretched.elsewhere", list[str]),
)  # fmt: skip
def test_nothing_else_is_covered(approved: Project, command: str) -> None:
    assert not approved.covers(command)


def test_an_approval_in_the_workspace_covers_no_other_repository(project: Project) -> None:
    project.approve("git log --oneline")
    assert not project.covers("git -C ../other log --oneline")


@pytest.mark.parametrize(
    "change",
    ["[core]\n\tfsmonitor = ./evil\n", "[diff]\n\texternal = evil\n", "[include]\n\tpath = x\n"],
)
def test_it_ends_when_the_configuration_of_that_repository_changes(
    approved: Project, change: str
) -> None:
    config = approved.path.parent / "other/.git/config"
    config.write_text(config.read_text() + change)
    assert not approved.covers("git -C ../other log")


def test_where_there_is_no_repository_nothing_is_remembered_for_its_kind(project: Project) -> None:
    (project.path.parent / "none").mkdir()
    offered = project.offered("git -C ../none log")
    assert not any("only read" in str(one) for one in offered)


def test_what_it_prints_into_a_file_changes_that_file(approved: Project) -> None:
    approved.write("Makefile", "test:\n\techo\n")
    approved.approve("make test")
    assert approved.covers("git -C ../other log; make test")
    assert not approved.covers("git -C ../other log > Makefile; make test")
