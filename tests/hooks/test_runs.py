"""Commands of a client's shell in the sandbox. This process is the client: it starts them itself.

One session serves all tests of this file, because a sandbox takes long to start.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.downstream.guardian import PR_SET_CHILD_SUBREAPER, prctl
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.shell_setup import call_digest
from tests.e2e.confined_installation import PATH
from tests.e2e.raw_client import Message
from tests.hooks.hooked import HookedHome, as_claude, decision_in
from tests.program import PATIENCE, wait_until
from tests.tables import table

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HookedHome]:
    prctl(PR_SET_CHILD_SUBREAPER, 0)
    before = Path.cwd()
    hooked = HookedHome(tmp_path_factory.mktemp("held"), path=PATH)
    for name in ("sub/deep", "other"):
        (hooked.workspace / name).mkdir(parents=True)
    (hooked.workspace / "notes.txt").write_bytes(b"old\xff\n")
    os.chdir(hooked.workspace)
    # A test may come first that starts a command before any was let go.
    hooked.prefixed()
    hooked.fire("SessionStart", {"source": "startup"})
    yield hooked
    hooked.end_session()
    os.chdir(before)


def ended(process: subprocess.Popen[bytes], given: bytes = b"") -> tuple[int, bytes, bytes]:
    out, err = process.communicate(given, timeout=PATIENCE)
    return process.returncode, out, err


def run(home: HookedHome, command: str, **variables: str) -> tuple[int, bytes, bytes]:
    """Run a command as the client does, from its hook to its end."""
    call = home.held(command)
    found = ended(home.start_command(as_claude(command), variables=variables))
    home.fire("PostToolUse", {**call, "tool_response": {}})
    return found


ALIKE = table("hooks/commands.alike", dict[str, str])


def test_a_held_command_does_what_it_does_without_us(home: HookedHome, tmp_path: Path) -> None:
    variables = {"FOO": "a 'b'\n\"c\" é", "BAR": "", "IRONCURTAIN_X": "1"}
    plain = {key: value for key, value in variables.items() if key != "IRONCURTAIN_X"}
    for what, command in ALIKE.items():
        bare = tmp_path / what
        bare.mkdir()
        shutil.copytree(home.workspace, bare / "project", dirs_exist_ok=True, symlinks=True)
        alone = subprocess.run(
            ["/bin/bash", "-c", as_claude(command, bare / "cwd")],
            env={**home.environment(), **plain},
            cwd=bare / "project",
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        code, out, err = run(home, command, **variables)
        said = err.replace(b"/bin/bash: ", b"").replace(b"bash: ", b"")
        expected = alone.stderr.replace(b"/bin/bash: ", b"").replace(b"bash: ", b"")
        status = alone.returncode if alone.returncode >= 0 else 128 - alone.returncode
        assert (code, out, said) == (status, alone.stdout, expected), what
        assert tree(home.workspace) == tree(bare / "project"), what


def tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of all files."""
    return {
        str(one.relative_to(directory)): (
            one.lstat().st_mode,
            str(one.readlink()).encode()
            if one.is_symlink()
            else one.read_bytes()
            if one.is_file()
            else b"",
        )
        for one in directory.rglob("*")
    }


def test_the_client_learns_the_last_directory_unless_it_is_there_in_the_view_alone(
    home: HookedHome,
) -> None:
    told = Path("/tmp") / f"claude-{os.getpid():x}-cwd"
    cases = {
        "cd sub/deep && touch there": b"sub/deep",
        "touch x; cd nowhere": None,
        "mkdir fresh && cd fresh": b"fresh",
        "touch x; cd /tmp && mkdir own && cd own": None,
    }
    for command, expected in cases.items():
        told.unlink(missing_ok=True)
        home.held(command)
        ended(home.start_command(as_claude(command, told)))
        if expected is None:
            assert not told.exists(), command
        else:
            place = os.fsencode(home.workspace) + b"/" + expected
            assert told.read_bytes() == place + b"\n"
    # What somebody else has put there is not followed.
    target = home.home / "target"
    target.write_text("mine")
    told.symlink_to(target)
    home.held("cd sub && touch y")
    ended(home.start_command(as_claude("cd sub && touch y", told)))
    assert target.read_text() == "mine"
    told.unlink()


