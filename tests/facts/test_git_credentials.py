"""Commands that would show a password of git's configuration."""

import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.pushes import shows_credentials
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.operations import needs_of
from tests.facts.test_commands import facts_of
from tests.tables import table

REMOTE = "https://me:ghp_0123456789abcdefghij0123456789abcdef@example.org/a/b"


def git(place: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "project"
    place.mkdir()
    git(place, "init", "-q")
    git(place, "remote", "add", "origin", REMOTE)
    return place


def shows(facts: Facts) -> bool:
    """Whether a person is asked about what the command shows."""
    assert facts.command is not None
    found = effect_of(facts.command, facts.place)
    is_shown = "secrets.access" in needs_of(facts.command, found)
    assert not (is_shown and found.effect == "reads")
    return is_shown


SHOWING = table("facts/commands.showing", list[str])


@pytest.mark.parametrize("command", SHOWING)
def test_what_shows_a_password_of_the_configuration_is_a_secret(
    project: Path, command: str
) -> None:
    assert shows(facts_of(project, command=command))


@pytest.mark.parametrize("command", SHOWING)
def test_without_a_password_it_is_none(project: Path, command: str) -> None:
    git(project, "remote", "set-url", "origin", "https://example.org/a/b")
    assert not shows(facts_of(project, command=command))


@pytest.mark.parametrize(
    "command",
    table("facts/commands.not_showing", list[str]),
)
def test_what_shows_no_configuration_stays_as_it_was(project: Path, command: str) -> None:
    assert not shows(facts_of(project, command=command))


@pytest.mark.parametrize(
    ("setting", "known"),
    table("facts/git_credentials.a_password_is_known_from_a_name", list[tuple[str, bool]]),
)
def test_a_password_is_known_from_a_name(project: Path, setting: str, *, known: bool) -> None:
    (project / ".git/config").write_text(f"[core]\n\tbare = false\n{setting}")
    assert shows_credentials(str(project)) is known


def test_the_configuration_of_a_worktree_is_that_of_its_repository(project: Path) -> None:
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty",
        "-m", "x")  # fmt: skip
    git(project, "worktree", "add", "-q", "../other")
    assert shows_credentials(str(project.parent / "other"))
    assert not shows_credentials(str(project.parent))


def test_a_configuration_that_is_no_plain_file_stops_no_call(project: Path) -> None:
    (project / ".git/config").unlink()
    assert not shows_credentials(str(project))
    (project / ".git/config").mkdir()
    assert not shows_credentials(str(project))
