"""Families of git commands: the remote and the branch that they were approved for."""

from pathlib import Path

import pytest

from tests.grants.family_projects import Project
from tests.tables import table


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project.made(tmp_path / "project")
    made.git("remote", "add", "fork", "https://example.org/you/app.git")
    return made


def push_settings(project: Project, *settings: str) -> None:
    for setting in settings:
        name, _, value = setting.partition("=")
        project.git("config", name, value)


UPSTREAM = ("branch.feature-x.remote=origin", "branch.feature-x.merge=refs/heads/feature-x")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), ("origin", "feature-x")),
        (("push.default=upstream",), None),
        (UPSTREAM, ("origin", "feature-x")),
        (("push.autoSetupRemote=true",), ("origin", "feature-x")),
        (("push.default=current",), ("origin", "feature-x")),
        ((*UPSTREAM, "push.default=nothing"), None),
        ((*UPSTREAM, "push.default=matching"), None),
        ((*UPSTREAM, "branch.feature-x.pushRemote=fork"), ("fork", "feature-x")),
        ((*UPSTREAM, "remote.pushDefault=fork"), ("fork", "feature-x")),
        ((*UPSTREAM, "remote.pushDefault=fork", "push.default=upstream"), None),
        (("branch.feature-x.remote=origin", "branch.feature-x.merge=refs/heads/main"), None),
        (
            ("branch.feature-x.remote=origin", "branch.feature-x.merge=refs/heads/main",
             "push.default=upstream"),
            ("origin", "main"),
        ),
        ((*UPSTREAM, "remote.origin.push=refs/heads/*:refs/heads/x/*"), None),
        ((*UPSTREAM, "remote.origin.mirror=true"), None),
    ],
)  # fmt: skip
def test_the_place_says_where_a_push_without_words_goes(
    project: Project, settings: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    push_settings(project, *settings)
    place = project.call("git push").place
    assert place.branch == "feature-x"
    assert place.push_to == expected


def fetched(project: Project, *branches: str) -> None:
    """Give `origin` branches that came by a fetch."""
    for branch in branches:
        reference = f"refs/remotes/origin/{branch}"
        project.git("update-ref", "-m", "fetch", "--create-reflog", reference, "HEAD")


def test_each_spelling_of_a_push_is_the_same_family(project: Project) -> None:
    push_settings(project, *UPSTREAM)
    fetched(project, "feature-x", "other")
    project.approve("git push -u origin feature-x")
    for command in (
        "git push",
        "git push origin",
        "git push origin HEAD",
        "git push -q 2>&1 | tail",
    ):
        assert project.covers(command), command
    assert not project.covers("git push fork feature-x")
    assert not project.covers("git push origin other")
    assert not project.covers("git push origin feature-x:main")


def test_a_push_without_words_from_another_branch_is_another_family(project: Project) -> None:
    push_settings(project, "push.default=current")
    fetched(project, "feature-x", "other")
    project.approve("git push")
    assert project.covers("git push")
    project.git("checkout", "-q", "-b", "other")
    assert not project.covers("git push")
    assert not project.covers("git push origin HEAD")
    assert not project.covers("git push origin @")


@pytest.mark.parametrize(
    "setting",
    table("grants/stretched.settings", list[str]),
)
def test_another_remote_or_another_way_to_it_ends_the_grant(project: Project, setting: str) -> None:
    project.approve("git push origin feature-x")
    assert project.covers("git push origin feature-x")
    push_settings(project, setting)
    assert not project.covers("git push origin feature-x")


def test_the_upstream_of_a_branch_may_rename_what_is_pushed(project: Project) -> None:
    project.approve("git push origin feature-x")
    push_settings(project, "push.default=upstream", "branch.feature-x.remote=origin",
                  "branch.feature-x.merge=refs/heads/main")  # fmt: skip
    assert not project.covers("git push origin feature-x")


def test_a_tag_that_a_push_takes_along_ends_the_grant(project: Project) -> None:
    project.git("tag", "-a", "v0", "-m", "old")
    project.approve("git push origin feature-x")
    project.git("tag", "-a", "v1", "-m", "new")
    assert project.covers("git push origin feature-x"), "it stays here"
    push_settings(project, "push.followTags=true")
    assert not project.covers("git push origin feature-x")
    project.approve("git push origin feature-x")
    assert project.covers("git push origin feature-x")
    project.git("tag", "-f", "-a", "v1", "-m", "other words")
    assert not project.covers("git push origin feature-x")


@pytest.mark.parametrize(
    ("setting", "is_covered"),
    [
        ("push.recurseSubmodules=on-demand", False),
        ("push.recurseSubmodules=only", False),
        ("submodule.recurse=true", False),
        ("push.recurseSubmodules=check", True),
        ("submodule.recurse=false", True),
    ],
)
def test_a_push_that_pushes_submodules_is_not_remembered(
    project: Project, setting: str, *, is_covered: bool
) -> None:
    push_settings(project, *UPSTREAM, setting)
    assert bool(project.offered("git push origin feature-x")) == is_covered
    assert (project.call("git push").place.push_to is not None) == is_covered


def test_settings_of_another_branch_or_remote_leave_the_grant(project: Project) -> None:
    project.approve("git push origin feature-x")
    push_settings(project, *UPSTREAM, "branch.other.remote=fork", "user.name=me",
                  "remote.fork.url=https://elsewhere.example")  # fmt: skip
    assert project.covers("git push origin feature-x")


@pytest.mark.parametrize("command", ["git fetch origin", "git pull origin feature-x", "git fetch",
                                     "gh pr view 1", "gh pr create -t x -b y"])  # fmt: skip
def test_what_else_reaches_a_remote_is_bound_to_it(project: Project, command: str) -> None:
    project.approve(command)
    assert project.covers(command)
    push_settings(project, "remote.origin.url=https://evil.example/x")
    assert not project.covers(command)


def test_a_repository_within_has_remotes_of_its_own(project: Project) -> None:
    project.approve("git push origin feature-x")
    (project.path / "sub").mkdir()
    assert project.covers("cd sub && git push origin feature-x")
    inner = Project.made(project.path / "inner")
    inner.git("remote", "set-url", "origin", "https://evil.example/x")
    assert not project.covers("cd inner && git push origin feature-x")
    assert not project.covers("git push origin feature-x", "inner")


def test_a_directory_that_git_would_take_for_a_repository_is_not_covered(project: Project) -> None:
    project.approve("git push origin feature-x")
    for name in ("HEAD", "objects/x", "refs/x", "config"):
        project.write(f"bare/{name}", "")
    assert not project.covers("cd bare && git push origin feature-x")


@pytest.mark.parametrize("command", table("grants/stretched.pushes", list[str]))
def test_a_push_does_not_stretch(project: Project, command: str) -> None:
    for approved in ("git push origin feature-x", "git checkout main", "git switch main",
                     "git branch -f feature-x main"):  # fmt: skip
        project.approve(approved)
    assert command.endswith("--") or not project.covers(command)


def test_a_fetch_of_a_remote_covers_its_branches_and_nothing_else(project: Project) -> None:
    project.approve("git fetch origin main")
    for command in (
        "git fetch origin",
        "git fetch origin a/b-1.2 c",
        "git fetch -q origin x | tail",
    ):
        assert project.covers(command), command
    for command in table("grants/stretched.fetches", tuple[str, ...]):
        assert not project.covers(command), command
    project.grants.clear()
    project.approve("git fetch -m origin fork")
    assert not project.covers("git fetch -m origin fork evil")
