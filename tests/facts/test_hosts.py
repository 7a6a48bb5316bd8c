"""The hosts that commands are known to reach, by what their own configuration says."""

import os
import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.commands import CommandContext, observed
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.grants.families import described
from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.shell.families import families_of, sought
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import covers
from tests.tables import table


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository on the branch `feature`, in a home directory without any settings."""
    here = tmp_path / "home/project"
    here.mkdir(parents=True)
    git(here, "init", "-q", "-b", "feature")
    git(here, "remote", "add", "origin", "https://git.example.org/a/b.git")
    return here


def git(here: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(here), *words], check=True, env=environment(here))


def environment(here: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(here.parent), "GIT_CONFIG_NOSYSTEM": "1"}


def seen(here: Path, command: str) -> CommandPlace:
    place = CommandPlace(
        workspace=str(here), directory=str(here), home=str(here.parent), has_repository=True
    )
    grounds = CommandContext(sought=sought, remotes=lambda _: GitRemotes(environment(here)))
    return observed(parse_command(command), place, grounds, "shell")


def hosts(here: Path, command: str) -> tuple[str, ...]:
    return seen(here, command).every_host()


@pytest.mark.parametrize(
    ("command", "reached"), table("facts/commands.hosts", list[tuple[str, tuple[str, ...]]])
)
def test_a_command_reaches_what_its_configuration_names(
    project: Path, command: str, reached: tuple[str, ...]
) -> None:
    assert hosts(project, command) == reached


@pytest.mark.parametrize(
    ("said", "reached"),
    [
        ("registry=https://npm.example.org/x/\n", ("npm.example.org",)),
        ("@a:registry=https://a.example\n", ("a.example", "registry.npmjs.org")),
        ("registry=http://npm.example.org\n", ()),
        ("registry=https://${HOST}/\n", ()),
        ("https-proxy=http://evil.example\n", ()),
        ("registry=https://u@evil.example\n", ()),
    ],
)
def test_the_registry_is_the_one_that_the_project_names(
    project: Path, said: str, reached: tuple[str, ...]
) -> None:
    (project / ".npmrc").write_text(said)
    assert hosts(project, "npm ci") == reached


@pytest.mark.parametrize(
    ("command", "file"),
    [("cargo install x", ".cargo/config.toml"), ("uv pip install x", "uv.toml")],
)
def test_no_host_is_known_where_a_file_names_another(
    project: Path, command: str, file: str
) -> None:
    (project / file).parent.mkdir(exist_ok=True)
    (project / file).write_text('[net]\nretry = 3\ncert = "/etc/ssl/x.pem"\n')
    assert hosts(project, command) != (), "most files say nothing of registries"
    for text in ('[source.crates-io]\nreplace-with = "x"', 'index-url = "https://e.example"'):
        (project / file).write_text(text)
        assert hosts(project, command) == ()


def test_an_approval_is_one_of_the_hosts_and_ends_with_them(project: Path) -> None:
    command = parse_command("npm ci")
    approved = families_of(command, seen(project, "npm ci"))
    assert approved is not None
    assert covers(approved, command, seen(project, "npm ci"))
    (said,) = described(approved, RealPath.from_text(str(project)))
    assert said.endswith("(reaches registry.npmjs.org)")
    (project.parent / ".npmrc").write_text("registry=https://evil.example\n")
    assert not covers(approved, command, seen(project, "npm ci"))


@pytest.mark.parametrize(
    ("said", "reached"),
    [("cert = /etc/ssl/certs/ca.pem", ("files.pythonhosted.org", "pypi.org")),
     ("timeout = 60", ("files.pythonhosted.org", "pypi.org")),
     ("index-url = https://e.example/simple", ()), ("extra-index-url = https://e.example", ()),
     ("find-links = https://e.example", ()), ("proxy = http://e.example", ())],
)  # fmt: skip
def test_settings_of_pip_that_name_no_index_leave_its_hosts_known(
    project: Path, said: str, reached: tuple[str, ...]
) -> None:
    (project.parent / ".config/pip").mkdir(parents=True)
    (project.parent / ".config/pip/pip.conf").write_text(f"[global]\n{said}\n")
    assert hosts(project, "pip install six") == reached
