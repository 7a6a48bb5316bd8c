"""`init` as a person runs it: clients are found, changed, and put back."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli.init_dialogue import write_files
from ironcurtain_proxy.config.clients.plan import only_one
from ironcurtain_proxy.config.presets import PlannedFile
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from tests import program
from tests.config.presets.test_presets import SERVER
from tests.e2e.confined_installation import PATH, remember_sandbox, require_sandbox
from tests.e2e.raw_client import RawClient
from tests.program import PATIENCE, PROXY

SILENT = "import sys, pathlib; pathlib.Path(sys.argv[1]).touch(); sys.stdin.read()"


class Machine:
    """A home with a project and clients."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "home"
        self.workspace = self.home / "project"
        (self.workspace / ".git").mkdir(parents=True)
        (self.workspace / "src").mkdir()
        (root / "server.py").write_text(SERVER)
        (root / "silent.py").write_text(SILENT)
        self.cursor = self.home / ".cursor/mcp.json"
        self.codex = self.home / ".codex/config.toml"
        self.variables: dict[str, str] = {}

    def server(self, kind: str) -> dict[str, Json]:
        return {"command": sys.executable, "args": [str(self.root / "server.py"), kind]}

    def silent(self) -> dict[str, Json]:
        args = [str(self.root / "silent.py"), str(self.root / "started")]
        return {"command": sys.executable, "args": [*args]}

    def give_cursor(self, **servers: Json) -> bytes:
        self.cursor.parent.mkdir(parents=True, exist_ok=True)
        inner = orjson.dumps({"mcpServers": {**servers}}, option=orjson.OPT_INDENT_2).decode()
        self.cursor.write_text(f"// mine\n{inner}\n")
        return self.cursor.read_bytes()

    def give_codex(self) -> bytes:
        self.codex.parent.mkdir(parents=True, exist_ok=True)
        self.codex.write_text(
            f'[mcp_servers.pages]\ncommand = "{sys.executable}"\n'
            f'args = ["{self.root / "server.py"}", "fetch"]\n[tui]\n'
        )
        return self.codex.read_bytes()

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home), **self.variables}

    def run(self, *arguments: str, cwd: str = "src") -> tuple[int, str, str]:
        words = [*PROXY, "init", *arguments]
        done = program.run(words, self.environ, self.workspace / cwd)
        return done.returncode, done.stdout, done.stderr

    def confine(self) -> None:
        """Let servers run in sandboxes, or skip the test."""
        require_sandbox()
        remember_sandbox(self.home)
        self.variables["PATH"] = PATH

    def files(self) -> dict[str, bytes]:
        return {
            str(file.relative_to(self.home)): file.read_bytes()
            for file in self.home.rglob("*")
            if file.is_file()
        }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def started_by(value: Mapping[str, Json], machine: Machine) -> RawClient:
    """The proxy, as a client starts it from its entry."""
    env, args = value["env"], value["args"]
    assert isinstance(env, dict)
    assert isinstance(args, list)
    words = [str(value["command"]), *map(str, args)]
    environ = {**machine.environ, **{name: str(text) for name, text in env.items()}}
    return RawClient(words, environ, machine.root / "stderr", machine.root)


def test_clients_start_their_servers_through_the_proxy_until_it_is_undone(machine: Machine) -> None:
    before = machine.give_cursor(
        files=machine.server("files"), off={"command": "x", "disabled": True}
    )
    codex = machine.give_codex()
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    assert "Restart Cursor, Codex" in said
    assert "ironcurtain-proxy review" in said
    assert "doctor:" in said
    assert "check --live: 0 errors" in said
    config = orjson.loads((machine.home / ".ironcurtain/config.json").read_bytes())
    assert config["allowedDirectory"] == str(machine.workspace)
    text = machine.cursor.read_text()
    assert text.startswith("// mine\n")
    servers = orjson.loads(text.removeprefix("// mine\n"))["mcpServers"]
    assert servers["off"] == {"command": "x", "disabled": True}
    entry = servers["ironcurtain"]
    assert Path(entry["command"]).is_absolute()
    with started_by(entry, machine) as client:
        client.initialize()
        client.until_listed("read_doc")
        tools = client.tool_names()
    assert "fetch" not in tools

    code, said, _ = machine.run("--yes")
    assert code == 0
    assert "nothing to do" in said
    code, said, _ = machine.run("--undo")
    assert code == 0
    assert (machine.cursor.read_bytes(), machine.codex.read_bytes()) == (before, codex)
    code, said, _ = machine.run("--undo")
    assert "nothing to undo" in said


