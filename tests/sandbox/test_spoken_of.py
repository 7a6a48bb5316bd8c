"""Files that settings only speak of, check, test or write stay data; what they start does not."""

import os
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.test_leads import git, repository
from tests.sandbox.test_lookout import Watched
from tests.tables import table


@pytest.mark.parametrize(
    ("place", "text", "path"), table("sandbox/leads.only_spoken_of", list[tuple[str, str, str]])
)
def test_a_file_that_settings_only_speak_of_may_come(
    w: Watched, place: str, text: str, path: str
) -> None:
    w.put(place, text)
    w.put("t/run.py", "import os")
    assert str(w.top / path) not in w.begin()
    assert (w.put(path).exists(), w.look()) == (True, [])


@pytest.mark.parametrize(
    ("place", "text", "path"), table("sandbox/leads.still_started", list[tuple[str, str, str]])
)
def test_what_is_started_beside_a_reader_of_files_is_taken_away(
    w: Watched, place: str, text: str, path: str
) -> None:
    w.put(place, text)
    (w.top / "t").mkdir(exist_ok=True)
    w.begin()
    file = w.put(path)
    assert (len(w.look()), file.exists()) == (1, False)


@pytest.fixture
def activated(w: Watched) -> Path:
    """What an `.envrc` loads of a virtual environment, newly made as anybody makes one."""
    w.put(".envrc", "source .venv/bin/activate")
    w.begin()
    venv.create(w.top / ".venv", symlinks=True)
    return w.top / ".venv/bin/activate"


def test_a_virtual_environment_that_an_envrc_activates_can_be_made(
    w: Watched, activated: Path
) -> None:
    assert (w.look(), activated.exists()) == ([], True)


def with_a_command(file: Path) -> None:
    file.write_text(f"{file.read_text()}./evil\n")


def of_another_directory(file: Path) -> None:
    file.write_text(file.read_text().replace("/.venv", "/evil"))


def under_two_names(file: Path) -> None:
    (file.parents[2] / "other").hardlink_to(file)


def as_a_link(file: Path) -> None:
    file.rename(file.parents[2] / "other").chmod(0o644)
    file.symlink_to(file.parents[2] / "other")


@pytest.mark.parametrize(
    "change", [with_a_command, of_another_directory, under_two_names, as_a_link]
)
def test_what_activates_and_is_not_as_python_writes_it_is_taken_away(
    w: Watched, activated: Path, change: Callable[[Path], None]
) -> None:
    change(activated)
    assert (len(w.look()), os.path.lexists(activated)) == (1, False)


def test_a_template_that_a_server_could_write_says_not_how_to_activate(
    w: Watched, activated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(w.top / "python"))
    activated.write_text("./evil\n")
    w.put("python/lib/python3.11/venv/scripts/common/activate", "./evil\n")
    assert (len(w.look()), activated.exists()) == (1, False)


def test_the_users_path_makes_the_workspace_no_place_of_programs(w: Watched) -> None:
    w.put("../home/.bashrc", 'export PATH="$HOME/.local/bin:$PATH"\nalias t="pytest -x tests"\n')
    w.begin()
    for name in ("git", "tests/x", "pytest/x"):
        assert (w.put(name).exists(), w.look()) == (True, [])


@pytest.mark.parametrize(
    "text",
    [
        "if command -v pre-commit > /dev/null; then exec pre-commit; fi",
        "git diff --cached HEAD; head=$(git rev-parse HEAD); ls index",
    ],
)
def test_a_hook_that_says_its_own_name_or_head_leaves_the_repository_to_commits(
    w: Watched, text: str
) -> None:
    top = repository(w)
    (top / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{text}\n")
    assert not {str(top / ".git" / name) for name in ("", "HEAD", "index")} & {*w.begin()}
    assert str(top / ".git/hooks") in w.lookout.closed()
    git(top, "commit", "-q", "--no-verify", "--allow-empty", "-m", "two")
    git(top, "checkout", "-q", "-b", "topic")
    assert w.look() == []
