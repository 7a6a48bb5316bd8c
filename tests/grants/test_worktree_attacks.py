"""Families that were approved in one worktree do not stretch in another one."""

import shutil
from collections.abc import Iterator

import pytest

from ironcurtain_proxy.facts import repositories
from tests.grants.family_projects import Project
from tests.grants.stretched_commands import APPROVED, STRETCHED
from tests.tables import table

FILES = table("grants/worktree_attacks.files", dict[str, str])


@pytest.fixture(scope="module")
def _not_temporary() -> Iterator[None]:
    """The directories of tests are temporary ones, where no worktree counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repositories, "_TEMPORARY", ())
        patch.setattr(repositories, "gettempdir", lambda: "/nowhere")
        yield


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, _not_temporary: None) -> Project:
    """A worktree with the same files as the one where everything was approved."""
    root = tmp_path_factory.mktemp("attacks")
    project = Project.made(root / "project")
    project.git("worktree", "add", "-q", "-b", "topic", "../other")
    found = Project((root / "other").resolve(), grants=project.grants)
    (root / "outside/deep").mkdir(parents=True)
    for one in (project, found):
        for name, text in FILES.items():
            one.write(name, text)
        (one.path / "out-link").symlink_to(root / "outside")
    for command in APPROVED:
        project.approve(command)
    return found


def test_most_of_what_was_approved_is_covered(other: Project) -> None:
    uncovered = [command for command in APPROVED if not other.covers(command)]
    assert uncovered == []


def test_what_can_change_the_effect_is_not(other: Project) -> None:
    assert [command for command in STRETCHED if other.covers(command)] == []


@pytest.mark.parametrize("cwd", ["..", "../project", "../project/web", "out-link", "/tmp"])
def test_nothing_is_covered_outside_of_the_worktree(other: Project, cwd: str) -> None:
    for command in APPROVED:
        assert not other.covers(command, cwd), command
        assert not other.covers(f"cd {cwd} && {command}"), command


@pytest.mark.parametrize(
    ("name", "text", "command"), table("grants/stretched.changed_files", list[tuple[str, str, str]])
)
def test_a_file_that_says_something_else_in_the_worktree_ends_its_family(
    other: Project, name: str, text: str, command: str
) -> None:
    path = other.path / name
    before = path.read_text() if path.exists() else None
    assert other.covers(command)
    other.write(name, text)
    try:
        assert not other.covers(command)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert other.covers(command)


@pytest.mark.parametrize("name", ["package.json", "Makefile", "scripts", "mise.toml"])
def test_a_link_to_the_file_of_the_other_worktree_is_no_file_of_its_own(
    other: Project, name: str
) -> None:
    """It may say something else a moment later, and a directory that is a link lies elsewhere."""
    path, aside = other.path / name, other.path / f"{name}.aside"
    path.rename(aside)
    path.symlink_to(other.path.parent / "outside")
    try:
        assert not other.covers("npm test" if name == "package.json" else _COMMANDS[name])
    finally:
        path.unlink()
        aside.rename(path)


_COMMANDS = {
    "Makefile": "make test",
    "scripts": "bash scripts/check.sh",
    "mise.toml": "mise run test",
}


def test_a_worktree_that_is_no_longer_the_repositorys_loses_all(other: Project) -> None:
    entry = other.path.parent / "project/.git/worktrees/other"
    aside = entry.with_name("aside")
    shutil.move(entry, aside)
    try:
        assert not other.covers("go test ./...")
    finally:
        shutil.move(aside, entry)
    assert other.covers("go test ./...")
