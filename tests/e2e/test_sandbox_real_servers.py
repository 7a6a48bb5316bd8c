"""The public file and git servers, confined."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.confined import PATH, Cell, done, use_default_sandbox
from tests.e2e.house import House, rule
from tests.e2e.raw_client import Message, at
from tests.e2e.real_servers import COMMANDS

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """The public file and git servers, confined, in one workspace with a repository."""
    house = House(tmp_path_factory.mktemp("real"))
    for name in ("filesystem", "git"):
        house.add_server(name, COMMANDS[name](house))
        use_default_sandbox(house, name)
    house.rules.append(rule("all", server=["filesystem", "git"]))
    house.variables |= {"PATH": PATH, "SANDBOX_POLICY": "enforce"}
    repository = house.workspace / "repo"
    git = shutil.which("git") or pytest.skip("no git")
    subprocess.run([git, "init", "--quiet", str(repository)], check=True)
    for setting in ("user.name", "user.email"):
        subprocess.run([git, "-C", str(repository), "config", setting, "x@y"], check=True)
    yield house, house.start()
    house.end()


def test_the_public_file_server_reads_and_writes_in_the_workspace(real: Cell) -> None:
    house, agent = real
    file = house.workspace / "plain.txt"
    given: Message = {"path": str(file), "content": "plain"}
    done(agent.call("filesystem__write_file", given))
    assert file.read_text() == "plain"
    assert done(agent.call("filesystem__read_text_file", {"path": str(file)})) == "plain"
    moved: Message = {"source": str(file), "destination": str(house.workspace / "moved.txt")}
    done(agent.call("filesystem__move_file", moved))
    assert not file.exists()
    assert house.outcomes()[-1]["sandboxed"] is True


def test_the_public_git_server_commits_in_the_workspace(real: Cell) -> None:
    house, agent = real
    repository = house.workspace / "repo"
    (repository / "file.txt").write_text("content\n")
    where: Message = {"repo_path": str(repository)}
    done(agent.call("git__git_add", {**where, "files": ["file.txt"]}))
    done(agent.call("git__git_commit", {**where, "message": "confined"}))
    assert "confined" in done(agent.call("git__git_log", where))
    assert at(house.outcomes()[-1], "sandboxed") is True