def test_a_signal_reaches_the_command_and_the_end_of_the_client_ends_it(home: HookedHome) -> None:
    command = "trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    home.held(command)
    process = home.start_command(as_claude(command))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert ended(process)[:2] == (7, b"got\n")
    home.held("touch begun; echo ready; sleep 1000")
    process = home.start_command(as_claude("touch begun; echo ready; sleep 1000"))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    # The end of its output is when nothing of it lives.
    assert process.stdout.read() == b""
    process.communicate()
    # It is recorded as every other, with what it had changed.
    wait_until(lambda: "created begun" in str(home.outcomes()[-1]))
    assert (home.workspace / "begun").exists()


def test_what_a_held_command_did_comes_back_byte_for_byte(home: HookedHome) -> None:
    before = tree(home.workspace)
    assert run(home, "rm -rf sub notes.txt; mkdir sub; echo new > sub/x; mv other gone")[0] == 0
    assert not (home.workspace / "notes.txt").exists()
    done = home.command("rollback", str(home.outcomes()[-1]["requestId"]))
    assert done.returncode == 0, done.stderr
    assert tree(home.workspace) == before
    assert home.outcomes()[-1]["decidedBy"] == "containment"
    assert home.outcomes()[-1]["sandboxed"] is True


def test_a_held_command_reaches_no_host_no_key_and_no_control_place(home: HookedHome) -> None:
    (home.workspace / ".git/hooks").mkdir(parents=True, exist_ok=True)
    outside = home.home / "outside"
    code, _, err = run(home, f"echo x > {home.workspace}/.git/hooks/post-commit; touch kept")
    assert code == 0
    assert b"[KEPT BACK" in err
    assert not (home.workspace / ".git/hooks/post-commit").exists()
    assert (home.workspace / "kept").exists()
    again = home.call(
        "Bash", {"command": f"echo x > {home.workspace}/.git/hooks/post-commit; touch kept"}
    )
    assert decision_in(home.fire("PreToolUse", again, **home.prefixed()).stdout) == "ask"
    program = (
        "import socket,os\n"
        f"try: open('{outside}', 'w'); print('wrote')\n"
        "except OSError: pass\n"
        "try: socket.create_connection(('93.184.216.34', 80), 2); print('reached')\n"
        "except OSError: pass\n"
        f"try: os.listdir('{home.state}/doors') and print('doors')\n"
        "except OSError: pass\n"
    )
    (home.workspace / "probe.py").write_text(program)
    assert run(home, "python3 probe.py")[1] == b""
    assert not outside.exists()


def test_what_is_allowed_runs_as_the_client_runs_it_unless_it_names_temporary_files(
    home: HookedHome,
) -> None:
    for command in ("ls sub", "cat /tmp/of-the-sandbox"):
        if command.startswith("cat"):
            assert run(home, "echo there > /tmp/of-the-sandbox; touch x")[0] == 0
            assert not Path("/tmp/of-the-sandbox").exists()
        call = home.call("Bash", {"command": command})
        found = home.fire("PreToolUse", call, **home.prefixed())
        assert decision_in(found.stdout) == "silence"
        code, out, _ = ended(home.start_command(as_claude(command)))
        assert (code, out) == (0, b"there\n" if "tmp" in command else b"deep\nx\n"[:5] + out[5:])
        home.fire("PostToolUse", {**call, "tool_response": {}})


def test_what_only_reads_is_held_where_a_project_chooses_what_it_runs(home: HookedHome) -> None:
    program, outside = home.workspace / "bin/ls", home.home / "outside"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho x > {outside}\n")
    program.chmod(0o755)
    first = f"{program.parent}:{os.environ['PATH']}"
    # A client's own directory is first in that of Codex.
    own = {**home.prefixed(), "PATH": f"{home.home}:{os.environ['PATH']}"}
    assert home.fire("PreToolUse", home.call("Bash", {"command": "ls"}), **own).stdout == "{}\n"
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "x"}
    steering = [{"PATH": first}, {"HOME": str(home.workspace)}, git, {"LESSOPEN": "|x"}]
    steering += [{"OPENSSL_CONF": "x"}, {"LC_ALL": "./x"}, {"BAT_CONFIG_PATH": "x"}]
    for variables in steering:
        call = home.call("Bash", {"command": "ls"})
        assert decision_in(home.fire("PreToolUse", call, **variables).stdout) == "ask", variables
        home.fire("Stop", {})
    call = home.call("Bash", {"command": "ls"})
    variables = {**home.prefixed(), "PATH": first}
    assert decision_in(home.fire("PreToolUse", call, **variables).stdout) == "allow"
    code, _, errors = ended(home.start_command(as_claude("ls"), variables=variables))
    assert (code, outside.exists()) == (2, False), errors
    # What its user has set chooses for its user.
    file = home.home / ".claude/settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'{{"env": {{"PATH": "{first}", "LESSOPEN": "|x"}}}}')
    program.rename(program.with_name("own-tool"))
    call = home.call("Bash", {"command": "ls"})
    chosen = {**variables, "LESSOPEN": "|x"}
    assert decision_in(home.fire("PreToolUse", call, **chosen).stdout) == "silence"
    file.unlink()
    harmless = {**home.prefixed(), "NODE_ENV": "test", "DATABASE_URL": "x", "GIT_EDITOR": "true"}
    call = home.call("Bash", {"command": "ls"})
    assert decision_in(home.fire("PreToolUse", call, **harmless).stdout) == "silence"


