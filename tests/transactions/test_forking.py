"""Commands that a process which is ready forks are as those that are started alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.transactions.forking import Forked, ForkedCommand, Forker
from ironcurtain_proxy.transactions.transaction import CommandView, discard
from tests.transactions.bench import Workbench, names_in


@pytest.fixture
def forker() -> Iterator[Forker]:
    made = Forker(sys.executable)
    yield made
    made.close()


class Ran:
    """A command in a view, with pipes of ours."""

    def __init__(self, forker: Forker, w: Workbench, script: str, **environment: str) -> None:
        self.view = CommandView(w.session.directory, str(w.ws))
        self.heard, output = os.pipe()
        self.status, status = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            self.process: Forked = forker.start(
                ForkedCommand(
                    words=self.view.arguments(["/bin/sh", "-c", script], status),
                    environment={"PATH": os.environ["PATH"], **environment},
                    directory="/",
                    descriptors={0: null, 1: output, 2: output, status: status},
                )
            )
        finally:
            for one in (null, output, status):
                os.close(one)

    def end(self) -> tuple[str, str]:
        """What it has written, and its status; empty if it came to no proper end."""
        self.process.wait(60)
        said = b""
        while part := os.read(self.heard, 65536):
            said += part
        status = os.read(self.status, 16)
        for one in (self.heard, self.status):
            os.close(one)
        self.process.close()
        return said.decode(errors="surrogateescape"), status.decode()

    def names(self) -> list[str]:
        found = names_in(self.view.directory / "upper")
        self.view.close()
        discard(self.view.directory)
        return found


def test_a_command_has_its_own_environment_directory_and_descriptors(
    w: Workbench, forker: Forker
) -> None:
    weird = os.fsdecode(b"\xff \n'")
    ran = Ran(forker, w, 'printf %s "$A"; pwd; echo x > made; ls /proc/self/fd; exit 7', A=weird)
    said, status = ran.end()
    first, *numbers = said.removeprefix(weird).split()
    assert said.startswith(weird)
    assert (first, status) == (str(w.ws), "7")
    assert numbers == ["0", "1", "2", "3"], "3 is the directory that ls lists"
    assert ran.names() == ["made"]


def test_commands_run_at_once_and_each_has_its_own_end(w: Workbench, forker: Forker) -> None:
    some = [Ran(forker, w, f"echo {n} > {n}; exit {n}") for n in range(8)]
    assert [ran.end()[1] for ran in some] == [str(n) for n in range(8)]
    assert [ran.names() for ran in some] == [[str(n)] for n in range(8)]


def test_what_a_command_left_running_ends_with_it_and_a_signal_ends_all(
    w: Workbench, forker: Forker
) -> None:
    said, status = Ran(forker, w, "setsid sleep 1000 & echo $!").end()
    assert status == "0"
    assert not Path(f"/proc/{said.strip()}").exists()
    ran = Ran(forker, w, "sleep 1000 & echo $!; wait")
    child = os.read(ran.heard, 64).decode().strip()
    assert ran.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        ran.process.wait(0)
    ran.process.send_signal(signal.SIGTERM)
    assert ran.end()[1] != "0"
    assert not Path(f"/proc/{child}").exists()
    ran.process.send_signal(signal.SIGTERM)
    assert ran.process.poll() == 0


def test_the_end_of_the_ready_process_is_the_end_of_its_commands(w: Workbench) -> None:
    forker = Forker(sys.executable)
    os.mkfifo(w.ws / "fifo")
    # What it starts beside itself, only a sandbox ends: the first process of a namespace takes all.
    ran = Ran(forker, w, "echo begun; read x < fifo; echo later > made; exit 0")
    assert os.read(ran.heard, 64)
    forker.close()
    assert ran.end() == ("", "")
    assert ran.names() == []


def test_after_the_ready_process_was_killed_the_next_command_runs_once(
    w: Workbench, forker: Forker
) -> None:
    forker.begin()
    assert forker.pid is not None
    os.kill(forker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, forker.pid, os.WEXITED | os.WNOWAIT)
    ran = Ran(forker, w, "echo x >> made; echo y")
    assert ran.end() == ("y\n", "0")
    assert ran.names() == ["made"]


def test_a_directory_that_is_gone_and_a_program_that_is_none_end_that_command_alone(
    w: Workbench, forker: Forker
) -> None:
    view = CommandView(w.session.directory, str(w.ws))
    null = os.open(os.devnull, os.O_RDWR)
    for directory, words in (("/nonexistent", ["/bin/true"]), ("/", ["/nonexistent"]), ("/", [])):
        process = forker.start(
            ForkedCommand(
                words=view.arguments(words, 3),
                environment={},
                directory=directory,
                descriptors={0: null, 1: null, 2: null, 3: null},
            )
        )
        process.wait(60)
        process.close()
    os.close(null)
    view.close()
    assert Ran(forker, w, "exit 3").end()[1] == "3"


def test_a_large_request_arrives_whole(w: Workbench, forker: Forker) -> None:
    large = "é" * 60_000
    assert Ran(forker, w, 'printf %s "$A" | wc -m', A=large, LC_ALL="C.UTF-8").end() == (
        "60000\n",
        "0",
    )
