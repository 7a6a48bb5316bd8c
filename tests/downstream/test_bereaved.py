"""What a sandbox leaves, processes and sockets, is ended and removed whoever of it dies."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.downstream.guardian import descendants
from ironcurtain_proxy.downstream.process import ServerProcess, become_subreaper, spawn
from ironcurtain_proxy.downstream.starting import end_if_bereaved
from ironcurtain_proxy.model.server import ServerSpec

OUTLIVING = (
    "import os, signal, sys\n"
    "if os.fork(): signal.pause()\n"
    "os.setsid()\n"
    "os.write(1, b'started')\n"
    "signal.pause()\n"
)
"""A program with a child that has left its session and holds its pipes."""


@contextmanager
def outliving(directory: Path | None = None) -> Iterator[tuple[ServerProcess, int]]:
    """A server with a child, and the descriptor of their output."""
    process = spawn(
        ServerSpec(name="s", annotations="s", command="python"),
        environment={"PATH": os.environ["PATH"]},
        cwd="/",
        argv=[sys.executable, "-I", "-S", "-c", OUTLIVING],
        directory=None if directory is None else str(directory),
    )
    output, input_ = process.take_wire()
    try:
        assert os.read(output, 7) == b"started"
        yield process, output
    finally:
        os.close(input_)
        os.close(output)
        process.end(0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with what could be a socket, and something else."""
    made = tmp_path / "sockets"
    (made / "deeper").mkdir(parents=True)
    (made / "file").touch()
    (made / "a.sock").touch()
    return made


@pytest.mark.anyio
async def test_what_a_killed_guardian_leaves_is_ended_while_it_still_holds_the_pipes() -> None:
    become_subreaper()
    with outliving() as (process, output):
        left = descendants(process.pid)
        assert len(left) == 2
        os.kill(process.pid, signal.SIGKILL)
        await end_if_bereaved(process, anyio.CapacityLimiter(1))
        assert os.read(output, 1) == b""


@pytest.mark.anyio
async def test_a_guardian_that_ends_by_itself_has_left_nothing_to_look_for() -> None:
    with outliving() as (process, output):
        os.kill(process.pid, signal.SIGTERM)
        await end_if_bereaved(process, anyio.CapacityLimiter(1))
        assert process.exit_status == 128 + signal.SIGTERM
        assert os.read(output, 1) == b""


def test_the_directory_of_a_server_is_removed_with_it(directory: Path) -> None:
    with outliving(directory) as (process, _):
        assert (directory / "a.sock").exists()
        process.end(0)
        assert not directory.exists()


def test_a_server_is_ended_when_a_socket_of_its_directory_is_removed(directory: Path) -> None:
    with outliving(directory) as (process, output):
        (directory / "deeper").rmdir()
        (directory / "file").unlink()
        assert process.exit_status is None
        (directory / "a.sock").unlink()
        assert os.read(output, 1) == b""
        process.end(20)
        assert not directory.exists()


def test_a_server_whose_directory_is_not_there_runs(tmp_path: Path) -> None:
    with outliving(tmp_path / "absent") as (process, _):
        assert process.exit_status is None