def test_what_only_reads_is_held_where_the_user_s_own_path_leads_to_what_agents_write(
    home: HookedHome,
) -> None:
    # The client is this process, whose variables are those it was started with: its user's.
    file, there = home.home / ".claude/settings.json", home.workspace / ".venv/bin"
    file.parent.mkdir(exist_ok=True)
    there.mkdir(parents=True)
    (there / "python3").write_text("#!/bin/sh\n")

    def decided(command: str, path: str) -> str:
        first = f"{path}:{os.environ['PATH']}"
        file.write_bytes(orjson.dumps({"env": {"PATH": first}}))
        call = home.call("Bash", {"command": command})
        found = home.fire("PreToolUse", call, **home.prefixed(), PATH=first)
        home.fire("Stop", {})
        return decision_in(found.stdout)

    # Nothing of an ordinary environment is run by them.
    for command in ("head old", "zcat a.gz", "cd sub && ls"):
        assert decided(command, str(there)) == "silence"
    assert decided("python3 --version", str(there)) == "allow"
    for name in ("head", "gzip", "ls"):
        (there / name).write_text("#!/bin/sh\n")
    for command in ("head old", '"he"ad old', "zcat a.gz", "timeout 3 head old"):
        assert decided(command, str(there)) == "allow", command
    for relative in ("", ".", ".venv/bin", "node_modules/.bin"):
        assert decided("cd sub && ls", relative) == "allow"
    assert decided("wc old", "sub") == "silence"
    shutil.rmtree(there.parent)
    file.unlink()


def test_a_command_is_held_where_its_shell_alone_finds_what_agents_write(home: HookedHome) -> None:
    # The hook is started without the shell, so only the start of the command tells.
    program, environment = home.workspace / "scripts/wc", home.home / ".claude/session-env/x.sh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho theirs; echo >{home.home}/reached\n")
    program.chmod(0o755)
    environment.write_text(f'declare -x PATH="{program.parent}:/usr/bin"\n')
    sourced, bin_ = f"source {environment} 2>/dev/null || true && ", "/usr/bin:/bin"
    for before, path, command, decided, end in (
        ("", f"{program.parent}:{bin_}", "wc notes.txt", "silence", (2, b"theirs\n")),
        ("", bin_, "head -c 1 notes.txt", "silence", (0, b"o")),
        (sourced, bin_, "wc notes.txt", "silence", (2, b"theirs\n")),
        (sourced, bin_, "wc -l notes.txt", "allow", (2, b"theirs\n")),
    ):
        call = home.call("Bash", {"command": command})
        assert decision_in(home.fire("PreToolUse", call, **home.prefixed()).stdout) == decided
        started = home.start_command(before + as_claude(command), variables={"PATH": path})
        assert ended(started)[:2] == end, (before, command)
        home.fire("PostToolUse", {**call, "tool_response": {}})
    assert not (home.home / "reached").exists()
    shutil.rmtree(program.parent)


def test_nothing_runs_by_a_shell_that_a_project_chooses_without_a_question(
    home: HookedHome,
) -> None:
    shells = [{"SHELL": "./bash"}, {"CLAUDE_CODE_SHELL": "./bash"}, {"BASH_ENV": "x"}]
    shells += [{"SHELLOPTS": "xtrace", "PS4": "$(x)"}, {"ZDOTDIR": "."}, {"LD_PRELOAD": ""}]
    for variables in shells:
        for command in ("ls", "touch made"):
            call = home.call("Bash", {"command": command})
            found = home.fire("PreToolUse", call, **home.prefixed(), **variables)
            assert decision_in(found.stdout) == "ask", variables
            home.fire("Stop", {})


