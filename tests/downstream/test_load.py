"""What too much load of a sandbox ends, and what it leaves alone. With real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ironcurtain_proxy.downstream.load import DiskReserve, Load, load_of
from ironcurtain_proxy.sandbox.profile import SandboxLimits
from tests.downstream.scripted_servers import is_alive
from tests.program import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
GENEROUS = {"processes": 4_000_000, "memory_mb": 1 << 30, "free_disk_mb": 0}


@contextmanager
def guarded(command: str) -> Iterator[tuple[int, list[int]]]:
    """A process that stands for the guardian, and those below it, once they say that they are."""
    wrapped = f"{sys.executable} -c '{command}'"
    top = subprocess.Popen(
        ["sh", "-c", f"{wrapped}; read _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert top.stdout is not None
    try:
        yield top.pid, [int(word) for word in top.stdout.readline().split()]
    finally:
        os.killpg(top.pid, signal.SIGKILL)
        top.communicate(timeout=PATIENCE)


HOLDS = 'import os,time\na=b"x"*(150<<20)\nprint(os.getpid(),flush=True)\ntime.sleep(600)'
FORKS = """
import os, time
pids = [os.getpid()]
for _ in range(30):
    pid = os.fork()
    if not pid:
        time.sleep(600)
        os._exit(0)
    pids.append(pid)
print(*pids, flush=True)
time.sleep(600)
"""


def test_the_process_that_uses_more_memory_than_all_may_is_ended() -> None:
    with guarded(HOLDS) as (guardian, pids):
        load = Load(guardian, SandboxLimits(**{**GENEROUS, "memory_mb": 100}), ())
        load.look()
        wait_until(lambda: not any(map(is_alive, pids)))
        assert load.ended == 1
        assert "more than 100 MiB of memory, so python" in load.take_news()
        assert load.take_news() == ""


def test_processes_within_the_limits_are_left_alone() -> None:
    with guarded(HOLDS) as (guardian, pids):
        load = Load(guardian, SandboxLimits(**{**GENEROUS, "memory_mb": 400}), ())
        assert load.look() > 0
        assert all(map(is_alive, pids))
        assert (load.ended, load.last) == (0, "")


def test_memory_that_processes_share_counts_once() -> None:
    command = HOLDS.replace("print(", "[os.fork() or time.sleep(600) for _ in 2*[0]]\nprint(")
    with guarded(command) as (guardian, pids):
        load = Load(guardian, SandboxLimits(**{**GENEROUS, "memory_mb": 400}), ())
        load.look()
        assert load.ended == 0
        assert all(map(is_alive, pids))


def test_more_processes_than_may_be_are_ended_with_all_others() -> None:
    with guarded(FORKS) as (guardian, pids):
        load = Load(guardian, SandboxLimits(**{**GENEROUS, "processes": 20}), ())
        load.look()
        wait_until(lambda: not any(map(is_alive, pids)))
        assert "more than 20" in load.last


@pytest.mark.parametrize("what", ["bytes", "files"])
def test_a_disk_that_fills_ends_what_may_write_there(tmp_path: Path, what: str) -> None:
    free = os.statvfs(tmp_path)
    reserve = {"bytes": 0, "files": 0, what: 1 << 60}
    with guarded(HOLDS) as (guardian, pids):
        load = Load(guardian, SandboxLimits(**GENEROUS), (DiskReserve(str(tmp_path), **reserve),))
        load.look()
        if what == "bytes" or free.f_files:
            wait_until(lambda: not any(map(is_alive, pids)))
            assert f"are left free in {tmp_path}" in load.last


def test_a_disk_that_is_nearly_full_at_the_start_keeps_half_of_what_is_left(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    load = load_of(os.getpid(), SandboxLimits(free_disk_mb=1 << 30), [str(tmp_path)])
    assert load is not None
    (reserve,) = load.reserves
    assert 0 < reserve.bytes < free


def test_one_disk_is_looked_at_once_and_a_missing_directory_never(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    places = [str(tmp_path), str(tmp_path / "below"), str(tmp_path / "absent")]
    load = load_of(os.getpid(), SandboxLimits(), places)
    assert load is not None
    assert [reserve.directory for reserve in load.reserves] == places[:1]
    off = load_of(os.getpid(), SandboxLimits(free_disk_mb=0), places)
    assert off is not None
    assert off.reserves == ()
