"""Where packages are found that npm, uv and pipx have installed, and where they are not taken from.

The directories are laid out as those programs lay them out; the programs are not run.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.installed import (
    Installed,
    NotInstalled,
    SearchPlaces,
    find_installed,
)
from ironcurtain_proxy.shell.launchers import launched


@dataclass
class Machine:
    """A home, a workspace in it, a server's directory beside it, and what is installed."""

    root: Path
    environ: Mapping[str, str]

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    @property
    def cwd(self) -> Path:
        return self.home / "state" / "server.cwd"

    def find(self, words: str, cwd: Path | None = None) -> Installed | NotInstalled:
        command, *args = words.split()
        wanted = launched(command, args)
        assert wanted is not None
        places = SearchPlaces(
            directory=cwd or self.cwd,
            home=self.home,
            environ=self.environ,
            exposed=(real(self.workspace),),
        )
        return find_installed(wanted, places)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path.resolve(), {"PATH": f"{tmp_path.resolve()}/prefix/bin"})
    for directory in (made.workspace, made.cwd, made.root / "prefix" / "bin"):
        directory.mkdir(parents=True)
    return made


def program(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def npm_package(
    modules: Path, name: str = "cowsay", version: str = "1.6.0", bins: Json = "cli.js"
) -> str:
    package = modules / name
    script = program(package / "cli.js")
    program(package / "other.js")
    manifest = {"name": name, "version": version, "bin": bins}
    (package / "package.json").write_bytes(orjson.dumps(manifest))
    return str(script)


def python_package(environment: Path, name: str, version: str = "1.2.3", script: str = "") -> str:
    packages = environment / "lib" / "python3.11" / "site-packages"
    (packages / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)
    return str(program(environment / "bin" / (script or name)))


# --- where


@pytest.mark.parametrize(
    "place",
    [
        "home/state/server.cwd/node_modules",
        "home/node_modules",
        "prefix/lib/node_modules",
        "home/.npm/_npx/0123456789abcdef/node_modules",
    ],
)
def test_npx_finds_a_package_above_itself_installed_globally_or_fetched_before(
    machine: Machine, place: str
) -> None:
    script = npm_package(machine.root / place)
    assert machine.find("npx -y cowsay@1.6.0") == Installed(script, "1.6.0")


def test_a_global_package_is_found_beside_the_node_that_a_link_leads_to(machine: Machine) -> None:
    node = program(machine.root / "opt" / "node-22" / "bin" / "node")
    (machine.root / "prefix" / "bin" / "node").symlink_to(node)
    script = npm_package(machine.root / "opt" / "node-22" / "lib" / "node_modules")
    assert machine.find("npx cowsay") == Installed(script, "1.6.0")


@pytest.mark.parametrize("prefix", ["~/mine", "${HOME}/mine"])
def test_a_global_package_is_found_where_npmrc_says(machine: Machine, prefix: str) -> None:
    (machine.home / ".npmrc").write_text(f"fund=false\nprefix = {prefix}\n")
    script = npm_package(machine.home / "mine" / "lib" / "node_modules")
    assert machine.find("npx cowsay") == Installed(script, "1.6.0")


def test_what_npx_fetched_for_these_words_comes_before_what_it_fetched_for_others(
    machine: Machine,
) -> None:
    cache = machine.home / ".npm" / "_npx"
    npm_package(cache / "0000000000000000" / "node_modules", version="1.0.0")
    own = hashlib.sha512(b"cowsay").hexdigest()[:16]
    script = npm_package(cache / own / "node_modules", version="2.0.0")
    assert machine.find("npx -y cowsay") == Installed(script, "2.0.0")


@pytest.mark.parametrize("words", ["uvx some-server", "uv tool run --from Some_Server some-server"])
def test_uvx_finds_a_tool_of_uvs(machine: Machine, words: str) -> None:
    tools = machine.home / ".local" / "share" / "uv" / "tools"
    script = python_package(tools / "some-server", "some-server")
    assert machine.find(words) == Installed(script, "1.2.3")


@pytest.mark.parametrize(
    ("variable", "below"), [("UV_TOOL_DIR", ""), ("XDG_DATA_HOME", "uv/tools")]
)
def test_uvx_looks_where_its_variables_say(machine: Machine, variable: str, below: str) -> None:
    machine.environ = {**machine.environ, variable: str(machine.root / "elsewhere")}
    script = python_package(machine.root / "elsewhere" / below / "x", "x")
    assert machine.find("uvx x") == Installed(script, "1.2.3")


@pytest.mark.parametrize("place", ["home/.local/share/pipx/venvs", "home/.local/pipx/venvs"])
def test_pipx_run_finds_an_environment_of_pipxs(machine: Machine, place: str) -> None:
    script = python_package(machine.root / place / "x", "x", script="y")
    assert machine.find("pipx run --spec x y") == Installed(script, "1.2.3")


def test_a_program_on_the_path_is_taken_if_its_package_is_installed_beside_it(
    machine: Machine,
) -> None:
    script = python_package(machine.root / "prefix", "x")
    assert machine.find("uvx x") == Installed(script, "1.2.3")


def test_another_program_of_that_name_is_not(machine: Machine) -> None:
    """`uvx time` does not mean `/usr/bin/time`."""
    python_package(machine.root / "prefix", "another")
    program(machine.root / "prefix" / "bin" / "time")
    assert machine.find("uvx time") == NotInstalled("")


# --- which program


@pytest.mark.parametrize(
    ("words", "bins", "expected"),
    [
        ("npx @scope/cowsay", {"say": "cli.js"}, "cli.js"),
        ("npx @scope/cowsay", {"a": "cli.js", "b": "cli.js"}, "cli.js"),
        ("npx @scope/cowsay", {"think": "other.js", "cowsay": "cli.js"}, "cli.js"),
        ("npx -p @scope/cowsay think", {"think": "other.js", "cowsay": "cli.js"}, "other.js"),
        ("npx @scope/cowsay", {"think": "other.js", "say": "cli.js"}, None),
        ("npx -p @scope/cowsay moo", {"think": "other.js", "cowsay": "cli.js"}, None),
        ("npx @scope/cowsay", {}, None),
        ("npx @scope/cowsay", [], None),
        ("npx @scope/cowsay", {"cowsay": 1}, None),
        ("npx @scope/cowsay", {"cowsay": "../../../outside.js"}, None),
        ("npx @scope/cowsay", "/bin/sh", None),
    ],
)
def test_the_program_is_the_one_that_npx_would_choose(
    machine: Machine, words: str, bins: Json, expected: str | None
) -> None:
    modules = machine.home / "node_modules"
    npm_package(modules, "@scope/cowsay", bins=bins)
    program(machine.home / "outside.js")
    found = machine.find(words)
    place = modules / "@scope" / "cowsay"
    assert found == (
        NotInstalled("") if expected is None else Installed(f"{place / expected}", "1.6.0")
    )


def test_a_bare_word_means_the_program_of_that_name(machine: Machine) -> None:
    """`npx tsc` runs the program of the package `typescript`."""
    script = npm_package(machine.home / "node_modules", "typescript", bins={"tsc": "cli.js"})
    link = machine.home / "node_modules" / ".bin" / "tsc"
    link.parent.mkdir()
    link.symlink_to(script)
    assert machine.find("npx tsc") == Installed(str(link), "")


def test_a_script_that_cannot_be_run_is_none(machine: Machine) -> None:
    script = npm_package(machine.home / "node_modules")
    Path(script).chmod(0o644)
    assert machine.find("npx cowsay") == NotInstalled("")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"bin": "cli.js"}', b"\xff"])
