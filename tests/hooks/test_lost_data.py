"""Commands that have cost people their data, run by a hooked client: each comes back whole."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.e2e.confined_installation import PATH
from tests.hooks.hooked import HookedHome, as_claude, decision_in
from tests.program import PATIENCE
from tests.tables import table

LOSSES = table("hooks/commands.losses", dict[str, str])
HELD = table("hooks/commands.held", dict[str, str])
"""Those that a sandbox can hold, in an order in which each destroys something."""


def furnish(workspace: Path) -> None:
    def git(*words: str) -> None:
        config = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *config, *words], cwd=workspace, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (workspace / ".gitignore").write_text(".env\nsecrets.d\nbuild\n")
    for name in ("notes.txt", "plan.txt"):
        (workspace / name).write_text(f"{name}\n")
    git("add", ".")
    git("commit", "-qm", "first")
    (workspace / "notes.txt").write_text("not committed\n")
    git("stash")
    (workspace / "plan.txt").write_text("not committed, not stashed\n")
    git("worktree", "add", "-q", "-b", "other", "tree")
    (workspace / "tree/work.txt").write_text("of the worktree\n")
    for name in (
        "build/out",
        "more/x",
        "drafts/a.txt",
        "drafts/b.txt",
        "secrets.d/key",
        "mirror/one/two",
        "empty/.keep",
    ):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(f"{name}\n")
    (workspace / ".env").write_text("TOKEN=x\n")
    with sqlite3.connect(workspace / "data.sqlite") as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (1)")
    database.close()


def contents(workspace: Path) -> dict[str, bytes]:
    """Return all files but those of git, and what git says of its own."""
    files = {
        str(file.relative_to(workspace)): file.read_bytes()
        for file in workspace.rglob("*")
        if file.is_file() and ".git" not in file.parts
    }
    for words in (("status", "--short"), ("stash", "list"), ("worktree", "list"), ("log", "-1")):
        done = subprocess.run(["git", *words], cwd=workspace, capture_output=True, check=False)
        files[f"git {words[0]}"] = done.stdout
    return files


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_what_a_command_of_the_client_s_own_shell_destroyed_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = HookedHome(tmp_path)
    furnish(home.workspace)
    monkeypatch.chdir(home.workspace)
    try:
        for what, command in LOSSES.items():
            before = contents(home.workspace)
            call = home.call("Bash", {"command": command})
            assert decision_in(home.fire("PreToolUse", call).stdout) == "ask", what
            # The user said yes in the client's dialog.
            variables = {"PATH": os.environ["PATH"], "HOME": str(home.home)}
            subprocess.run(
                ["bash", "-c", command],
                cwd=home.workspace,
                env=variables,
                capture_output=True,
                check=False,
            )
            assert contents(home.workspace) != before, what
            home.fire("PostToolUse", {**call, "tool_response": {}})
            ended = home.outcomes()[-1]
            done = home.command("rollback", str(ended["requestId"]))
            assert done.returncode == 0, (what, done.stdout, done.stderr)
            assert contents(home.workspace) == before, what
        for command in ("rm -rf ~", "rm -rf ~/project", "mv ~/.bashrc /tmp/x", "rm -rf /"):
            assert home.decide("Bash", {"command": command}) in {"ask", "deny"}, command
    finally:
        home.end_session()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap")
def test_what_a_command_in_a_view_destroyed_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = HookedHome(tmp_path, path=PATH)
    furnish(home.workspace)
    monkeypatch.chdir(home.workspace)
    home.fire("SessionStart", {"source": "startup"})
    try:
        for what, command in {**HELD, "the project": "rm -rf $PWD/*"}.items():
            before = contents(home.workspace)
            call = home.held(command)
            home.start_command(as_claude(command)).communicate(timeout=PATIENCE)
            home.fire("PostToolUse", {**call, "tool_response": {}})
            assert contents(home.workspace) != before, what
            done = home.command("rollback", str(home.outcomes()[-1]["requestId"]))
            assert done.returncode == 0, (what, done.stderr)
            assert contents(home.workspace) == before, what
    finally:
        home.end_session()


HOLDER = """
import sqlite3
database = sqlite3.connect("held.sqlite")
database.execute("pragma journal_mode = wal")
database.execute("create table t (x)")
database.execute("insert into t values (1)")
database.commit()
print("open", flush=True)
input()
database.close()
"""
DROP = "import sqlite3; sqlite3.connect('held.sqlite').execute('drop table t')"


def rows(workspace: Path, root: Path) -> list[tuple[int]]:
    """Return what the files hold, by a copy: to look at them would change them."""
    place = Path(tempfile.mkdtemp(dir=root))
    for one in ("held.sqlite", "held.sqlite-wal"):
        if (workspace / one).exists():
            subprocess.run(["cp", workspace / one, place], check=True)
    with closing(sqlite3.connect(place / "held.sqlite")) as database:
        found: list[tuple[int]] = database.execute("select x from t").fetchall()
    return found


def test_a_program_that_has_a_database_open_does_not_undo_its_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end it would write its own journal, with the lost table, into the database."""
    home = HookedHome(tmp_path)
    monkeypatch.chdir(home.workspace)
    words = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(words, cwd=home.workspace, stdin=PIPE, stdout=PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        try:
            call = home.call("Bash", {"command": f'python3 -c "{DROP}"'})
            home.fire("PreToolUse", call)
            subprocess.run([sys.executable, "-c", DROP], cwd=home.workspace, check=True)
            home.fire("PostToolUse", {**call, "tool_response": {}})
            with pytest.raises(sqlite3.OperationalError):
                rows(home.workspace, tmp_path)
            undone = home.command("rollback", str(home.outcomes()[-1]["requestId"]))
            assert undone.returncode == 0, undone.stderr
            assert rows(home.workspace, tmp_path) == [(1,)]
            holder.communicate(b"\n", timeout=PATIENCE)
            assert rows(home.workspace, tmp_path) == [(1,)]
        finally:
            home.end_session()
