"""The public file and git servers, confined."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.confined import PATH, Cell, done, use_default_sandbox
from tests.e2e.house import House, rule
from tests.e2e.raw_client import Message, at
from tests.e2e.real_servers import COMMANDS

ENTITY: Message = {"name": "Ada", "entityType": "person", "observations": ["writes"]}

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


CALLS: dict[str, tuple[str, Message]] = {
    "memory": ("create_entities", {"entities": [ENTITY]}),
    "everything": ("echo", {"message": "hello"}),
    "time": ("get_current_time", {"timezone": "UTC"}),
    "filesystem": ("list_directory", {"path": "."}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_public_server_works_in_its_sandbox_under_the_shipped_policy(
    house: House, name: str
) -> None:
    house.add_server(name, COMMANDS[name](house))
    use_default_sandbox(house, name)
    house.variables |= {"PATH": PATH, "SANDBOX_POLICY": "enforce"}
    agent = house.start()
    tool, arguments = CALLS[name]
    done(agent.call(tool, arguments))
    assert house.outcomes()[-1]["sandboxed"] is True


def test_the_memory_server_keeps_what_it_knows_where_no_call_and_no_other_server_reaches(
    house: House,
) -> None:
    for name in ("memory", "filesystem"):
        house.add_server(name, COMMANDS[name](house))
        use_default_sandbox(house, name)
    house.variables |= {"PATH": PATH, "SANDBOX_POLICY": "enforce"}
    agent = house.start()
    tool, arguments = CALLS["memory"]
    done(agent.call(f"memory__{tool}", arguments))
    file = house.home / ".ironcurtain/memory/memory/memory.jsonl"
    assert "Ada" in file.read_text()
    agent.call("filesystem__read_text_file", {"path": str(file)})
    assert house.last_decision() == ("deny", "structural-protected-path")
    again = house.start()
    assert "Ada" in done(again.call("memory__read_graph"))


def test_the_public_git_server_commits_in_the_workspace(real: Cell) -> None:
    house, agent = real
    repository = house.workspace / "repo"
    (repository / "file.txt").write_text("content\n")
    where: Message = {"repo_path": str(repository)}
    done(agent.call("git__git_add", {**where, "files": ["file.txt"]}))
    done(agent.call("git__git_commit", {**where, "message": "confined"}))
    assert "confined" in done(agent.call("git__git_log", where))
    assert at(house.outcomes()[-1], "sandboxed") is True
