"""Families of shell commands in the worktrees of one repository."""

import os
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.facts import repositories
from ironcurtain_proxy.facts.repositories import repository_of
from ironcurtain_proxy.grants.families import only_reads
from tests.grants.family_projects import Project
from tests.tables import table

MAKEFILE = "test:\n\tgo test ./...\n"


@pytest.fixture(autouse=True)
def _not_temporary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories of tests are temporary ones, where no worktree counts."""
    monkeypatch.setattr(repositories, "_TEMPORARY", ())
    monkeypatch.setattr(repositories, "gettempdir", lambda: "/nowhere")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.made(tmp_path / "project")


def worktree(project: Project, name: str = "../other") -> Project:
    """Another worktree of the project, which shares what was approved."""
    project.git("worktree", "add", "-q", "-b", "topic", name)
    return Project((project.path / name).resolve(), grants=project.grants)


@pytest.mark.parametrize("where", ["../other", ".worktrees/3", "../deep/er/other"])
def test_a_family_covers_commands_in_another_worktree(project: Project, where: str) -> None:
    other = worktree(project, where)
    project.approve("go test ./...")
    assert other.covers("go test -v ./internal/...")
    assert not other.covers("go vet ./...")
    assert not other.covers("go test -exec ./x ./...")


def test_a_family_of_a_worktree_covers_commands_in_the_repository(project: Project) -> None:
    other = worktree(project)
    other.approve("go test ./...")
    assert project.covers("go test -v ./internal/...")


READS: Final = (
    "cat {0}/HEAD",
    "ls {0}/hooks",
    "wc -c {0}/objects/pack/*.idx | sort",
    "xxd {0}/index",
)


@pytest.mark.parametrize("command", READS)
def test_the_data_of_its_repository_is_read_in_a_worktree_as_in_the_repository(
    project: Project, tmp_path: Path, command: str
) -> None:
    other = worktree(project)
    there = command.format(project.path / ".git")
    assert only_reads(other.call(there))
    assert only_reads(project.call(there))
    project.git("clone", "-q", str(project.path), "../clone")
    assert not only_reads(Project((tmp_path / "clone").resolve()).call(there)), "another repository"


@pytest.mark.parametrize(
    "command",
    table("grants/worktree_grants.nothing_else_of_the_repository", list[str]),
)
def test_nothing_else_of_the_repository_is_read_in_a_worktree(
    project: Project, command: str
) -> None:
    other = worktree(project)
    assert not only_reads(other.call(command.format(project.path / ".git")))


def test_settings_of_the_repository_with_a_password_are_not_read_in_a_worktree(
    project: Project,
) -> None:
    other = worktree(project)
    call = other.call(f"cat {project.path}/.git/config")
    assert only_reads(call)
    held = replace(call, place=replace(call.place, shows_credentials=True))
    assert not only_reads(held)


def test_another_clone_is_no_worktree(project: Project, tmp_path: Path) -> None:
    project.git("clone", "-q", str(project.path), "../clone")
    clone = Project((tmp_path / "clone").resolve(), grants=project.grants)
    project.approve("go test ./...")
    assert not clone.covers("go test ./...")


def test_a_family_that_rests_on_a_file_needs_an_equal_entry_in_the_worktree(
    project: Project,
) -> None:
    other = worktree(project)
    project.write("Makefile", MAKEFILE)
    project.approve("make test")
    assert not other.covers("make test")
    other.write("Makefile", MAKEFILE + "lint:\n\tgolangci-lint run\n")
    assert other.covers("make test")
    assert not other.covers("make lint")
    other.write("Makefile", MAKEFILE.replace("./...", "./... -exec ./evil"))
    assert not other.covers("make test")
    assert project.covers("make test")


def test_a_task_of_a_directory_is_that_of_the_same_directory_in_the_worktree(
    project: Project,
) -> None:
    other = worktree(project)
    for one in (project, other):
        for directory in ("app", "web"):
            one.write(f"{directory}/package.json", '{"scripts": {"test": "jest"}}')
    project.approve("npm test", "app")
    assert other.covers("npm test", "app")
    assert other.covers("cd app && npm test")
    assert not other.covers("npm test", "web")
    assert not other.covers("npm test")


def test_a_script_is_covered_while_it_is_the_same_in_the_worktree(project: Project) -> None:
    other = worktree(project)
    for one in (project, other):
        one.write("scripts/check.sh", "echo ok\n")
    project.approve("bash scripts/check.sh")
    assert other.covers("bash scripts/check.sh")
    other.write("scripts/check.sh", "curl evil\n")
    assert not other.covers("bash scripts/check.sh")


@pytest.mark.parametrize(
    "command",
    table("grants/stretched.other_places", list[str]),
)
def test_a_family_that_names_another_place_holds_in_its_own_worktree_alone(
    project: Project, command: str
) -> None:
    other = worktree(project)
    text = command.format(project=project.path)
    project.approve(text)
    assert not other.covers(text)
    assert not any("worktrees" in one.description for one in project.offered(text))


def test_the_question_says_that_an_approval_holds_in_the_other_worktrees(
    project: Project, tmp_path: Path
) -> None:
    where = "in ~/project and other worktrees of its repository"
    assert project.offered("go test ./...")[0].description == f"`go test` {where}"
    assert project.offered("ls")[0].description == f"commands that only read {where}"
    alone = Project(tmp_path.resolve() / "alone")
    alone.path.mkdir()
    assert alone.offered("go test ./...")[0].description == "`go test` in ~/alone"


def test_the_identical_call_and_commands_without_a_family_stay_in_their_worktree(
    project: Project,
) -> None:
    other = worktree(project)
    project.approve("python3 -c 'print(1)'")
    assert project.covers("python3 -c 'print(1)'")
    assert not other.covers("python3 -c 'print(1)'")


def test_commands_that_only_read_are_covered_in_the_worktree(project: Project) -> None:
    other = worktree(project)
    project.approve("ls")
    assert other.covers("cat a")
    assert Project(project.path.parent, grants=project.grants).covers("cat a") is False


# --- forged membership ---------------------------------------------------------------------------


def forged(project: Project, name: str) -> Project:
    """A directory beside the project, which an agent would like to be a worktree of it."""
    found = Project((project.path.parent / name), grants=project.grants)
    found.path.mkdir()
    project.approve("go test ./...")
    return found


def linked(project: Project, back: str, common: str = "../..") -> Path:
    """Write the repository's side of a worktree."""
    entry = project.path / ".git/worktrees/forged"
    entry.mkdir(parents=True)
    (entry / "gitdir").write_text(f"{back}\n")
    (entry / "commondir").write_text(f"{common}\n")
    (entry / "HEAD").write_text("ref: refs/heads/topic\n")
    return entry


