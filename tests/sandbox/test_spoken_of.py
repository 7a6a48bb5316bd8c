"""Files that settings only speak of, check, test or write stay data; what they start does not."""

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
    w.begin()
    assert (w.put(path).exists(), w.look()) == (True, [])


@pytest.mark.parametrize(
    ("place", "text", "path"), table("sandbox/leads.still_started", list[tuple[str, str, str]])
)
def test_what_is_started_beside_a_reader_of_files_is_taken_away(
    w: Watched, place: str, text: str, path: str
) -> None:
    w.put(place, text)
    w.begin()
    file = w.put(path)
    assert (len(w.look()), file.exists()) == (1, False)


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
