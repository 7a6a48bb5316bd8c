"""A recorded hour of work with the preset `coding`: few questions, and none of them missing.

Three figures stand together: a proxy that asks nothing has few questions, and one that asks about
everything misses none. The tools are stand-ins that answer; the sandbox, the timeline, the policy
and what is remembered are real.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import orjson
import pytest

from ironcurtain_proxy import Approved, Declined, Escalation, ToolCallRequest, TrustedProcess
from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.confined_installation import PATH, remember_sandbox
from tests.program import PROXY

pytestmark = pytest.mark.usefixtures("sandbox")

RECORDED: Final = Path(__file__).with_name("recorded_session.jsonl")
LEAVES: Final = re.compile(r"\b(gh|curl|pip install|git (push|fetch))\b")
MOST_QUESTIONS_PER_100: Final = 14
"""Of these 60 calls 8 are asked about, and each has to be: the first push and the first fetch of
the branch, a pull request made and looked at, one site, and three refusals that would have left the
machine. Without containment it is 29. Recorded work at large has far fewer calls that leave."""

SERVER: Final = r"""
import json, sys
S = {"type": "string"}
def tool(name, description, **properties):
    required = [n for n in properties if n not in ("cwd", "dryRun")]
    return {"name": name, "description": description,
            "inputSchema": {"type": "object", "properties": properties, "required": required}}
TOOLS = {
    "shell": [tool("run_command", "Run a command in a shell.", command=S, cwd=S)],
    "fetch": [tool("fetch", "Fetches a URL from the internet.", url={**S, "format": "uri"})],
    "filesystem": [
        tool("read_text_file", "Reads a file.", path=S),
        tool("search_files", "Searches files.", path=S, pattern=S),
        tool("write_file", "Writes a file.", path=S, content=S),
        tool("edit_file", "Edits a file.", path=S, edits={"type": "array", "items": {}},
             dryRun={"type": "boolean"}),
    ],
}[sys.argv[1]]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        continue
    result = {"content": [{"type": "text", "text": "ok"}]}
    if m["method"] == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "x", "version": "1"}}
    elif m["method"] == "tools/list":
        result = {"tools": TOOLS}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"""


@dataclass(slots=True)
class Played:
    """What became of the recorded calls."""

    calls: int = 0
    questions: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Refused then; now neither shown nor undoable."""
    slipped: list[str] = field(default_factory=list)
    """Left the machine unasked, with nothing that a person had approved."""


def as_call(row: Mapping[str, Json], workspace: Path) -> tuple[str, str, dict[str, Json]]:
    given = row["input"]
    assert isinstance(given, dict)
    path = str(workspace / str(given.get("file_path", given.get("path", ""))))
    match row["tool"]:
        case "Read":
            return "filesystem", "read_text_file", {"path": path}
        case "Grep":
            return "filesystem", "search_files", {"path": path, "pattern": given["pattern"]}
        case "Edit":
            return "filesystem", "edit_file", {"path": path, "edits": []}
        case "Write":
            return "filesystem", "write_file", {"path": path, "content": "x"}
        case "WebFetch":
            return "fetch", "fetch", {"url": given["url"]}
        case _:
            return "shell", "run_command", {"command": given["command"], "cwd": str(workspace)}


def make_project(workspace: Path) -> None:
    for name, text in (
        ("README.md", "# Invoices\n"),
        ("src/money.py", "ROUND_HALF_UP = 1\n"),
        ("src/report.py", "from src import money\n"),
        ("Makefile", "test:\n\tpython3 -m pytest\nlint:\n\ttrue\nbuild:\n\ttrue\n"),
        ("package.json", '{"scripts": {"build": "make build", "test": "make test"}}'),
    ):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    named = ["-c", "user.name=d", "-c", "user.email=d@example.com"]
    origin = "https://git.example.com/team/invoices.git"
    for words in (
        ["init", "-q", "-b", "cents"],
        ["remote", "add", "origin", origin],
        ["add", "-A"],
        [*named, "commit", "-qm", "Start"],
        ["config", "branch.cents.remote", "origin"],
        ["config", "branch.cents.merge", "refs/heads/cents"],
    ):
        subprocess.run(["git", "-C", str(workspace), *words], check=True)


def set_up(home: Path, workspace: Path) -> None:
    remember_sandbox(home)
    server, client = home / "server.py", home / "client.json"
    server.write_text(SERVER)
    entries = {
        name: {"command": sys.executable, "args": [str(server), name]}
        for name in ("filesystem", "fetch", "shell")
    }
    client.write_bytes(orjson.dumps({"mcpServers": entries}))
    where = ["--home", str(home), "--workspace", str(workspace), "--servers", str(client)]
    command = [*PROXY, "init", "--preset", "coding", "--yes", *where]
    done = program.run(command, {**os.environ, "PATH": PATH, "HOME": str(home)}, workspace)
    assert done.returncode == 0, done.stdout + done.stderr


async def play(home: Path, workspace: Path) -> Played:
    played, shown, refuses = Played(), False, False

    def ask(escalation: Escalation) -> Approved | Declined:
        nonlocal shown
        shown = True
        if refuses:
            return Declined()
        return Approved(remember=0 if escalation.candidates else None)

    environ = {"PATH": PATH, "HOME": str(home), "ALLOWED_DIRECTORY": str(workspace)}
    async with TrustedProcess(environ, on_escalation=ask) as kernel:
        for line in RECORDED.read_bytes().splitlines():
            row = orjson.loads(line)
            if "message" in row:
                kernel.set_last_user_message(row["message"])
            server, tool, given = as_call(row, workspace)
            what = str(given.get("command", given.get("url", tool)))
            shown, refuses = False, bool(row.get("refused"))
            request = ToolCallRequest(server=server, tool=tool, arguments=given)
            answer = await kernel.handle_tool_call(request)
            by = last_settled_by(home)
            leaves = server == "fetch" or bool(LEAVES.search(what))
            played.calls += 1
            if shown:
                played.questions.append(what)
            held = by == "containment" and not leaves
            if refuses and not (shown or answer.status == "denied" or held):
                played.lost.append(what)
            if leaves and not (shown or answer.status == "denied" or by.startswith("grant:")):
                played.slipped.append(what)
    return played


def last_settled_by(home: Path) -> str:
    lines = (home / ".ironcurtain/audit.jsonl").read_bytes().splitlines()
    records = [orjson.loads(line) for line in lines[-2:]]
    return str([one for one in records if one.get("phase") != "intent"][-1]["decidedBy"])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    home = tmp_path_factory.mktemp("home")
    workspace = home / "invoices"
    make_project(workspace)
    set_up(home, workspace)
    return anyio.run(play, home, workspace)


def test_a_session_of_work_meets_few_questions(played: Played) -> None:
    assert played.calls == 60
    per_100 = 100 * len(played.questions) / played.calls
    assert per_100 <= MOST_QUESTIONS_PER_100, played.questions


def test_every_refused_call_is_shown_or_can_be_taken_back(played: Played) -> None:
    assert played.lost == []


def test_nothing_leaves_that_nobody_was_asked_about(played: Played) -> None:
    assert played.slipped == []
    assert any("git push" in what for what in played.questions)
