"""`init` installs what a launcher would fetch: by the real `uv`, from a directory of packages."""

import os
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.cli.test_init import Machine
from tests.config.presets.test_presets import SERVER
from tests.program import PROXY
from tests.wheels import FROM_WHEELS_ALONE, VENV, add_wheel


class Packages(Machine):
    """A home, and a directory of packages that stands for an index."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.index = root / "packages"
        self.index.mkdir()
        script = SERVER.replace("[sys.argv[1]]", '["files"]')
        main = f"def main():\n    exec({script!r}, {{}})\n"
        add_wheel(self.index, "tiny_server", "1.0", main, program="tiny-server")
        add_wheel(self.index, "tiny_lib", "1.9", "ANSWER = 1\n")
        add_wheel(self.index, "tiny_lib", "2.1", "ANSWER = 2\n")

    @property
    def environ(self) -> dict[str, str]:
        # `uv` is found beside the `uvx` that a client names by its whole path.
        without = [one for one in os.environ["PATH"].split(":") if not Path(one, "uv").exists()]
        return {**super().environ, **FROM_WHEELS_ALONE, "PATH": ":".join(without)}

    def launched(self, *words: str) -> dict[str, Json]:
        args = ["--find-links", str(self.index), *words]
        return {"command": str(VENV / "uvx"), "args": [*args]}

    def tool(self, name: str = "tiny-server") -> Path:
        return self.home / ".local/share/uv/tools" / name

    def doctor(self) -> str:
        return program.run([*PROXY, "doctor"], self.environ, self.workspace).stdout


@pytest.fixture
def machine(tmp_path: Path) -> Packages:
    return Packages(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("tiny-server",),
        ("tiny-server@1.0",),
        ("--from", "tiny-server", "tiny-server"),
        ("--with", "tiny-lib<2", "tiny-server"),
    ],
    ids=" ".join,
)
def test_yes_installs_what_a_launcher_would_fetch_with_what_it_needs(
    machine: Packages, words: tuple[str, ...]
) -> None:
    before = machine.give_cursor(files=machine.launched(*words))
    code, said, faults = machine.run("--yes", "--json")
    assert code == 0, said + faults
    answer = orjson.loads(said)
    assert len(answer["installed"]) == 1
    assert not [one for one in answer["install"] if "uv tool" in one]
    libraries = [one.name for one in machine.tool().glob("lib/*/*/tiny_lib-*")]
    assert libraries == (["tiny_lib-1.9.dist-info"] if "--with" in words else [])
    program_of = machine.tool() / "bin" / "tiny-server"
    assert f"{program_of} (in place of {VENV}/uvx, version 1.0)" in machine.doctor()
    code, _, _ = machine.run("--undo")
    assert (code, machine.cursor.read_bytes()) == (0, before)


def test_an_installation_that_fails_is_told_and_leaves_the_launcher_in_its_place(
    machine: Packages,
) -> None:
    machine.give_cursor(
        files=machine.server("files"), other=machine.launched("--with", "no-such", "tiny-server")
    )
    code, said, _ = machine.run("--yes", "--seconds", "20")
    assert code == 1
    assert "  not installed; the end says why" in said
    assert said.count("is not installed:") == 1
    why = "other (Cursor): its package is not installed:"
    assert f"1 of 2 servers protected. NOT protected:\n  {why}" in said
    assert "\n    next: run `uv tool install " in said
    assert said.partition("check --live:")[2].count("uv tool install") == 1, (
        "what cannot be installed is not proposed again"
    )
    assert not machine.tool().exists()
    servers = orjson.loads(machine.cursor.read_text().removeprefix("// mine\n"))["mcpServers"]
    assert servers.keys() == {"ironcurtain", "other"}


def test_an_installation_that_takes_too_long_says_so_in_words(machine: Packages) -> None:
    launcher = machine.home / "bin" / "npx"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\nexec sleep 60\n")
    launcher.chmod(0o755)
    machine.give_cursor(slow={"command": str(launcher), "args": ["-y", "slow-server"]})
    machine.variables["PATH"] = f"{launcher.parent}:{os.environ['PATH']}"
    words = [*PROXY, "init", "--yes", "--seconds", "0.2"]
    environ = {**machine.environ, **machine.variables}
    said = program.run(words, environ, machine.workspace).stdout
    assert "its package is not installed: 1 s were too short\n" in said
    assert "next: run `npx --yes --package=slow-server -- true`, and init again" in said


def test_nothing_is_installed_by_a_dry_run_or_for_what_is_there(machine: Packages) -> None:
    machine.give_cursor(files=machine.launched("tiny-server"))
    code, said, _ = machine.run("--dry-run")
    assert code == 0
    assert "runs without a sandbox until it is installed: uv tool install" in said
    assert not machine.tool().exists()
    assert machine.run("--yes")[0] == 0
    assert machine.run("--undo")[0] == 0
    code, said, _ = machine.run("--yes", "--force")
    assert code == 0, said
    assert "Installed once" not in said


def test_a_project_of_uv_runs_from_its_own_environment(machine: Packages) -> None:
    project = machine.home / "weather"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "weather"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["tiny-server"]\n[tool.uv]\nfind-links = ["{machine.index}"]\n'
    )
    (project / "weather.py").write_text("import tiny_server\ntiny_server.main()\n")
    args: list[Json] = ["--directory", str(project), "run", "weather.py"]
    machine.give_cursor(weather={"command": str(VENV / "uv"), "args": args})
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    assert f"uv sync --directory {project}" in said
    assert f"{project}/.venv/bin/python (in place of {VENV}/uv)" in machine.doctor()