def test_a_broken_manifest_is_no_package(machine: Machine, text: bytes) -> None:
    npm_package(machine.home / "node_modules")
    (machine.home / "node_modules" / "cowsay" / "package.json").write_bytes(text)
    assert machine.find("npx cowsay") == NotInstalled("")


# --- which version


def test_another_version_than_the_written_one_is_named_and_not_run(machine: Machine) -> None:
    npm_package(machine.home / "node_modules", version="1.5.0")
    assert machine.find("npx cowsay@1.6.0") == NotInstalled("version 1.5.0 is installed")
    python_package(machine.root / "prefix", "x", "1.2.3")
    assert machine.find("uvx x==1.2.4") == NotInstalled("version 1.2.3 is installed")


def test_the_written_version_is_found_behind_another(machine: Machine) -> None:
    npm_package(machine.home / "node_modules", version="1.5.0")
    script = npm_package(machine.root / "prefix" / "lib" / "node_modules", version="1.6.0")
    assert machine.find("npx cowsay@1.6.0") == Installed(script, "1.6.0")


def test_zeros_at_the_end_of_a_version_mean_nothing(machine: Machine) -> None:
    script = python_package(machine.root / "prefix", "x", "1.2.0")
    assert machine.find("uvx x==1.2") == Installed(script, "1.2.0")
    assert isinstance(machine.find("uvx x==1.20"), NotInstalled)