def test_a_command_that_goes_on_is_asked_about(home: HookedHome) -> None:
    events = [
        home.call("Bash", {"command": "touch x; sleep 1", "run_in_background": True}),
        home.call("Bash", {"command": "touch x && (sleep 1 &)"}),
        home.call("Monitor", {"command": "touch x; sleep 1"}),
    ]
    for event in events:
        assert decision_in(home.fire("PreToolUse", event, **home.prefixed()).stdout) == "ask"
    both = home.held("touch a & touch b; wait")
    assert ended(home.start_command(as_claude("touch a & touch b; wait")))[0] == 0
    home.fire("PostToolUse", {**both, "tool_response": {}})


def refused(home: HookedHome, text: str, directory: Path | None = None) -> bytes:
    code, out, err = ended(home.start_command(text, directory))
    assert (code, out) == (126, b""), (text, code, out, err)
    assert b"Nothing was run" in err
    return err


def test_only_what_was_let_go_starts_and_once(home: HookedHome) -> None:
    home.fire("UserPromptSubmit", {"prompt": "go on"})
    refused(home, as_claude("touch forged"))
    call = home.held("touch once")
    # Another text, another directory: the call is still there for the right ones.
    for text in ("touch twice", "touch once; touch more", "touch once ", "touch 'once'"):
        refused(home, as_claude(text))
    refused(home, as_claude("touch once"), home.workspace / "sub")
    assert ended(home.start_command(as_claude("touch once")))[0] == 0
    refused(home, as_claude("touch once"))
    home.fire("PostToolUse", {**call, "tool_response": {}})
    refused(home, as_claude("touch once"))
    denied = home.call("Write", {"file_path": str(home.workspace / ".claude/settings.json")})
    home.fire("PreToolUse", denied)
    refused(home, as_claude("cat ~/.ssh/id_rsa"))
    made = {one.name for one in home.workspace.iterdir()}
    assert "once" in made
    assert made.isdisjoint({"forged", "twice", "more"})


def test_what_is_to_be_held_starts_by_no_equal_call_that_is_asked_about(home: HookedHome) -> None:
    # A process of the sandbox has another number than the client sees.
    command = "echo $$ > of-an-equal-call"
    given: Message = {"command": command, "run_in_background": True}
    other = home.call("Bash", given, agent_id="a1", agent_type="Explore")
    assert decision_in(home.fire("PreToolUse", other, **home.prefixed()).stdout) == "ask"
    # Its user has not answered yet, and another agent makes the same call, which is let go.
    for is_held in (True, False):
        call = home.held(command) if is_held else other
        started = home.start_command(as_claude(command))
        assert ended(started)[0] == 0
        found = int((home.workspace / "of-an-equal-call").read_text())
        assert (found == started.pid) != is_held
        home.fire("PostToolUse", {**call, "tool_response": {}})


def test_a_directory_that_leads_elsewhere_meanwhile_starts_nothing(home: HookedHome) -> None:
    place = home.workspace / "place"
    place.mkdir()
    call = home.call("Bash", {"command": "ls"}, cwd=str(place))
    assert decision_in(home.fire("PreToolUse", call, **home.prefixed()).stdout) == "silence"
    place.rmdir()
    place.symlink_to("/etc")
    refused(home, as_claude("ls"), place)
    place.unlink()
    place.mkdir()
    assert ended(home.start_command(as_claude("ls"), place))[:2] == (0, b"")
    home.fire("PostToolUse", {**call, "tool_response": {}})


def test_a_command_in_a_skill_is_judged_when_it_starts(home: HookedHome) -> None:
    """The client runs it without a hook: after its user typed the skill, or the agent chose it."""
    home.fire("UserPromptSubmit", {"prompt": "/tidy"}, **home.prefixed())
    assert ended(home.start_command(as_claude("touch in-skill; cat notes.txt")))[0] == 0
    assert home.outcomes()[-1]["decidedBy"] == "containment"
    refused(home, as_claude("cat ~/.ssh/id_rsa"))
    home.fire("PreToolUse", home.call("Skill", {"skill": "tidy"}), **home.prefixed())
    assert ended(home.start_command(as_claude("ls sub")))[0] == 0
    # One that was let go may have been changed by another hook.
    call = home.held("touch first")
    home.fire("PreToolUse", home.call("Skill", {"skill": "tidy"}), **home.prefixed())
    refused(home, as_claude("touch second"))
    home.fire("PostToolUseFailure", {**call, "error": "x"})
    home.fire("Stop", {})
    assert "second" not in {one.name for one in home.workspace.iterdir()}