def test_a_server_that_does_not_answer_stays_where_it_is(machine: Machine) -> None:
    machine.give_cursor(files=machine.server("files"), silent=machine.silent())
    code, said, _ = machine.run("--yes", "--seconds", "8", "--json")
    answer = orjson.loads(said)
    assert code == 1
    servers = orjson.loads(machine.cursor.read_text().removeprefix("// mine\n"))["mcpServers"]
    assert servers.keys() == {"ironcurtain", "silent"}
    assert answer["ok"] is False
    assert answer["changed"] == [
        {"file": str(machine.cursor), "client": "cursor", "servers": ["files"]}
    ]
    assert answer["check"]["problems"] is not None


def test_without_a_terminal_it_says_what_to_pass(machine: Machine) -> None:
    machine.give_cursor(files=machine.server("files"))
    before = machine.files()
    code, _, faults = machine.run()
    assert code == 2
    assert "--yes" in faults
    assert "--dry-run" in faults
    assert machine.files() == before


def test_a_dry_run_shows_the_difference_without_secrets_and_changes_nothing(
    machine: Machine,
) -> None:
    secret: dict[str, Json] = {"TOKEN": 'ghp_"0123456789'}
    machine.give_cursor(files={**machine.server("files"), "env": secret})
    before = machine.files()
    code, said, _ = machine.run("--dry-run")
    assert code == 0
    assert "--- ~/.cursor/mcp.json" in said
    assert '+    "ironcurtain": {' in said
    assert "0123456789" not in said
    assert "[redacted]" in said
    assert "***" not in said, "one mask for all that is left out"
    assert machine.files() == before


def test_files_that_cannot_be_written_leave_the_clients_as_they_were_and_say_so() -> None:
    full = PlannedFile(Path("/dev/null/policy.json"), b"{}", None, "new")
    with pytest.raises(ConfigurationError, match="no client's file was changed; run init again"):
        write_files([full], print, force=False)


def test_the_difference_of_a_second_run_names_the_servers_that_are_behind_the_proxy(
    machine: Machine,
) -> None:
    machine.give_cursor(first_server=machine.server("files"))
    assert machine.run("--yes")[0] == 0
    text = machine.cursor.read_text().replace(
        '"mcpServers": {', '"mcpServers": {"second": {"command": "true"}, ', 1
    )
    machine.cursor.write_text(text)
    code, said, faults = machine.run("--dry-run")
    assert code == 0, faults
    assert "first_server,second" in said


def test_a_machine_without_servers_is_told_what_to_name(machine: Machine) -> None:
    machine.give_cursor(off={"command": "x", "disabled": True})
    code, said, _ = machine.run("--yes")
    # What has no servers can have hooks all the same.
    assert code == 0
    assert "switched off" in said
    assert "--from" in said
    assert "cursor: its hooks are in" in said


def test_the_home_directory_is_no_workspace(machine: Machine) -> None:
    code, _, faults = machine.run("--yes", cwd="..")
    assert code == 2
    assert "--workspace" in faults


@pytest.mark.parametrize(
    ("place", "why"),
    [("", "too much for an agent"), ("/", "too much for an agent"), ("none", "is no directory")],
)
def test_a_workspace_that_is_no_place_for_an_agent_is_refused_although_it_was_named(
    machine: Machine, place: str, why: str
) -> None:
    before = machine.files()
    code, _, faults = machine.run("--yes", "--workspace", str(machine.home / place))
    assert (code, machine.files()) == (2, before)
    assert why in faults
    assert "--workspace" in faults


def test_a_key_that_stands_twice_is_named(machine: Machine) -> None:
    machine.cursor.parent.mkdir(exist_ok=True)
    machine.cursor.write_text('{"mcpServers": {"twice": {}, "twice": {}}}')
    _, said, _ = machine.run("--dry-run")
    assert 'a key stands twice in an object: "twice"' in said


@contextmanager
def interruptible() -> Iterator[None]:
    """A shell that runs the tests in the background has SIGINT ignored, by all children too."""
    formerly = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, formerly)


