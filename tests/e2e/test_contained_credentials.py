"""A password in the URL of a remote: what would show it is asked about, also in a sandbox."""

import subprocess

import pytest

from tests.e2e.confined_installation import done, refused
from tests.e2e.installation import Installation
from tests.e2e.test_containment import contained, shell, why_asked

pytestmark = pytest.mark.usefixtures("sandbox")


def test_a_contained_command_shows_no_password_of_a_remote(installation: Installation) -> None:
    place = str(installation.workspace)
    subprocess.run(["git", "init", "-q", place], check=True)
    url = "https://me:verysecret@example.org/x"
    subprocess.run(["git", "-C", place, "remote", "add", "origin", url], check=True)
    agent = contained(installation)
    done(shell(agent, f"cd {place} && git status"))
    for command in ("git remote -v", "cat .git/config", "git config --get remote.origin.url"):
        answer = refused(shell(agent, f"cd {place} && {command}"))
        assert "verysecret" not in answer
        assert "secret" in why_asked(installation)