def test_a_job_starts_once_though_its_client_has_said_that_it_goes_on(home: HookedHome) -> None:
    home.fire("UserPromptSubmit", {"prompt": "go on"})
    call = home.call("Bash", {"command": "ls sub", "run_in_background": True})
    assert decision_in(home.fire("PreToolUse", call, **home.prefixed()).stdout) == "silence"
    home.fire("PostToolUse", {**call, "tool_response": {}}, **home.prefixed())
    assert ended(home.start_command(as_claude("ls sub")))[0] == 0
    refused(home, as_claude("ls sub"))


def test_where_no_agent_is_at_work_the_user_s_own_commands_run(home: HookedHome) -> None:
    home.fire("UserPromptSubmit", {"prompt": "go on"})
    home.fire("Stop", {})
    assert ended(home.start_command(as_claude("echo mine")))[1] == b"mine\n"
    # Neither do the hooks and the servers of others need a call.
    home.fire("UserPromptSubmit", {"prompt": "go on"})
    assert ended(home.start_command("echo hook; cat"), b"event")[:2] == (0, b"hook\nevent")


def test_a_prefix_that_is_not_ours_holds_nothing(home: HookedHome) -> None:
    for prefix in ("", "/tmp/evil", f"{home.prefixed()['CLAUDE_CODE_SHELL_PREFIX']} "):
        call = home.call("Bash", {"command": "touch x"})
        found = home.fire("PreToolUse", call, CLAUDE_CODE_SHELL_PREFIX=prefix)
        assert decision_in(found.stdout) == "ask", prefix


def test_a_mode_in_which_the_client_asks_nobody_gets_a_denial(home: HookedHome) -> None:
    for mode, expected in {"acceptEdits": "ask", "auto": "deny"}.items():
        call = home.call("Bash", {"command": "curl https://a.b"}, permission_mode=mode)
        found = home.fire("PreToolUse", call, **home.prefixed())
        assert decision_in(found.stdout) == expected, mode


SENDS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as wire:
    wire.connect(sys.argv[1])
    heard = b""
    try:
        wire.sendall(sys.stdin.buffer.read())
        wire.shutdown(socket.SHUT_WR)
        while block := wire.recv(4096):
            heard += block
    except ConnectionError:
        pass  # it was not read to the end
