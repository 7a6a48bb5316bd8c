"""The first session after `init --yes`, with servers of which some are known to nobody.

The servers of files, git and memory are the public ones, under names that say nothing. `editor` and
`tasks` list what two servers of the registries list for which there is no pack, and answer each
call. A thorough run has ten tasks, and so 200 calls; a daily one has two.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.confined_installation import PATH, remember_sandbox, require_sandbox
from tests.e2e.raw_client import Message, RawClient, texts
from tests.e2e.real_servers import npm_server, python_server, unconfined
from tests.e2e.servers import bash_shell
from tests.examples import THOROUGH
from tests.program import PROXY, ROOT

UNKNOWN: Final = Path(__file__).with_name("unknown_tools.json")
LISTED: Final = Path(bash_shell.__file__).with_name("listed.py")
ROUNDS: Final = 10 if THOROUGH else 2
FIRST: Final = {"editor": "get_text_file_contents", "tasks": "list_requests"}


class Newcomer:
    """Somebody with a project, a client and servers."""

    def __init__(self, root: Path, path: str, git: list[str]) -> None:
        self.git = git
        self.home, self.app = root / "home", root / "home/app"
        self.mailbox, self.errors = root / "mailbox", root / "errors.txt"
        self.environ = {
            "PATH": path,
            "HOME": str(self.home),
            "ESCALATION_DIR": str(self.mailbox),
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
        }
        self._make_project()
        self.cursor = self.home / ".cursor/mcp.json"
        self.cursor.parent.mkdir()
        inner = orjson.dumps({"mcpServers": self._servers()}, option=orjson.OPT_INDENT_2).decode()
        self.before = f"// my servers\n{inner}\n".encode()
        self.cursor.write_bytes(self.before)
        self.questions: list[str] = []
        self.failed: list[str] = []

    def _make_project(self) -> None:
        (self.app / "src").mkdir(parents=True)
        (self.app / "src/calc.py").write_text("def add(a, b):\n    return a - b\n")
        (self.app / ".env").write_text("TOKEN=not-a-real-token\n")
        (self.app / ".gitignore").write_text(".env\n")
        named = ["-c", "user.name=d", "-c", "user.email=d@example.com"]
        for words in (["init", "-qb", "main"], ["add", "-A"], [*named, "commit", "-qm", "Start"]):
            subprocess.run(["git", "-C", str(self.app), *words], check=True)
        for key in ("name", "email"):
            words = ["git", "-C", str(self.app), "config", f"user.{key}", "d@example.com"]
            subprocess.run(words, check=True)

    def _servers(self) -> dict[str, Json]:
        commands = {
            "one": npm_server("filesystem", str(self.app)),
            "two": [*self.git, "--repository", str(self.app)],
            "three": npm_server("memory"),
            **{name: [sys.executable, str(LISTED), str(UNKNOWN), name] for name in FIRST},
        }
        return {name: {"command": one[0], "args": [*one[1:]]} for name, one in commands.items()}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return program.run([*PROXY, *words], self.environ, self.app)

    # --- the session

    def work(self, session: Iterator[tuple[str, Message]]) -> None:
        """Make the calls, as an agent does."""
        client = RawClient(PROXY, self.environ, self.errors, self.app)
        with client:
            client.initialize()
            client.until_listed(
                *("one__read_file", "two__git_status", "three__read_graph"),
                *[f"{name}__{tool}" for name, tool in FIRST.items()],
            )
            for tool, given in session:
                self._call(client, tool, given)

    def _call(self, client: RawClient, tool: str, given: Message) -> None:
        call = client.start_call(tool, given)
        while not any(one.get("id") == call and "method" not in one for one in client.arrived):
            for file in self.mailbox.glob("request-*.json"):
                self._answer(orjson.loads(file.read_bytes()))
            client.wait(0.01)
        result = client.result(call)
        if result.get("isError"):
            self.failed.append(f"{tool}: {texts(result)}")

    def _answer(self, question: Message) -> None:
        """Approve, and remember the last of what is offered: the widest."""
        self.questions.append(f"{question['serverName']}/{question['toolName']}")
        offered = question.get("whitelistCandidates", [])  # a deletion is never remembered
        assert isinstance(offered, list)
        identifier = str(question["escalationId"])
        kind = ["--kind", str(len(offered))] if offered else []
        answered = self.run("approve", identifier, *kind)
        assert answered.returncode == 0, answered.stderr


def modules(app: str) -> Iterator[tuple[str, Message]]:
    """The calls: looked around, planned, the same kind of change again and again, and put away."""
    repository: Message = {"repo_path": app}
    request: Message = {"requestId": "req-1"}
    yield "one__list_allowed_directories", {}
    yield "one__directory_tree", {"path": app}
    yield "one__read_text_file", {"path": f"{app}/.env"}
    yield "three__read_graph", {}
    yield (
        "three__create_entities",
        {"entities": [{"name": "app", "entityType": "project", "observations": ["small"]}]},
    )
    yield "tasks__list_requests", {}
    plan: list[Json] = [{"title": f"Module {i}", "description": "Write it"} for i in range(ROUNDS)]
    yield "tasks__request_planning", {"originalRequest": "Write ten modules", "tasks": plan}
    yield "two__git_create_branch", {**repository, "branch_name": "modules"}
    yield "two__git_checkout", {**repository, "branch_name": "modules"}
    for number in range(ROUNDS):
        yield from one_task(app, number)
    yield "one__create_directory", {"path": f"{app}/docs"}
    yield "one__write_file", {"path": f"{app}/docs/a.md", "content": "# docs\n"}
    yield ("one__move_file", {"source": f"{app}/docs/a.md", "destination": f"{app}/docs/b.md"})
    yield "two__git_show", {**repository, "revision": "HEAD"}
    yield "three__search_nodes", {"query": "app"}
    yield "three__open_nodes", {"names": ["app"]}
    yield "two__git_reset", repository
    yield "tasks__approve_request_completion", request
    yield "tasks__update_task", {**request, "taskId": "task-1", "title": "Done"}
    yield "tasks__list_requests", {}
    yield "two__git_status", repository


def one_task(app: str, number: int) -> Iterator[tuple[str, Message]]:
    file, task = f"{app}/src/mod{number}.py", f"task-{number + 1}"
    named: Message = {"requestId": "req-1", "taskId": task}
    repository: Message = {"repo_path": app}
    yield "tasks__get_next_task", {"requestId": "req-1"}
    yield "one__list_directory", {"path": f"{app}/src"}
    yield "one__read_text_file", {"path": f"{app}/src/calc.py"}
    yield "one__search_files", {"path": app, "pattern": "**/*.py"}
    yield "one__write_file", {"path": file, "content": f"def f(a):\n    a - {number}\n"}
    yield ("one__edit_file", {"path": file, "edits": [{"oldText": "a -", "newText": "return a +"}]})
    yield (
        "editor__get_text_file_contents",
        {"files": [{"file_path": file, "ranges": [{"start": 1, "end": None}]}]},
    )
    patch: Message = {"start": 1, "contents": "def g(a):\n", "range_hash": "5d41402a"}
    yield (
        "editor__edit_text_file_contents",
        {"files": [{"path": file, "file_hash": "9b74c989", "patches": [patch]}]},
    )
    yield "one__read_multiple_files", {"paths": [file, f"{app}/src/calc.py"]}
    yield "two__git_status", repository
    yield "two__git_diff_unstaged", repository
    yield "two__git_add", {**repository, "files": [f"src/mod{number}.py"]}
    yield "two__git_diff_staged", repository
    yield "two__git_commit", {**repository, "message": f"Add module {number}"}
    yield "two__git_log", {**repository, "max_count": 3}
    yield "tasks__mark_task_done", {**named, "completedDetails": f"Wrote module {number}."}
    yield "tasks__approve_task_completion", named
    observed: list[Json] = [{"entityName": "app", "contents": [f"module {number} is there"]}]
    yield "three__add_observations", {"observations": observed}


READS_ENV: Final = "one/read_text_file"  # the person is there
TASKS: Final = [
    f"tasks/{name}"
    for name in ("list_requests", "request_planning", "get_next_task", "mark_task_done",
                 "approve_task_completion", "approve_request_completion", "update_task")
]  # fmt: skip
"""In the order in which they are used first."""


@pytest.mark.parametrize("is_confined", [True, False], ids=["in sandboxes", "without a sandbox"])
def test_a_first_session_asks_of_the_secret_and_without_a_sandbox_once_of_each_unknown_tool(
    tmp_path: Path, is_confined: bool
) -> None:
    if is_confined:
        require_sandbox()
    path = PATH if is_confined else os.environ["PATH"]
    git = python_server("git")
    if not is_confined:
        # Named as it is installed, so that its pack is found.
        named = tmp_path / "mcp-server-git"
        named.write_text(f'#!/bin/sh\nexec {shlex.join(unconfined(git))} "$@"\n')
        named.chmod(0o755)
        git = [str(named)]
    who = Newcomer(tmp_path, path, git)
    if is_confined:
        remember_sandbox(who.home)
    done = who.run("init", "--yes", "--seconds", "50")
    assert done.returncode == 0, done.stdout + done.stderr
    assert who.cursor.read_bytes() != who.before
    who.work(modules(str(who.app)))
    assert who.failed == []
    assert who.questions == ([READS_ENV] if is_confined else [READS_ENV, *TASKS])
    undone = who.run("init", "--undo")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert who.cursor.read_bytes() == who.before
