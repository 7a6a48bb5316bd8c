"""Beside an approved part that reaches out, local parts that run nothing need no approval."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.pushes import may_run_hooks
from ironcurtain_proxy.grants.families import command_candidates, covering
from tests.grants.family_projects import Project
from tests.tables import table


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project.made(tmp_path / "project")
    made.write("a.go", "package a\n")
    made.approve("git fetch origin")
    return made


def spares(project: Project, command: str, *, held: bool = True) -> bool:
    return covering(project.grants, replace(project.call(command), held=held)) is not None


@pytest.mark.parametrize(
    "command",
    table("grants/stretched.local_parts", list[str]),
)
def test_local_parts_are_held(project: Project, command: str) -> None:
    assert spares(project, command)
    assert not spares(project, command, held=False)


@pytest.mark.parametrize(
    "command",
    table("grants/stretched.held_parts", list[str]),
)  # fmt: skip
def test_what_may_run_something_or_reaches_further_needs_its_own_approval(
    project: Project, command: str
) -> None:
    assert not spares(project, command)


@pytest.mark.parametrize("where", ["hooks", "path"])
def test_no_part_of_git_is_held_where_a_hook_may_run(project: Project, where: str) -> None:
    if where == "hooks":
        project.write(".git/hooks/post-merge", "#!/bin/sh\n")
    else:
        project.git("config", "core.hooksPath", ".husky")
    project.approve("git fetch origin")
    assert not spares(project, "git fetch origin && git merge origin/main")
    assert spares(project, "git fetch origin && mkdir build")


def test_the_question_offers_the_part_that_leaves_alone(project: Project) -> None:
    call = replace(project.call("git fetch origin && git merge origin/main"), held=True)
    found = command_candidates(call)
    assert found is not None
    assert found.patterns[0].description.startswith(
        "`git fetch`, `git ls-remote` from origin, and "
    )
    assert "merge" not in found.patterns[0].description


def test_an_approval_of_a_remote_holds_in_every_clone_of_it(
    project: Project, tmp_path: Path
) -> None:
    other = Project.made(tmp_path / "worktree")
    elsewhere = Project.made(tmp_path / "elsewhere")
    elsewhere.git("remote", "set-url", "origin", "https://example.org/you/app.git")
    project.approve("gh pr view 1")
    project.approve("go test ./...")
    for command in ("git fetch origin", "gh run list"):
        assert covering(project.grants, other.call(command)) is not None
        assert covering(project.grants, elsewhere.call(command)) is None
    other.git("config", "core.sshCommand", "sh x")
    for command in ("git fetch origin", "gh run list", "go test ./..."):
        assert covering(project.grants, other.call(command)) is None


def test_an_approval_of_a_pull_request_covers_a_draft_and_not_the_reverse(project: Project) -> None:
    project.approve("gh pr create --title a --body b --base next --draft")
    assert not project.covers("gh pr create --title a --body b --base next")
    project.approve("gh pr create --title a --body b")
    assert project.covers("gh pr create -d -t c -b d")
    assert not project.covers("gh pr create -d -t c -b d --base main")
    assert not project.covers("gh pr create -d -t c -b d --repo other/app")


def test_a_worktree_has_the_hooks_of_its_repository(project: Project) -> None:
    project.git("worktree", "add", "-q", "-b", "topic", "../other")
    other, remotes = str(project.path.parent / "other"), GitRemotes(project.environment)
    assert not may_run_hooks(other, remotes)
    project.write(".git/hooks/post-merge", "#!/bin/sh\n")
    assert may_run_hooks(other, remotes)
    (project.path / ".git/hooks/post-merge").unlink()
    project.git("config", "core.hooksPath", ".husky")
    assert may_run_hooks(other, remotes)