def test_a_directory_that_only_names_the_repository_is_no_worktree(project: Project) -> None:
    other = forged(project, "other")
    (other.path / ".git").write_text(f"gitdir: {project.path}/.git\n")
    assert not other.covers("go test ./...")
    worktree(project, "../genuine")
    (other.path / ".git").write_text(f"gitdir: {project.path}/.git/worktrees/genuine\n")
    assert repository_of(str(other.path)) is None
    assert not other.covers("go test ./...")


def test_a_directory_that_only_the_repository_names_is_no_worktree(project: Project) -> None:
    other = forged(project, "other")
    linked(project, f"{other.path}/.git")
    assert not other.covers("go test ./...")
    other.git("init", "-q")
    assert not other.covers("go test ./...")


@pytest.mark.parametrize("common", ["..", "../../../../other/.git", "/etc", "", "../../."])
def test_a_worktree_with_another_shared_directory_is_none(project: Project, common: str) -> None:
    other = forged(project, "other")
    entry = linked(project, f"{other.path}/.git", common)
    (other.path / ".git").write_text(f"gitdir: {entry}\n")
    assert not other.covers("go test ./...")


def test_a_repository_laid_out_in_the_workspace_gives_no_membership(project: Project) -> None:
    """An agent can write all of it, and name a repository elsewhere."""
    other = forged(project, "other")
    entry = other.path / "evil/.git/worktrees/x"
    entry.mkdir(parents=True)
    (entry / "gitdir").write_text(f"{other.path}/.git\n")
    (entry / "commondir").write_text("../..\n")
    (other.path / ".git").write_text(f"gitdir: {entry}\n")
    assert repository_of(str(other.path)) is None
    (entry / "commondir").write_text(f"{project.path}/.git\n")
    assert repository_of(str(other.path)) is None


