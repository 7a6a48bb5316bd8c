"""Approved families do not stretch: everything is approved, and a hostile agent tries the rest."""

import pytest

from tests.grants.family_projects import Project
from tests.grants.stretched_commands import APPROVED, STRETCHED


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = tmp_path_factory.mktemp("attacks")
    made = Project.made(root / "project")
    made.write("package.json", '{"scripts": {"test": "jest", "test2": "x"}}')
    made.write("web/package.json", '{"scripts": {"test": "evil"}}')
    made.write("Makefile", "X := 1\ntest:\n\tgo test\nother:\n\techo\n")
    made.write("justfile", "test:\n    go test\n")
    made.write("mise.toml", '[tasks.test]\nrun = "go test"\n[tasks.other]\nrun = "x"\n')
    made.write("compose.yaml", "services: {}\n")
    made.write("scripts/check.sh", "echo\n")
    made.write("scripts/run.sh", "echo\n")
    made.write("tool.js", "")
    made.write("evil.sh", "")
    (root / "outside/deep").mkdir(parents=True)
    (made.path / "out-link").symlink_to(root / "outside")
    (made.path / ".venv/bin").mkdir(parents=True)
    made.write(".venv/bin/activate", "")
    for command in APPROVED:
        made.approve(command)
    return made


def test_what_was_approved_is_covered(project: Project) -> None:
    assert [command for command in APPROVED if not project.covers(command)] == []


def test_what_can_change_the_effect_is_not(project: Project) -> None:
    assert [command for command in STRETCHED if project.covers(command)] == []


def test_a_task_is_not_covered_in_another_directory(project: Project) -> None:
    assert [
        (cwd, command)
        for cwd in ["..", "web", "out-link", "/tmp"]
        for command in ["npm run test", "make test", "bash scripts/check.sh"]
        if project.covers(command, cwd)
    ] == []


@pytest.mark.parametrize("cwd", ["..", "out-link", "out-link/deep", "/tmp"])
def test_nothing_is_covered_outside_of_the_project(project: Project, cwd: str) -> None:
    for command in APPROVED:
        assert not project.covers(command, cwd), command


@pytest.mark.parametrize("cwd", ["", ".git", ".git/hooks", ".claude"])
@pytest.mark.parametrize(
    "command",
    [
        "cp a {}hooks/pre-commit",
        "touch {}x",
        "cp a {}settings.json",
        "git stash; touch {}x",
        "gofmt -w {}x",
    ],
)
def test_a_family_does_not_reach_the_directories_that_steer_programs(
    project: Project, cwd: str, command: str
) -> None:
    """However they are spelled, and also from inside."""
    (project.path / ".claude").mkdir(exist_ok=True)
    if cwd:
        assert not project.covers(command.format(""), cwd)
        assert not project.covers(f"cd {cwd} && {command.format('')}")
        return
    for name in (".git/", ".GIT/", ".g*/", ".{git,x}/", ".[g]it/", ".husky/"):
        assert not project.covers(command.format(name))


def test_a_family_does_not_write_the_file_that_names_servers_to_start(project: Project) -> None:
    for command in ("cp a .mcp.json", "touch src/.mcp.json", "cp a .vscode/mcp.json"):
        assert not project.covers(command)
