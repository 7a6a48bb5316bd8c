"""The public file and git servers, confined."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.confined_installation import PATH, Cell, done, use_default_sandbox
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import Message, at
from tests.e2e.real_servers import COMMANDS

ENTITY: Message = {"name": "Ada", "entityType": "person", "observations": ["writes"]}

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """The public file and git servers, confined, in one workspace with a repository."""
    installation = Installation(tmp_path_factory.mktemp("real"))
    for name in ("filesystem", "git"):
        installation.add_server(name, COMMANDS[name](installation))
        use_default_sandbox(installation, name)
    installation.rules.append(rule("all", server=["filesystem", "git"]))
    installation.variables |= {"PATH": PATH, "SANDBOX_POLICY": "enforce"}
    repository = installation.workspace / "repo"
    git = shutil.which("git") or pytest.skip("no git")
    subprocess.run([git, "init", "--quiet", str(repository)], check=True)
    for setting in ("user.name", "user.email"):
        subprocess.run([git, "-C", str(repository), "config", setting, "x@y"], check=True)
    yield installation, installation.start()
    installation.end()


def test_the_public_file_server_reads_and_writes_in_the_workspace(real: Cell) -> None:
    installation, agent = real
    file = installation.workspace / "plain.txt"
    given: Message = {"path": str(file), "content": "plain"}
    done(agent.call("filesystem__write_file", given))
    assert file.read_text() == "plain"
    assert done(agent.call("filesystem__read_text_file", {"path": str(file)})) == "plain"
    moved: Message = {"source": str(file), "destination": str(installation.workspace / "moved.txt")}
    done(agent.call("filesystem__move_file", moved))
    assert not file.exists()
    assert installation.outcomes()[-1]["sandboxed"] is True


CALLS: dict[str, tuple[str, Message]] = {
    "memory": ("create_entities", {"entities": [ENTITY]}),
    "everything": ("echo", {"message": "hello"}),
    "time": ("get_current_time", {"timezone": "UTC"}),
    "filesystem": ("list_directory", {"path": "."}),
}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """Public servers, confined, under the shipped policy."""
    installation = Installation(tmp_path_factory.mktemp("shipped"))
    for name in CALLS:
        installation.add_server(name, COMMANDS[name](installation))
        use_default_sandbox(installation, name)
    installation.variables |= {"PATH": PATH, "SANDBOX_POLICY": "enforce"}
    agent = installation.start()
    agent.until_listed(*[f"{name}__{tool}" for name, (tool, _) in CALLS.items()])
    yield installation, agent
    installation.end()


@pytest.mark.parametrize("name", CALLS)
def test_a_public_server_works_in_its_sandbox_under_the_shipped_policy(
    shipped: Cell, name: str
) -> None:
    installation, agent = shipped
    tool, arguments = CALLS[name]
    done(agent.call(f"{name}__{tool}", arguments))
    assert installation.outcomes()[-1]["sandboxed"] is True


def test_the_memory_server_keeps_what_it_knows_where_no_call_and_no_other_server_reaches(
    shipped: Cell,
) -> None:
    installation, agent = shipped
    tool, arguments = CALLS["memory"]
    done(agent.call(f"memory__{tool}", arguments))
    file = installation.home / ".ironcurtain/memory/memory/memory.jsonl"
    assert "Ada" in file.read_text()
    agent.call("filesystem__read_text_file", {"path": str(file)})
    assert installation.last_decision() == ("deny", "structural-protected-path")
    again = installation.start(SERVER_FILTER="memory")
    assert "Ada" in done(again.call("read_graph"))


def test_the_public_git_server_commits_in_the_workspace(real: Cell) -> None:
    installation, agent = real
    repository = installation.workspace / "repo"
    (repository / "file.txt").write_text("content\n")
    where: Message = {"repo_path": str(repository)}
    done(agent.call("git__git_add", {**where, "files": ["file.txt"]}))
    done(agent.call("git__git_commit", {**where, "message": "confined"}))
    assert "confined" in done(agent.call("git__git_log", where))
    assert at(installation.outcomes()[-1], "sandboxed") is True
