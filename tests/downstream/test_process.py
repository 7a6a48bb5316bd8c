"""Server processes and their guardians: nothing is left, whoever is killed, and however."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ironcurtain_proxy.downstream.guardian import descendants
from ironcurtain_proxy.downstream.process import ServerProcess, become_subreaper, spawn
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.server import ServerSpec
from tests.downstream.scripted_servers import SCRIPT, is_alive
from tests.program import PATIENCE, wait_until

ENVIRONMENT = {"PATH": os.environ["PATH"]}


@contextmanager
def server(*argv: str, environment: dict[str, str] = ENVIRONMENT) -> Iterator[ServerProcess]:
    spec = ServerSpec(name="s", annotations="s", command=argv[0])
    process = spawn(spec, environment=environment, cwd="/", argv=argv)
    try:
        yield process
    finally:
        process.end(0)


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_alive(pid)]


def alive_below(pid: int) -> list[int]:
    return living(descendants(pid))


def with_children(behaviour: str = '{"children": true, "stubborn": true}') -> tuple[str, ...]:
    """A server with three children, of which two have left its session."""
    return sys.executable, "-I", "-S", str(SCRIPT), behaviour


def test_the_server_gets_exactly_its_environment_and_no_descriptor_but_its_three() -> None:
    """G15. Python adds LC_CTYPE where there is no locale; the guardian must not pass it on."""
    with server("env", environment={**ENVIRONMENT, "A": "b"}) as one:
        read, _ = one.take_wire()
        with os.fdopen(read) as output:
            assert sorted(output) == ["A=b\n", f"PATH={ENVIRONMENT['PATH']}\n"]
    with server("env", environment={**ENVIRONMENT, "LC_CTYPE": "C.UTF-8"}) as one:
        read, _ = one.take_wire()
        with os.fdopen(read) as output:
            assert "LC_CTYPE=C.UTF-8\n" in list(output)
    with server("cat") as sibling, server("ls", "-1", "/proc/self/fd") as one:
        assert sibling.exit_status is None
        read, _ = one.take_wire()
        with os.fdopen(read) as output:
            # The fourth is the directory that `ls` reads.
            assert list(output) == ["0\n", "1\n", "2\n", "3\n"]


@pytest.fixture
def background_job() -> Iterator[None]:
    """What a shell does to its background jobs: SIGINT and SIGQUIT are ignored."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("background_job")
def test_signals_are_as_a_program_expects_them() -> None:
    with server("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status") as one:
        read, _ = one.take_wire()
        with os.fdopen(read) as output:
            assert [line.split()[1] for line in output] == ["0" * 16] * 2


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["sh", "-c", "exit 7"], 7, "it exited with status 7"),
        (["sh", "-c", "kill -9 $$"], 137, "it exited with status 137"),
        (["no-such-command-here"], 127, "its command was not found"),
        (["/etc/passwd"], 126, "its command cannot be executed"),
    ],
    ids=["its own status", "a signal", "no such command", "no program"],
)
def test_how_it_ended_is_known(argv: list[str], status: int, words: str) -> None:
    with server(*argv) as one:
        assert one.end(20) == status
        assert one.ending() == words


@pytest.mark.parametrize("cwd", ["/no/such/directory", "/etc/passwd"])
def test_what_cannot_be_started_is_refused_without_leaking(cwd: str) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  only counted
    with pytest.raises(ServerUnavailableError, match='server "s" could not be started'):
        spawn(
            ServerSpec(name="s", annotations="s", command="cat"),
            environment=ENVIRONMENT,
            cwd=cwd,
            argv=["cat"],
        )
    with pytest.raises(ServerUnavailableError, match="NUL"):
        spawn(
            ServerSpec(name="s", annotations="s", command="cat"),
            environment=ENVIRONMENT,
            cwd="/",
            argv=["cat", "a\0secret"],
        )
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  only counted


def test_that_a_server_closes_its_output_is_seen_though_it_runs_on() -> None:
    with server("sh", "-c", "exec >&- 2>&-; sleep 600") as one:
        read, _ = one.take_wire()
        with os.fdopen(read) as output:
            assert output.read() == ""
        assert one.exit_status is None