def test_a_range_of_npm_means_what_npx_fetched_for_it(machine: Machine) -> None:
    npm_package(machine.home / "node_modules")
    assert machine.find("npx cowsay@^1.6.0") == NotInstalled("")
    script = npm_package(npx_cache(machine, "cowsay@^1.6.0"), version="1.7.0")
    assert machine.find("npx cowsay@^1.6.0") == Installed(script, "1.7.0")


def test_a_package_of_a_repository_means_what_npx_fetched_for_it(machine: Machine) -> None:
    modules = npx_cache(machine, "github:owner/repository")
    script = npm_package(modules, "@scope/cowsay")
    assert machine.find("npx github:owner/repository") == NotInstalled("")
    manifest = modules.parent / "package.json"
    manifest.write_text('{"dependencies": {"@scope/cowsay": "github:owner/repository"}}')
    assert machine.find("npx github:owner/repository") == Installed(script, "1.6.0")
    assert machine.find("npx github:other/repository") == NotInstalled("")


def npx_cache(machine: Machine, words: str) -> Path:
    key = hashlib.sha512(words.encode()).hexdigest()[:16]
    return machine.home / ".npm" / "_npx" / key / "node_modules"


def test_a_range_of_python_means_any_version_within_it(machine: Machine) -> None:
    script = python_package(machine.root / "prefix", "x", "1.2.3")
    assert machine.find("uvx x>=1.2,<2") == Installed(script, "1.2.3")
    assert machine.find("uvx x==1.*") == Installed(script, "1.2.3")
    assert machine.find("uvx x~=1.3") == NotInstalled("version 1.2.3 is installed")


# --- what the agent may have written


def test_nothing_is_taken_from_the_workspace(machine: Machine) -> None:
    script = npm_package(machine.workspace / "node_modules")
    deep = machine.workspace / "project" / "deep"
    assert machine.find("npx cowsay", deep) == NotInstalled(
        f"{script} lies where the agent may write"
    )


def test_what_lies_above_the_workspace_is_taken_instead(machine: Machine) -> None:
    npm_package(machine.workspace / "node_modules", version="9.9.9")
    script = npm_package(machine.home / "node_modules")
    assert machine.find("npx cowsay", machine.workspace) == Installed(script, "1.6.0")


@pytest.mark.parametrize("kind", ["the package", "the script", "a link in between"])
def test_no_link_through_the_workspace_is_followed(machine: Machine, kind: str) -> None:
    modules = machine.home / "node_modules"
    script = Path(npm_package(machine.root / "safe"))
    match kind:
        case "the package":
            npm_package(machine.workspace)
            modules.mkdir()
            (modules / "cowsay").symlink_to(machine.workspace / "cowsay")
        case "the script":
            own = Path(npm_package(modules))
            own.unlink()
            own.symlink_to(program(machine.workspace / "cli.js"))
        case _:
            own = Path(npm_package(modules))
            own.unlink()
            (machine.workspace / "hop").symlink_to(script)
            own.symlink_to("../../workspace/hop")
    found = machine.find("npx cowsay")
    assert isinstance(found, NotInstalled)
    assert "where the agent may write" in found.why


def test_a_program_on_the_path_is_not_taken_from_the_workspace(machine: Machine) -> None:
    python_package(machine.workspace / "venv", "x")
    machine.environ = {"PATH": f"{machine.workspace}/venv/bin:{machine.environ['PATH']}"}
    assert isinstance(machine.find("uvx x"), NotInstalled)
    script = python_package(machine.root / "prefix", "x")
    assert machine.find("uvx x") == Installed(script, "1.2.3")


def test_a_relative_directory_is_never_searched(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_package(machine.root / "tools" / "x", "x")
    monkeypatch.chdir(machine.root)
    machine.environ = {"PATH": "tools/x/bin", "UV_TOOL_DIR": "tools"}
    assert machine.find("uvx x") == NotInstalled("")
