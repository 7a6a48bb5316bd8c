"""Who else may stand at a hook's door, and what else may reach into a hook."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketStream

from ironcurtain_proxy.downstream.guardian import prctl
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.kernel import directory_of
from ironcurtain_proxy.hooks.launching import (
    STUB,
    hook_words,
    launcher,
    prefix_text,
    runs_what_agents_write,
    seen_from,
    steering_variables,
    variables_of,
)
from ironcurtain_proxy.hooks.runs import HeldDoor, serve_at, short_path
from ironcurtain_proxy.mailbox.mailboxes import start_of, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from tests.facts.unprivileged import without_privileges
from tests.hooks.hooked import HookedHome, as_claude, decision_in
from tests.program import PATIENCE, wait_until

PR_SET_DUMPABLE = 4


def test_whoever_is_not_below_the_client_is_turned_away(home: HookedHome, tmp_path: Path) -> None:
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    door = next(one for one in (home.state / "doors").iterdir() if not one.suffix)
    said = tmp_path / "said"
    script = (
        "import socket, sys, os, time\n"
        "while os.getppid() == int(sys.argv[3]): time.sleep(0.005)\n"
        # The path of a socket has 107 bytes at most.
        "s = socket.socket(socket.AF_UNIX)\n"
        "os.chdir(os.path.dirname(sys.argv[1])); s.connect(os.path.basename(sys.argv[1]))\n"
        'm = b\'claude UserPromptSubmit\\n{"prompt": "push"}\'\n'
        "try: s.sendall(m); s.shutdown(1); found = s.recv(100)\n"
        "except OSError: found = b''\n"
        "open(sys.argv[2] + '.tmp', 'wb').write(found)\n"
        "os.rename(sys.argv[2] + '.tmp', sys.argv[2])\n"
    )
    between = (
        "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:], "
        "str(os.getpid())])"
    )
    subprocess.run(
        ["setsid", sys.executable, "-c", between, script, str(door), str(said)], check=True
    )
    wait_until(said.exists)
    assert said.read_bytes() == b""
    assert list((home.state / "sessions").glob("*/user-context.json")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_reaches_no_door(home: HookedHome) -> None:
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    door = next(one for one in (home.state / "doors").iterdir() if not one.suffix)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            socket.socket(socket.AF_UNIX).connect(str(door))
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_the_answer_of_another_user_s_door_is_none(home: HookedHome) -> None:
    doors = home.state / "doors"
    doors.mkdir()
    door = doors / f"{os.getpid()}-{start_of(os.getpid())}"
    os.chown(doors, 65534, 0)
    child = os.fork()
    if child == 0:
        # The path of a socket has 107 bytes at most.
        os.chdir(doors)
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as laid:
            laid.bind(door.name)
            laid.listen()
            while True:
                hook, _ = laid.accept()
                while hook.recv(1 << 16):
                    pass
                hook.sendall(b"{}\n\0")
                hook.close()
    wait_until(door.exists)
    done = home.fire("PreToolUse", home.call("Bash", {"command": "curl https://example.com"}))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.chown(doors, 0, 0)
    assert decision_in(done.stdout) == "deny"


def test_a_call_is_denied_where_something_would_stand_before_the_answer(home: HookedHome) -> None:
    """The client runs a call whose hook printed what it cannot read."""
    call = home.call("Bash", {"command": "curl https://example.com"})
    done = home.fire("PreToolUse", call, LD_SHOW_AUXV="1")
    assert "AT_SYSINFO_EHDR" in done.stdout
    assert (done.returncode, "its hook cannot run" in done.stderr) == (2, True)


def test_the_stub_is_compiled_once(home: HookedHome, tmp_path: Path) -> None:
    stub = tmp_path / "stub.py"
    stub.write_bytes(STUB.read_bytes())
    given = hook_words(DIALECTS["claude"], "check", home.state)
    words = [str(stub) if one == str(STUB) else one for one in given]

    def said() -> tuple[bytes, bytes]:
        done = subprocess.run(words, capture_output=True, check=False)
        return done.stdout, done.stderr

    assert said() == (b"it starts\n", b"")
    found = stub.stat()
    stub.write_bytes(b"(" * found.st_size)
    os.utime(stub, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert said() == (b"it starts\n", b"")
    # Another one counts, and what is wrong with it is said in a line or two.
    os.utime(stub, ns=(found.st_atime_ns, 0))
    out, error = said()
    assert (out, b"Traceback" in error) == (b"", False)


def test_a_shell_that_would_run_nothing_runs_the_launcher(home: HookedHome, tmp_path: Path) -> None:
    shell = tmp_path / "sh"
    shell.symlink_to(shutil.which("bash") or "")
    variables = {"SHELLOPTS": "noexec", "BASH_XTRACEFD": "1"}
    words = [*launcher(str(shell)), "-c", 'echo "ran"']
    done = subprocess.run(words, env=variables, capture_output=True, check=True)
    assert done.stdout == b"ran\n"
    found = hook_words(DIALECTS["claude"], "PreToolUse", home.state)
    assert found[: found.index("-c")] == launcher()


@contextmanager
def hidden_process() -> Iterator[int]:
    """A process that lets its user look at neither its variables nor its directory."""
    done, waiting = os.pipe()
    hidden, is_hidden = os.pipe()
    child = os.fork()
    if child == 0:
        prctl(PR_SET_DUMPABLE, 0)
        os.close(waiting)
        os.close(is_hidden)
        os.read(done, 1)
        os._exit(0)
    os.close(is_hidden)
    os.read(hidden, 1)
    yield child
    os.close(waiting)
    os.waitpid(child, 0)


def test_variables_of_a_project_count_where_a_client_hides_its_own_and_usual_ones_do_not() -> None:
    usual = {"HOME": "/home/one", "LESSOPEN": "| /usr/bin/lesspipe %s", "PATH": "/usr/bin:/bin"}
    usual |= {"PAGER": "less", "LESS": "-FRX", "XDG_CONFIG_DIRS": "/etc/xdg/one:/etc/xdg"}
    usual |= {"NODE_OPTIONS": "--max-old-space-size=4096", "PYTHONUNBUFFERED": "1"}
    # What it needs of the interpreter may lie where a stranger does not get in.
    start_of(os.getpid())

    def look(place: Path) -> None:
        os.chdir(place)
        steers = {"PATH": f"{place}/bin:/usr/bin", "GIT_CONFIG_COUNT": "1", "LESSOPEN": "|./x %s"}
        steers |= {"XDG_CONFIG_DIRS": f"/etc/xdg:{place}", "NODE_OPTIONS": "-r ./x.js"}
        steers |= {"LESS": "+!./x", "PAGER": "./less"}
        home, words, pipe = Path("/home/one"), ["/bin/sh", "-c", "echo; read x"], subprocess.PIPE
        with hidden_process() as client:
            for given, expected in ((usual, {}), ({**usual, **steers}, steers)):
                with subprocess.Popen(words, env=given, stdin=pipe, stdout=pipe) as hook:
                    assert hook.stdout
                    hook.stdout.readline()
                    variables = variables_of(hook.pid)
                    found = steering_variables(
                        DIALECTS["claude"], variables, hook.pid, client, home, home / "s.json"
                    )
                    assert found == expected
            assert str(directory_of(client)) == str(place)

    assert without_privileges(look) == 0


def test_no_door_is_found_at_which_nobody_listens_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, listen = tmp_path / "door", socket.socket.listen
    seen: list[bool] = []

    def listening(listener: socket.socket, backlog: int = 1) -> None:
        seen.append(door.exists())
        listen(listener, backlog)

    async def serve(stream: SocketStream) -> None:
        await stream.aclose()

    async def look() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_at, door, serve)
            await anyio.to_thread.run_sync(wait_until, door.is_socket)
            with short_path(door) as path:
                await (await anyio.connect_unix(path)).aclose()
            tasks.cancel_scope.cancel()

    monkeypatch.setattr(socket.socket, "listen", listening)
    anyio.run(look)
    assert seen == [False]
    assert list(tmp_path.iterdir()) == []


def test_what_a_kernel_that_was_killed_left_goes_once_its_client_has_ended_and_nothing_else(
    tmp_path: Path,
) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    other.write_text("kept")
    doors = state / "doors"
    doors.mkdir(parents=True, mode=0o700)
    with subprocess.Popen(["sleep", "60"]) as process:
        ended = Owner(process.pid, start_of(process.pid))
        process.kill()
    with socket.socket(socket.AF_UNIX) as left, short_path(doors / "x.new") as path:
        left.bind(path)
    name = f"{ended.pid}-{ended.start_time}"
    (doors / "x.new").rename(doors / f"{name}.new")
    (doors / f"{name}.run.new").symlink_to(other)
    for kept in (f"{name}0", "claude.fired", "7-x.lock"):
        (doors / kept).write_text("")
    for lock in (f"{name}.lock", "4194304-1.lock", "4194304-1"):
        (doors / lock).write_text("")
    alive = HeldDoor.of(this_process(), state)
    (doors / f"{alive.path.name}.new").write_text("")
    with ExitStack() as exits, (doors / "4194304-1.lock").open() as held:
        # A client in a container has another number there, and its kernel holds the door.
        fcntl.flock(held, fcntl.LOCK_EX)
        assert alive.hold(exits)
        now = {one.name for one in doors.iterdir()}
    assert not any(one.startswith(f"{name}.") for one in now)
    assert now >= {f"{name}0", "claude.fired", "7-x.lock", "4194304-1.lock", "4194304-1"}
    assert other.read_text() == "kept"

    async def look() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_at, alive.path, lambda stream: stream.aclose())
            await anyio.to_thread.run_sync(wait_until, alive.path.is_socket)
            tasks.cancel_scope.cancel()

    # What is no socket kept a kernel from starting.
    anyio.run(look)


def test_a_client_of_the_first_process_that_hides_itself_is_looked_at_no_further() -> None:
    def look(_place: Path) -> None:
        # What has no parent is the end: an error would be taken for a hook that has ended.
        assert seen_from(1) in {0, 1}

    start_of(os.getpid())
    assert without_privileges(look) == 0


ANSWERS = (b"", b"N", b"N /bin/sh\n", b"\0", b"nonsense\0", b"E x\n\0", b"E 0\nwords", b"N x\n\0")


def test_an_answer_that_cannot_be_read_runs_nothing(tmp_path: Path) -> None:
    """This process stands for the kernel, too."""
    (tmp_path / "doors").mkdir()
    place = tmp_path / "doors" / f"{os.getpid()}-{start_of(os.getpid())}.run"
    program = tmp_path / "run"
    program.write_text(prefix_text(tmp_path))
    program.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as wire:
        wire.bind(str(place))
        wire.listen()
        for answer in ANSWERS:
            running = subprocess.Popen(
                [program, f"touch {tmp_path}/made"], stderr=subprocess.PIPE, text=True
            )
            with wire.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(answer)
            said = running.communicate(timeout=PATIENCE)[1]
            assert said.startswith("IronCurtain: the kernel"), answer
            assert running.returncode == 126, answer
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("doors", ["no session yet", "a kernel that has ended"])
def test_where_no_kernel_is_servers_and_hooks_of_others_start_and_no_command(
    doors: str, tmp_path: Path
) -> None:
    """A client starts its servers before a hook has made a kernel."""
    program = tmp_path / "run"
    program.write_text(prefix_text(tmp_path))
    program.chmod(0o700)
    if doors == "a kernel that has ended":
        (tmp_path / "doors").mkdir()
        with socket.socket(socket.AF_UNIX) as wire:
            wire.bind(str(tmp_path / "doors" / f"{os.getpid()}-{start_of(os.getpid())}.run"))
    server, command = "echo serves; cat", as_claude(f"touch {tmp_path}/made")
    for text, mark, status in (
        (server, "claude-code_2-1-332_harness", 0),
        (server, "", 0),
        (server, "claude-code_2-1-332_agent", 126),
        (command, "claude-code_2-1-332_harness", 126),
        (command, "", 126),
    ):
        done = subprocess.run(
            [program, text], env={"AI_AGENT": mark}, input=b"on\n", capture_output=True, check=False
        )
        said = b"IronCurtain: there is no kernel for this session" in done.stderr
        assert (done.returncode, done.stdout) == (status, b"" if status else b"serves\non\n")
        assert said is bool(status)
    assert not (tmp_path / "made").exists()


def test_a_place_of_programs_that_was_replaced_or_cannot_be_listed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, tools = tmp_path / "project", tmp_path / "project/tools"
    project.mkdir()
    tools.symlink_to("/usr/bin")
    asked = ("head a.txt", str(project), f"{tools}:/usr/bin", str(project))
    assert not runs_what_agents_write(*asked)
    tools.unlink()
    tools.mkdir()
    assert not runs_what_agents_write(*asked)
    (tools / "head").touch()
    assert runs_what_agents_write(*asked)
    (tools / "head").unlink()

    def cannot_be_listed(_path: str) -> list[str]:
        raise PermissionError

    monkeypatch.setattr(os, "listdir", cannot_be_listed)
    assert runs_what_agents_write(*asked)
