"""Reading in a repository outside the workspace: one approval for all of git that only reads."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.families import command_candidates, covering
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.model.request import ONLY_READS
from ironcurtain_proxy.shell.families import families_of
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


@pytest.fixture(params=["none", "other/sub", "pointer", "including"])
def unclear(project: Project, request: pytest.FixtureRequest) -> str:
    """A directory of which nothing here says what git would run there."""
    name = str(request.param)
    there = project.path.parent / name
    there.mkdir()
    if name == "pointer":
        (there / ".git").write_text("gitdir: ../other/.git\n")
    if name == "including":
        (there / ".git").mkdir()
        (there / ".git/config").write_text("[include]\n\tpath = x\n")
    return name


def approve_held(project: Project, command: str) -> None:
    found = command_candidates(held_call(project, command))
    assert found is not None
    project.remember(found.patterns[0])


def held_call(project: Project, command: str, writable: tuple[str, ...] = ()) -> EscalatedCall:
    call = project.call(command)
    return replace(call, held=True, place=replace(call.place, writable=writable))


def spares(project: Project, command: str) -> bool:
    return covering(project.grants, held_call(project, command)) is not None


def test_in_a_sandbox_one_approval_covers_reading_where_the_configuration_is_not_known(
    project: Project, unclear: str
) -> None:
    approve_held(project, f"git -C ../{unclear} show HEAD:a.txt | head")
    for other in ("git log -p -3 | grep x", "git diff HEAD~1 && git show HEAD:b/a.jsonl | wc -l"):
        assert spares(project, f"cd ../{unclear} && {other}")
        assert not project.covers(f"cd ../{unclear} && {other}"), "no sandbox holds what git runs"


@pytest.mark.parametrize("command", table("grants/stretched.elsewhere", list[str]))
def test_in_a_sandbox_it_covers_nothing_else(project: Project, unclear: str, command: str) -> None:
    approve_held(project, f"git -C ../{unclear} log -p")
    changed = command.replace("../other", f"../{unclear}")
    assert not spares(project, changed)
    assert not spares(project, "git -C ../other log -p")


def test_what_an_agent_could_make_into_another_repository_is_no_kind(
    project: Project, tmp_path: Path
) -> None:
    (project.path / "link").symlink_to("../none")
    (tmp_path / "none").mkdir()
    shared = (str(tmp_path / "none"),)

    def is_a_kind(directory: str, writable: tuple[str, ...] = ()) -> bool:
        call = held_call(project, f"git -C {directory} log -p", writable)
        assert call.command is not None
        found = families_of(call.command, call.place, held=True)
        return any(ONLY_READS in one.program for one in found or ())

    assert is_a_kind("../none")
    assert not is_a_kind("../none", shared)
    assert not is_a_kind("link")