def test_a_server_that_ends_when_its_input_does_is_not_hurried() -> None:
    with server("sh", "-c", "cat; exit 5") as one:
        assert one.end(20) == 5


def test_ending_ends_the_stubborn_and_what_has_left_its_session_or_its_parent() -> None:
    """G38."""
    with server(*with_children()) as one:
        wait_until(lambda: len(alive_below(one.pid)) == 4)
        family = descendants(one.pid)
        assert one.end(0.1) == 137
        assert living(family) == []


def test_when_the_server_ends_what_it_has_started_ends() -> None:
    with server("sh", "-c", "setsid sleep 600 & sleep 600 & read line") as one:
        wait_until(lambda: len(alive_below(one.pid)) == 3)
        family = descendants(one.pid)
        _, write = one.take_wire()
        os.close(write)
        wait_until(lambda: one.exit_status is not None)
        assert living(family) == []


def test_sigterm_to_a_guardian_ends_its_server() -> None:
    with server(*with_children()) as one:
        wait_until(lambda: len(alive_below(one.pid)) == 4)
        family = descendants(one.pid)
        os.kill(one.pid, signal.SIGTERM)
        wait_until(lambda: one.exit_status is not None)
        assert living(family) == []


def test_what_a_killed_guardian_leaves_is_killed_and_our_own_children_are_not() -> None:
    become_subreaper()
    own = subprocess.Popen(["sleep", "600"])
    try:
        with server("cat") as other, server(*with_children()) as one:
            wait_until(lambda: len(alive_below(one.pid)) == 4)
            family = descendants(one.pid)
            os.kill(one.pid, signal.SIGKILL)
            # The server itself needs nobody to look for it.
            wait_until(lambda: not is_alive(family[0]))
            assert one.end(20) == -9
            assert living(family) == []
            assert other.exit_status is None
            assert own.poll() is None
    finally:
        own.kill()
        own.wait()


def test_a_server_lives_on_when_the_thread_that_started_it_ends() -> None:
    """A parent-death signal of the guardian would follow the thread."""
    started: list[ServerProcess] = []

    def start() -> None:
        spec = ServerSpec(name="s", annotations="s", command="cat")
        started.append(spawn(spec, environment=ENVIRONMENT, cwd="/", argv=["cat"]))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    wait_until(lambda: len(alive_below(started[0].pid)) == 1)
    read, write = started[0].take_wire()
    os.write(write, b"alive")
    assert os.read(read, 9) == b"alive"
    os.close(read)
    os.close(write)
    started[0].end(20)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_nothing_is_left_when_the_proxy_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    """G38: three servers, all of which outlive SIGTERM and the end of their input."""
    ready = tmp_path / "ready"
    program = f"""
import os, pathlib, time
from ironcurtain_proxy.downstream.process import spawn
from ironcurtain_proxy.model.server import ServerSpec
argv = {with_children()!r}
spec = ServerSpec(name="s", annotations="s", command=argv[0])
servers = [spawn(spec, environment=dict(os.environ), cwd="/", argv=argv) for _ in range(3)]
pathlib.Path({str(ready)!r}).touch()
time.sleep(600)
"""
    owner = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: ready.exists() and len(alive_below(owner.pid)) == 3 * 5)
    family = descendants(owner.pid)
    owner.send_signal(number)
    owner.wait()
    wait_until(lambda: living(family) == [])


CLEANING = """
import sys, threading
from ironcurtain_proxy.downstream.process import kill_orphans
from ironcurtain_proxy.transactions.forking import Forker
from tests.downstream.test_process import server

over = threading.Event()
def clean():
    while not over.is_set():
        kill_orphans(0)

cleaner = threading.Thread(target=clean)
cleaner.start()
try:
    views = Forker(sys.executable)
    views.begin()
    for _ in range(8):
        with server("cat") as one:
            assert one.end(20) == 0
    assert views._ready[1].poll() is None
    views.close()
finally:
    over.set()
    cleaner.join()
"""


def test_the_end_of_a_killed_guardian_takes_no_other_child_of_ours_along() -> None:
    # In a process of its own: what other tests started here are no children of its.
    subprocess.run(
        [sys.executable, "-c", CLEANING], check=True, cwd=SCRIPT.parents[2], timeout=PATIENCE
    )