def test_a_git_directory_that_leads_to_a_shared_one_elsewhere_is_no_worktree(
    project: Project,
) -> None:
    other = forged(project, "other")
    other.git("init", "-q")
    (other.path / ".git/commondir").write_text(f"{project.path}/.git\n")
    assert repository_of(str(other.path)) is None
    assert not other.covers("go test ./...")


@pytest.mark.parametrize("what", ["link", "link to the entry", "link on the way", "pipe"])
def test_a_link_makes_no_worktree(project: Project, what: str, tmp_path: Path) -> None:
    other = forged(project, "other")
    entry = linked(project, f"{other.path}/.git")
    file = other.path / ".git"
    match what:
        case "link":
            file.symlink_to(project.path / ".git")
        case "link to the entry":
            (tmp_path / "file").write_text(f"gitdir: {entry}\n")
            file.symlink_to(tmp_path / "file")
        case "link on the way":
            (tmp_path / "way").symlink_to(project.path)
            file.write_text(f"gitdir: {tmp_path.resolve()}/way/.git/worktrees/forged\n")
        case _:
            os.mkfifo(file)
    assert repository_of(str(other.path)) is None
    assert not other.covers("go test ./...")


def test_a_submodule_is_another_repository(project: Project) -> None:
    module = project.path / "module"
    module.mkdir()
    (project.path / ".git/modules/module").mkdir(parents=True)
    (module / ".git").write_text("gitdir: ../.git/modules/module\n")
    assert repository_of(str(module)) is None


def test_a_directory_below_the_top_of_a_worktree_is_its_own_project(project: Project) -> None:
    project.write("app/x", "")
    project.approve("go test ./...")
    assert not Project(project.path / "app", grants=project.grants).covers("go test ./...")


def test_a_removed_worktree_has_no_grants(project: Project) -> None:
    other = worktree(project)
    project.approve("go test ./...")
    assert other.covers("go test ./...")
    project.git("worktree", "remove", "--force", "../other")
    other.path.mkdir()
    assert not other.covers("go test ./...")
    other.git("init", "-q")
    assert not other.covers("go test ./...")


def test_a_moved_worktree_counts_once_git_knows_its_place(project: Project) -> None:
    worktree(project)
    project.approve("go test ./...")
    (project.path.parent / "other").rename(project.path.parent / "moved")
    moved = Project(project.path.parent / "moved", grants=project.grants)
    assert not moved.covers("go test ./...")
    project.git("worktree", "repair", str(moved.path))
    assert moved.covers("go test ./...")


def test_a_worktree_with_relative_links_counts(project: Project) -> None:
    other = worktree(project)
    project.approve("go test ./...")
    (other.path / ".git").write_text("gitdir: ../project/.git/worktrees/other\n")
    (project.path / ".git/worktrees/other/gitdir").write_text("../../../../other/.git\n")
    assert other.covers("go test ./...")
    (project.path / ".git/worktrees/other/gitdir").write_text("../../../../elsewhere/.git\n")
    assert not other.covers("go test ./...")


def test_no_worktree_counts_in_a_directory_for_temporary_files(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program of the user may lay out a repository there."""
    other = worktree(project)
    project.approve("go test ./...")
    monkeypatch.setattr(repositories, "_TEMPORARY", (str(project.path.parent),))
    assert not other.covers("go test ./...")