print(heard)
"""


def told(place: Path, content: bytes) -> str:
    """Return what a program below the client hears at the socket of commands."""
    done = subprocess.run(
        [sys.executable, "-c", SENDS, str(place)],
        input=content,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout.decode().strip() or done.stderr.decode()


def test_whoever_is_not_our_own_shell_fetches_nothing(home: HookedHome) -> None:
    (place,) = (home.state / "doors").glob("*.run")
    home.held("touch stolen")
    waiting = home.start_command(as_claude("touch stolen"))
    given: dict[str, Json] = {"command": "touch stolen", "cwd": str(home.workspace)}
    for digest in ("0" * 64, call_digest(given), ""):
        assert told(place, b"shell " + digest.encode()) == "b''"
    if os.geteuid() == 0:
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            try:
                socket.socket(socket.AF_UNIX).connect(str(place))
            except OSError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ended(waiting)[0] == 0


GARBAGE = (
    b"",
    b"\xff",
    b"shell \xff\xfe",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x10\0\0\0short",
    b"x" * 7000,
    b"\xff\xff\xff\x7f" + b"x" * (10 << 20),
)


def test_garbage_at_the_socket_starts_and_ends_nothing(home: HookedHome) -> None:
    (place,) = (home.state / "doors").glob("*.run")
    home.fire("UserPromptSubmit", {"prompt": "go on"})
    for garbage in GARBAGE:
        heard = told(place, garbage)
        # Text that is no command of the client's is a hook of somebody's: it starts it itself.
        assert heard in {"b''", "b'N /bin/bash\\n\\x00'"}, garbage
    assert run(home, "touch still-there")[0] == 0


def test_many_commands_at_once_each_end_with_their_own_status(home: HookedHome) -> None:
    commands = [f"touch many-{number}; exit {number}" for number in range(12)]
    for command in commands:
        home.held(command)
    running = [home.start_command(as_claude(command)) for command in reversed(commands)]
    assert [ended(one)[0] for one in reversed(running)] == list(range(12))
    assert len(list(home.workspace.glob("many-*"))) == 12


def test_a_command_about_which_the_client_asks_its_user_runs_once_and_as_the_user_said(
    home: HookedHome,
) -> None:
    call = home.held("touch asked")
    question = {**call, "hook_event_name": "PermissionRequest"}
    del question["tool_use_id"]
    assert home.fire("PermissionRequest", question, **home.prefixed()).stdout == "{}\n"
    ended_first = home.outcomes()[-1]
    assert "the client asks its user before it makes the call" in str(ended_first["result"])
    assert ended(home.start_command(as_claude("touch asked")))[0] == 0
    assert (home.workspace / "asked").exists()
    refused(home, as_claude("touch asked"))
    home.fire("PostToolUse", {**call, "tool_response": {}})
    assert (home.outcomes()[-1]["decidedBy"], home.outcomes()[-1]["sandboxed"]) == ("client", False)


def test_a_form_that_is_not_known_is_refused_once_and_asked_about_from_then_on(
    home: HookedHome,
) -> None:
    """The last test of the session: no command is held after it."""
    home.held("touch odd")
    refused(
        home, as_claude("touch odd").replace("{ ", "source /tmp/evil.sh 2>/dev/null || true && { ")
    )
    call = home.call("Bash", {"command": "touch odd"})
    found = home.fire("PreToolUse", call, **home.prefixed())
    assert decision_in(found.stdout) == "ask"
    # Its user said yes: it runs, as the client runs it.
    assert ended(home.start_command(as_claude("touch odd")))[0] == 0
    assert (home.workspace / "odd").exists()
    home.end_session()
    refused(home, as_claude("ls"))


def begun_in_a_view(home: HookedHome) -> tuple[Message, subprocess.Popen[bytes]]:
    """Start a command that has changed the workspace and goes on when it is told to."""
    command = "echo y > made; rm keep; echo ready; read x; echo done"
    call = home.held(command)
    running = home.start_command(as_claude(command).replace(" < /dev/null", ""))
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    return call, running


def test_a_kernel_that_is_killed_meanwhile_loses_nothing_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = HookedHome(tmp_path, path=PATH)
    monkeypatch.chdir(other.workspace)
    (other.workspace / "keep").write_text("k")
    call, running = begun_in_a_view(other)
    os.kill(other.kernel(), signal.SIGKILL)
    _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 126
    assert said.startswith(b"IronCurtain: the kernel ended before it said how the command ended.")
    assert [one.name for one in other.workspace.iterdir()] == ["keep"]
    other.fire("PostToolUse", {**call, "tool_response": {}})
    assert other.decide("Bash", {"command": "ls"}) == "deny"
    # The next session holds commands again.
    other.fire("SessionStart", {"source": "startup"})
    other.held("touch later")
    assert ended(other.start_command(as_claude("touch later")))[0] == 0
    assert (other.workspace / "later").exists()
    other.end_session()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a small disk")
def test_a_disk_that_is_full_meanwhile_loses_nothing_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = HookedHome(tmp_path, path=PATH)
    monkeypatch.chdir(other.workspace)
    (other.workspace / "keep").write_text("k")
    sessions = other.state / "sessions"
    sessions.mkdir(mode=0o700)
    small = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "none", str(sessions)]
    if subprocess.run(small, check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        call, running = begun_in_a_view(other)
        with suppress(OSError), (sessions / "fill").open("wb", 0) as file:
            while True:
                file.write(bytes(1 << 16))
        # It waits for its input, and is ended because the disk is full.
        assert running.wait(timeout=PATIENCE) == 125
        assert b"are left free" in running.communicate()[1]
        assert [one.name for one in other.workspace.iterdir()] == ["keep"]
        other.fire("PostToolUse", {**call, "tool_response": {}})
        (sessions / "fill").unlink()
        assert other.decide("Bash", {"command": "ls"}) == "silence"
    finally:
        other.end_session()
        subprocess.run(["umount", "--lazy", sessions], check=True)