@contextmanager
def terminal(
    machine: Machine, command: Sequence[str] = ()
) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    ours, theirs = pty.openpty()
    with interruptible():
        process = subprocess.Popen(
            [*(command or program.for_others()), "init", "--seconds", "40"],
            env=machine.environ, cwd=machine.workspace, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
    os.close(theirs)
    try:
        yield ours, process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(descriptor: int, word: str) -> str:
    said = b""
    while word.encode() not in said:
        said += os.read(descriptor, 4096)
    return said.decode()


def test_every_step_is_asked_about_and_no_changes_nothing(machine: Machine) -> None:
    machine.give_cursor(files=machine.server("files"))
    before = machine.cursor.read_bytes()
    with terminal(machine) as (screen, process):
        read_until(screen, "(s asks before each step) [Y/n/s]")
        os.write(screen, b"s\n")
        read_until(screen, "behind the proxy? [Y/n]")
        os.write(screen, b"\n")
        read_until(screen, "Start 1 server now")
        os.write(screen, b"what\n")
        read_until(screen, "Start 1 server now")
        os.write(screen, b"y\n")
        said = read_until(screen, "[Y/n/d]")
        assert "works on the files that it is given" in said
        os.write(screen, b"d\n")
        assert '+    "ironcurtain": {' in read_until(screen, "[Y/n/d]")
        os.write(screen, b"n\n")
        assert "nothing was changed" in read_until(screen, "Put our hooks first")
        os.write(screen, b"n\n")
        assert process.wait(PATIENCE) == 1
    assert machine.cursor.read_bytes() == before
    assert not (machine.home / ".ironcurtain/config.json").exists()


def test_an_interruption_while_servers_are_read_changes_nothing(machine: Machine) -> None:
    before = machine.give_cursor(silent=machine.silent())
    with interruptible():
        process = subprocess.Popen(
            [*PROXY, "init", "--yes", "--seconds", "50"], env=machine.environ,
            cwd=machine.workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if b"reading the tools" in line:
            break
    process.send_signal(signal.SIGINT)
    _, faults = process.communicate(timeout=PATIENCE)
    assert faults.decode().splitlines()[-1] == "ironcurtain-proxy: stopped: nothing was changed"
    assert process.returncode == 130
    assert machine.cursor.read_bytes() == before
    assert not (machine.home / ".ironcurtain/config.json").exists()


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_ctrl_c_at_a_question_says_that_nothing_was_changed(machine: Machine, steps: int) -> None:
    before = machine.give_cursor(files=machine.server("files"))
    with terminal(machine, PROXY) as (screen, process):
        for answer in (b"s\n", b"\n", b"y\n")[:steps]:
            read_until(screen, "[Y/n")
            os.write(screen, answer)
        read_until(screen, "[Y/n")
        process.send_signal(signal.SIGINT)
        said = read_until(screen, "changed\r\n")
        assert "ironcurtain-proxy: stopped: nothing was changed" in said
        assert process.wait(PATIENCE) == 130
    assert machine.cursor.read_bytes() == before
    assert not (machine.home / ".ironcurtain/config.json").exists()


def test_one_answer_accepts_all_steps(machine: Machine) -> None:
    machine.give_cursor(files=machine.server("files"))
    machine.give_codex()
    with terminal(machine) as (screen, process):
        said = read_until(screen, "[Y/n/s]")
        assert "Put 2 servers of 2 files behind the proxy" in said
        os.write(screen, b"\n")
        said = read_until(screen, "takes everything back.)")
        assert process.wait(PATIENCE) == 0
    assert "[Y" not in said
    assert (
        "All 2 servers are protected.\nHeld by the policy alone, in no sandbox: "
        in said.replace("\r", "")
    )


def test_our_own_shell_takes_the_place_of_a_server_only_if_a_person_says_so(
    machine: Machine,
) -> None:
    machine.confine()
    before = machine.give_cursor(run=machine.server("shell"), files=machine.server("files"))
    with terminal(machine) as (screen, process):
        read_until(screen, "[Y/n/s]")
        os.write(screen, b"\n")
        said = read_until(screen, "[B/i/n]")
        assert "run runs commands. Our own shell gives each command a view" in said
        os.write(screen, b"i\n")
        said = read_until(screen, "takes everything back.)")
        assert process.wait(PATIENCE) == 0
    assert "All 2 servers are protected." in said
    assert "Our own shell stands in place of run, as shell." in said
    state = machine.home / ".ironcurtain"
    assert orjson.loads((state / "mcp-servers.json").read_bytes()).keys() == {"shell", "files"}
    assert '"SERVER_FILTER": "shell,files"' in machine.cursor.read_text()
    assert machine.run("--undo")[0] == 0
    assert machine.cursor.read_bytes() == before


def test_our_own_shell_stands_beside_a_server_that_runs_commands_and_works_unasked(
    machine: Machine,
) -> None:
    machine.confine()
    before = machine.give_cursor(run=machine.server("shell"), files=machine.server("files"))
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    assert "All 2 servers are protected.\nOur own shell stands beside them, as shell." in said
    servers = orjson.loads((machine.home / ".ironcurtain/mcp-servers.json").read_bytes())
    assert servers["shell"] == {"builtin": "shell"}
    assert servers.keys() == {"run", "files", "shell"}
    text = machine.cursor.read_text()
    assert "builtin" not in text
    entry = orjson.loads(text.removeprefix("// mine\n"))["mcpServers"]["ironcurtain"]
    with started_by(entry, machine) as client:
        client.initialize()
        client.until_listed("shell__run_command", "run__run_command")
        client.call("shell__run_command", {"command": "echo ours > made"})
    assert (machine.workspace / "made").read_text() == "ours\n"

    assert "nothing to do" in machine.run("--yes")[1]
    assert machine.run("--undo")[0] == 0
    assert machine.cursor.read_bytes() == before


FOLDER = """
import os, pathlib, sys
place = pathlib.Path(os.environ["HOME"], ".tool-of-test")
place.mkdir(exist_ok=True)
place.joinpath("settings").write_text("x")
"""
DEAD = """
import sys
sys.stderr.write('throw err\\nError: Cannot find the database\\n    at x\\n')
sys.stderr.write('\\nNode.js v22.23.3\\n')
sys.exit(1)
"""
ELSEWHERE = "import os; open(os.path.join(os.environ['HOME'], 'Documents/tasks.json'), 'w')\n"


def test_the_last_words_name_each_server_that_is_not_protected_with_reason_and_next_step(
    machine: Machine,
) -> None:
    machine.confine()
    scripts = {"folder": FOLDER + SERVER, "dead": DEAD, "elsewhere": ELSEWHERE}
    for name, script in scripts.items():
        (machine.root / f"{name}.py").write_text(script)
    (machine.home / "Documents").mkdir()
    (machine.home / "Documents" / "taxes").symlink_to("/etc/hostname")

    def by(name: str, *words: str) -> dict[str, Json]:
        return {"command": sys.executable, "args": [str(machine.root / f"{name}.py"), *words]}

    machine.give_cursor(
        **{"scope/folder": by("folder", "files")},
        files={**machine.server("files"), "env": {"API_KEY": "sk-secret-one"}},
        dead=by("dead", "--api-key=sk-secret-two", "postgres://me:sk-secret-three@h/db"),
        elsewhere=by("elsewhere"),
        off={"command": "x", "disabled": True},
        limited={"command": "x", "disabledTools": ["a"]},
    )
    code, said, faults = machine.run("--yes")
    assert code == 1, said + faults
    assert "sk-secret" not in said + faults
    assert "scope/folder (as scope-folder)" in said
    assert "scope-folder keeps files in ~/.tool-of-test" in said
    assert "2 of 5 servers protected. NOT protected:" in said
    ending = said.partition("NOT protected:")[2]
    assert "dead (Cursor): it does not start: it exited with status 1" in ending
    assert 'said last: "Error: Cannot find the database"' in ending
    documents = machine.home / "Documents"
    assert f"which does not let it write {documents}/tasks.json" in ending
    assert f'next: add "sandbox": {{"filesystem": {{"allowWrite": ["{documents}"]}}}}' in ending
    assert 'limited (Cursor): "disabledTools" limits its tools there' in ending
    assert "off" not in ending.split()
    assert "Restart Cursor: from then on every tool call to the protected servers" in ending
    assert (said + faults).count("Cannot find the database") == 1, "the reason is said once"
    assert not [*machine.home.glob(".tool-of-test/*")]
    servers = orjson.loads((machine.home / ".ironcurtain/mcp-servers.json").read_bytes())
    assert servers["scope-folder"]["sandbox"] == {"filesystem": {"private": ["~/.tool-of-test"]}}


def test_a_server_that_only_its_sandbox_stops_is_said_to_start_outside(machine: Machine) -> None:
    machine.confine()
    # It finds out by itself, and says nothing that tells why.
    script = "import os\nif 'bwrap' in open('/proc/1/cmdline').read():\n    os._exit(3)\n"
    (machine.root / "picky.py").write_text(script + SERVER)
    args: list[Json] = [str(machine.root / "picky.py"), "files"]
    more: list[Json] = [*args, "."]
    machine.give_cursor(
        picky={"command": sys.executable, "args": args},
        choosy={"command": sys.executable, "args": more},
    )
    shared = {"mcpServers": {"shared": {"command": sys.executable, "args": [*args, "."]}}}
    (machine.workspace / ".mcp.json").write_bytes(orjson.dumps(shared))
    code, said, faults = machine.run("--yes")
    assert code == 1, said + faults
    assert "picky (Cursor): it starts outside a sandbox, and not in one: it exited with" in said
    assert "choosy (Cursor): it starts outside a sandbox, and not in one: it exited with" in said
    assert "0 of 3 servers protected" in said
    # A repository's program is not started without a sandbox, so nothing is known of that.
    assert "shared (Claude Code): it does not start in its sandbox: it exited" in said


def test_what_only_the_terminal_finds_starts_under_a_client_with_a_bare_path(
    machine: Machine,
) -> None:
    programs = machine.home / ".nvm/versions/node/v1/bin"
    programs.mkdir(parents=True)
    (programs / "own-node").symlink_to(sys.executable)
    launcher = programs / "my-server"
    launcher.write_text(f"#!/usr/bin/env own-node\nimport sys\nsys.argv[1:] = ['files']\n{SERVER}")
    launcher.chmod(0o755)
    (programs / "srt").write_text("#!/bin/sh\nexit 1\n")
    (programs / "srt").chmod(0o755)
    planted = machine.workspace / "node_modules/.bin"
    planted.mkdir(parents=True)
    machine.variables["PATH"] = f"{planted}:{programs}:relative:{os.environ['PATH']}"
    machine.give_cursor(files={"command": "my-server"}, plain=machine.server("files"))
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    servers = orjson.loads((machine.home / ".ironcurtain/mcp-servers.json").read_bytes())
    path = servers["files"]["env"]["PATH"].split(":")
    assert path[0] == str(programs)
    assert str(planted) not in path
    assert "relative" not in path
    assert "env" not in servers["plain"]
    entry = orjson.loads(machine.cursor.read_text().removeprefix("// mine\n"))["mcpServers"]
    path = entry["ironcurtain"]["env"]["PATH"].split(":")
    assert path[0] == str(programs), "the proxy finds its sandbox where this terminal does"
    assert str(planted) not in path
    machine.variables["PATH"] = "/usr/bin:/bin"
    with started_by(entry["ironcurtain"], machine) as client:
        client.initialize()
        client.until_listed("files__read_doc", "plain__read_doc")


def test_relative_paths_count_from_the_workspace_wherever_init_is_run(machine: Machine) -> None:
    tools = machine.workspace / "tools"
    tools.mkdir()
    (tools / "raw.py").write_text(SERVER)
    file = machine.workspace / ".mcp.json"
    entry = {"command": sys.executable, "args": ["tools/raw.py", "files"]}
    file.write_bytes(orjson.dumps({"mcpServers": {"raw": entry}}))
    code, said, faults = machine.run("--yes", cwd="src")
    assert code == 0, said + faults
    servers = orjson.loads((machine.home / ".ironcurtain/mcp-servers.json").read_bytes())
    assert servers["raw"]["args"] == [str(tools / "raw.py"), "files"]


def test_of_two_at_once_the_second_changes_nothing_and_says_so(machine: Machine) -> None:
    mine = machine.give_cursor(slow=machine.silent())
    with only_one(machine.home / ".ironcurtain"):
        code, said, faults = machine.run("--yes")
    assert (code, machine.cursor.read_bytes()) == (2, mine)
    assert "another `init` is running: nothing was changed" in faults
    assert "rotected" not in said
    assert not (machine.root / "started").exists()
