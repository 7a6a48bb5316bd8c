"""Installed programs that need more than one package, or come from a repository or a project.

The directories are laid out as npm, uv and pipx lay them out; the programs are not run.
"""

import orjson
import pytest

from ironcurtain_proxy.sandbox.installed import Installed, NotInstalled
from tests.sandbox.test_installed import Machine, machine, npm_package, program, python_package
from tests.tables import table

__all__ = ["machine"]


# --- with what


@pytest.mark.parametrize(
    "words", ["uvx --with y<2 x", "uv tool run --with y --from x x", "uv run --with x --with y x"]
)
def test_a_tool_needs_the_packages_that_it_runs_with(machine: Machine, words: str) -> None:
    tool = machine.home / ".local" / "share" / "uv" / "tools" / "x"
    script = python_package(tool, "x")
    assert machine.find(words) == NotInstalled("")
    python_package(tool, "y", "1.9")
    assert machine.find(words) == Installed(script, "1.2.3")


def test_a_tool_whose_companion_has_another_version_is_not_run(machine: Machine) -> None:
    tool = machine.home / ".local" / "share" / "uv" / "tools" / "x"
    python_package(tool, "x")
    python_package(tool, "y", "2.1")
    assert machine.find("uvx --with y<2 x") == NotInstalled("version 2.1 is installed")


def test_several_packages_of_npm_lie_in_one_directory(machine: Machine) -> None:
    npm_package(machine.home / "node_modules", "a", bins={"a": "cli.js"})
    npm_package(machine.root / "prefix" / "lib" / "node_modules", "b", bins={"c": "cli.js"})
    assert machine.find("npx -p a -p b c") == NotInstalled("")
    script = npm_package(machine.home / "node_modules", "b", bins={"c": "cli.js"})
    assert machine.find("npx -p a -p b c") == Installed(script, "1.6.0")


@pytest.mark.parametrize(
    ("words", "is_it"),
    table("sandbox/installed_together.a_package_of_a_repository_is_known", list[tuple[str, bool]]),
)
def test_a_package_of_a_repository_is_known_by_where_it_was_installed_from(
    machine: Machine, words: str, is_it: bool
) -> None:
    place = "pipx/venvs" if words.startswith("pipx") else "uv/tools"
    environment = machine.home / ".local" / "share" / place / "package"
    script = python_package(environment, "package", script="x")
    (about,) = environment.glob("lib/*/*/*.dist-info")
    said = {"url": "https://h/o/x", "vcs_info": {"vcs": "git", "requested_revision": "v1"}}
    (about / "direct_url.json").write_bytes(orjson.dumps(said))
    if "x@git" in words:
        about.rename(about.with_name("x-1.2.3.dist-info"))
        environment.rename(environment.with_name("x"))
        script = script.replace("/package/", "/x/")
    assert machine.find(words) == (Installed(script, "1.2.3") if is_it else NotInstalled(""))


# --- projects


def test_a_program_of_a_project_is_found_in_its_own_environment(machine: Machine) -> None:
    project = machine.home / "weather"
    (project / "deep").mkdir(parents=True)
    words = f"uv --directory {project}/deep run weather"
    assert machine.find(words) == NotInstalled("")
    (project / "pyproject.toml").write_text("")
    assert machine.find(words) == NotInstalled("")
    script = program(project / ".venv" / "bin" / "weather")
    assert machine.find(words) == Installed(str(script), "")
    python = program(project / ".venv" / "bin" / "python")
    assert machine.find(f"uv run --project {project} weather.py") == Installed(str(python), "")


def test_packages_do_not_replace_what_a_project_around_would_change(machine: Machine) -> None:
    tool = machine.home / ".local" / "share" / "uv" / "tools" / "x"
    script = python_package(tool, "x")
    assert machine.find("uv run --with x x") == Installed(script, "1.2.3")
    (machine.cwd / "pyproject.toml").write_text("")
    assert machine.find("uv run --with x x") == NotInstalled("")
    assert machine.find("uv run --no-project --with x x") == Installed(script, "1.2.3")
