"""A developer's machine after `init --preset coding`: real tools, a real repository, a person.

The installation is written by `init` alone. The agent speaks MCP over stdio; the person answers at
the mailbox with the commands of the product.
"""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import orjson

from tests import program
from tests.e2e.confined_installation import PATH, remember_sandbox
from tests.e2e.installation import ROOT
from tests.e2e.package_registry import Registry, make_repository
from tests.e2e.process_tree import MARK
from tests.e2e.raw_client import Message, RawClient, texts
from tests.e2e.real_servers import npm_server, python_server
from tests.e2e.servers import bash_shell
from tests.program import PATIENCE, PROXY

CACHES: Final = frozenset({"__pycache__", "node_modules"})
"""Directories that the timeline leaves alone."""

SERVERS: Final[Mapping[str, str]] = {
    "bash": "run_command",
    "fetch": "fetch",
    "files": "write_file",
    "git": "git_add",
}
"""The servers of the session, and of each a tool that it lists."""

Picture: TypeAlias = Mapping[str, tuple[int, int, bytes]]
"""By path below a directory: kind, mode and content, of a link where it leads."""

PROJECT: Final[Mapping[str, str]] = {
    "calc/__init__.py": "",
    "calc/add.py": "def add(a, b):\n    return a - b\n",
    "tests/test_add.py": "import unittest\nfrom calc.add import add\n\n\n"
    "class AddTest(unittest.TestCase):\n"
    "    def test_adds(self):\n        self.assertEqual(add(2, 3), 5)\n",
    "Makefile": "build:\n\tmkdir -p out && cp calc/add.py out/\n\n"
    "test:\n\tpython3 -m unittest -q tests.test_add\n\nclean:\n\trm -rf out\n",
    "package.json": '{"name": "calc", "version": "1.0.0", "scripts": {"test": "make test", '
    '"build": "make build"}}\n',
    ".gitignore": "out/\n.env\n*.log\n",
    "README.md": "# calc\n",
}


def picture(directory: Path) -> Picture:
    """All of a directory, `.git` included, as two can be compared.

    Of the index what git shows of it: where a call wrote it, git is to look again at each file of
    which it newly says a time, and its caches are left out.
    """
    entries = ["git", "-C", str(directory), "ls-files", "--stage", "-v", "-z"]
    listed = subprocess.run(entries, check=True, capture_output=True).stdout
    found: dict[str, tuple[int, int, bytes]] = {}
    for place, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name not in CACHES]
        for name in (*directories, *files):
            path = Path(place, name)
            status = path.lstat()
            kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
            if path == directory / ".git/index":
                what = listed
            elif stat.S_ISREG(status.st_mode):
                what = path.read_bytes()
            else:
                what = bytes(path.readlink()) if path.is_symlink() else b""
            found[str(path.relative_to(directory))] = (kind, mode, what)
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """What became of one call."""

    result: Message
    question: Message | None
    """What a person was asked; None: nobody was."""
    record: Message

    @property
    def said(self) -> str:
        """What the agent reads."""
        return "\n".join(texts(self.result))

    @property
    def call(self) -> str:
        """The id for `rollback`."""
        return str(self.record["requestId"])


class CodingSession:
    """One developer, one repository, one session."""

    def __init__(self, root: Path, registry: Registry, servers: Collection[str] = SERVERS) -> None:
        self.root = root
        self.chosen = servers
        self.registry = registry
        self.home = root / "home"
        self.workspace = self.home / "calc"
        self.mailbox = root / "mailbox"
        self.bare = make_repository(registry.repositories, "calc.git")
        self.remote = f"{registry.url}/calc.git"
        self.workspace.mkdir(parents=True)
        remember_sandbox(self.home)
        make_project(self.workspace, self.remote)
        (root / "elsewhere").mkdir()
        (root / "tmp").mkdir()
        self.environment = {
            "PATH": PATH,
            "HOME": str(self.home),
            "TMPDIR": str(root / "tmp"),
            "LANG": "C.UTF-8",
            "ESCALATION_DIR": str(self.mailbox),
            MARK: str(root),
        }
        self._client: RawClient | None = None

    def servers(self) -> Path:
        """A client's file, as a person has one."""
        bash = [sys.executable, str(bash_shell.__file__)]
        commands = {
            "files": npm_server("filesystem", str(self.workspace)),
            "git": python_server("git"),
            "fetch": python_server("fetch", "--ignore-robots-txt", "--allow-private-ips"),
            "bash": bash,
        }
        entries = {
            name: {"command": words[0], "args": words[1:], "env": {MARK: str(self.root)}}
            for name, words in commands.items()
            if name in self.chosen
        }
        file = self.home / "client.json"
        file.write_bytes(orjson.dumps({"mcpServers": entries}))
        return file

    def set_up(self) -> subprocess.CompletedProcess[str]:
        """What a person runs before the first session."""
        where = ["--home", str(self.home), "--workspace", str(self.workspace)]
        words = ["init", "--preset", "coding", "--yes", *where, "--servers", str(self.servers())]
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the product, as its user gives it."""
        environment = {**self.environment, "PYTHONPATH": str(ROOT)}
        return program.run([*PROXY, *words], environment, self.workspace)

    @property
    def client(self) -> RawClient:
        """The agent's connection, made with its first use."""
        if self._client is None:
            errors = self.root / "stderr.txt"
            environment = {**self.environment, "PYTHONPATH": str(ROOT)}
            self._client = RawClient(PROXY, environment, errors, self.root / "elsewhere")
            self._client.initialize()
            # A busy machine may need longer for a server than the first list waits for it.
            self._client.until_listed(*(f"{name}__{SERVERS[name]}" for name in self.chosen))
        return self._client

    def end(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()

    # --- what the agent does

    def step(self, tool: str, given: Message, *answer: str) -> Step:
        """One call, and how a person answers if asked: `approve`, or `deny`, with its options."""
        done = len(self.outcomes())
        call = self.client.start_call(tool, given)
        question = self._question_or_answer(call)
        if question is not None:
            first, *options = answer or ("deny",)
            answered = self.run(first, str(question["escalationId"])[:8], *options)
            assert answered.returncode == 0, answered.stdout + answered.stderr
        result = self.client.result(call)
        records = self.outcomes()[done:]
        assert len(records) == 1, records
        return Step(result, question, records[0])

    def shell(self, command: str, *answer: str) -> Step:
        """A shell command in the workspace."""
        return self.step("bash__run_command", {"command": command}, *answer)

    def _question_or_answer(self, call: int) -> Message | None:
        def is_answer(message: Message) -> bool:
            return message.get("id") == call and "method" not in message

        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if any(map(is_answer, self.client.arrived)):
                return None
            for file in self.mailbox.glob("request-*.json"):
                found = orjson.loads(file.read_bytes())
                assert isinstance(found, dict)
                return found
            self.client.wait(0.01)
        raise AssertionError(f"no answer and no question; {self.client.errors.read_text()[-2000:]}")

    # --- what is left behind

    def outcomes(self) -> list[Message]:
        """The records of calls that have ended."""
        log = self.home / ".ironcurtain/audit.jsonl"
        lines = log.read_bytes().splitlines() if log.exists() else []
        records = [orjson.loads(line) for line in lines]
        return [record for record in records if record.get("phase") != "intent"]

    def git(self, *words: str) -> str:
        """Git of the developer, outside the sandbox."""
        return git(self.workspace, *words)


def make_project(place: Path, remote: str) -> None:
    """A repository with a history, two branches and a remote."""
    for name, content in PROJECT.items():
        file = place / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    git(place, "init", "-q", "-b", "main")
    for key, value in (("user.name", "Dev"), ("user.email", "dev@example.com")):
        git(place, "config", key, value)
    git(place, "add", ".")
    git(place, "commit", "-qm", "Start")
    git(place, "branch", "old-idea")
    (place / "README.md").write_text("# calc\n\nAdds numbers.\n")
    git(place, "commit", "-qam", "Describe")
    git(place, "remote", "add", "origin", remote)
    git(place, "checkout", "-qb", "fix-add")
    (place / ".env").write_text("TOKEN=not-a-real-token\n")


def git(place: Path, *words: str) -> str:
    """Run git. Returns what it printed."""
    given = ["git", "-C", str(place), *words]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        given, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
