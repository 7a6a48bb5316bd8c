"""All processes of a namespace stand still, whatever they try. With real processes."""

import functools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ironcurtain_proxy.downstream import guardian
from ironcurtain_proxy.sandbox.standstill import Standstill
from tests.e2e.confined_installation import require_sandbox
from tests.program import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")

READY = "import os, signal, threading, time\ndef ready(): os.write(1, b'ready\\n')\n"


@contextmanager
def apart(code: str, most: int = 4096) -> Iterator[tuple[int, Standstill]]:
    """Processes in a namespace of their own, once they say that they are ready."""
    require_sandbox()
    top = subprocess.Popen(
        [
            *(
                "sh",
                "-c",
                'bwrap --die-with-parent --unshare-pid --dev-bind / / --proc /proc -- "$@"; read _',
                "sh",
            ),
            *(sys.executable, "-c", READY + code),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert top.stdout is not None
    try:
        assert top.stdout.readline() == b"ready\n"
        yield top.pid, Standstill(top.pid, most)
    finally:
        for pid in [*guardian.descendants(top.pid), top.pid]:
            with suppress(OSError):
                os.kill(pid, 9)
        top.communicate(timeout=PATIENCE)


def inside(top: int) -> list[int]:
    """The processes in the namespace."""
    found = []
    for pid in guardian.descendants(top):
        with suppress(OSError):
            line = Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0]
            found += [pid] if len(line.split()) > 1 else []
    return found


def ran(top: int) -> list[tuple[str, str]]:
    """How often each thread in the namespace has run."""
    found = []
    for pid in inside(top):
        with suppress(OSError):
            for thread in sorted(Path(f"/proc/{pid}/task").glob("*/status")):
                lines = thread.read_text().splitlines()
                found.append((str(thread), " ".join(lines[-2:])))
    return found


def stops(still: Standstill) -> None:
    still.want()
    still.stop()
    assert still.is_standing, still.last


PINGPONG = """
pids = []
def play():
    while len(pids) < 2: time.sleep(0.001)
    while True:
        os.kill(pids[0] if os.getpid() == pids[1] else pids[1], signal.SIGCONT)
        os.kill(os.getpid(), signal.SIGSTOP)
read, write = os.pipe()
first = os.fork()
if not first:
    pids[:] = [os.getpid(), int(os.read(read, 9))]
    play()
second = os.fork()
if not second:
    pids[:] = [first, os.getpid()]
    os.write(write, str(os.getpid()).encode())
    play()
ready()
time.sleep(600)
"""
LEADERLESS = """
import ctypes
def work():
    while True: time.sleep(0.001)
threading.Thread(target=work).start()
ready()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
VFORK = """
import ctypes, sys
libc = ctypes.PyDLL(None)
ready()
if not libc.vfork():
    libc.sleep(600)
"""
HOPS = """
ready()
if os.fork(): time.sleep(600)
while True:
    if os.fork(): os._exit(0)
"""
FORKS = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ready()
while True:
    if not os.fork():
        if not os.fork(): time.sleep(0.01)
        os._exit(0)
"""
SPAWNS = """
import subprocess
ready()
while True: subprocess.run(["true"])
"""
TRACED = """
import ctypes
libc = ctypes.CDLL(None)
child = os.fork()
if not child:
    libc.ptrace(0, 0, 0, 0)
    while True: time.sleep(0.001)
ready()
while True:
    _, status = os.waitpid(child, 0)
    libc.ptrace(7, child, 0, 0)
"""


@pytest.mark.parametrize(
    "code",
    [PINGPONG, LEADERLESS, VFORK, FORKS, SPAWNS, TRACED],
    ids=["pingpong", "leaderless", "vfork", "forks", "spawns", "traced"],
)
def test_what_stands_still_does_not_run_until_it_is_told_to(code: str) -> None:
    with apart(code) as (top, still):
        stops(still)
        before = ran(top)
        assert before
        for _ in range(20):
            time.sleep(0.01)
            assert ran(top) == before
        still.go_on()
        if code is not VFORK:
            wait_until(lambda: ran(top) != before)


def test_a_process_that_hops_from_pid_to_pid_stands_still_or_is_ended() -> None:
    with apart(HOPS) as (top, still):
        still.want()
        still.stop()
        if still.is_standing:
            before = ran(top)
            assert [ran(top) for _ in range(20)] == 20 * [before]
        else:
            assert "ended" in still.last
            assert inside(top) == []


def test_too_many_processes_are_ended_and_that_is_said() -> None:
    code = "for _ in range(40):\n    if not os.fork(): time.sleep(600)\nready()\ntime.sleep(600)"
    with apart(code, most=30) as (top, still):
        still.want()
        still.stop()
        assert not still.is_standing
        assert still.last == (
            "it has more than 30 processes and threads, so all of its processes were ended"
        )
        wait_until(lambda: inside(top) == [])


def test_what_had_stopped_itself_is_not_continued() -> None:
    code = (
        "child = os.fork()\nif not child:\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    os.write(1, b'woke')\nos.waitpid(child, os.WUNTRACED)\nready()\n"
        "while True: time.sleep(0.001)"
    )
    with apart(code) as (top, still):
        stops(still)
        before = dict(ran(top))
        still.go_on()
        wait_until(lambda: len({*ran(top)} - {*before.items()}) >= 1)
        assert sum("T (stopped)" in Path(one).read_text() for one in before) == 1


def none_is_stopped(top: int) -> bool:
    return not any("T (stopped)" in Path(one).read_text() for one, _ in ran(top))


def test_a_shell_does_not_notice_that_its_child_was_stopped() -> None:
    """Also where it gets the processor late: its child is stopped after it, on another one."""
    code = (
        "here, *_, there = sorted(os.sched_getaffinity(0))\n"
        "child = os.fork()\n"
        "if not child:\n    os.sched_setaffinity(0, [there])\n    while True: time.sleep(0.001)\n"
        "os.sched_setaffinity(0, [here])\n"
        "for _ in range(3):\n    if not os.fork():\n        while True: pass\n"
        "os.nice(10)\nready()\nwhile True:\n"
        "    pid, status = os.waitpid(child, os.WUNTRACED)\n"
        "    os.write(1, b'noticed\\n'); os._exit(1)"
    )
    with apart(code) as (top, still):
        count = len(inside(top))
        for _ in range(10):
            stops(still)
            still.go_on()
        wait_until(functools.partial(none_is_stopped, top))
        assert len(inside(top)) == count


def test_what_is_to_go_on_while_it_is_being_stopped_goes_on() -> None:
    with apart(SPAWNS) as (top, still):
        for _ in range(50):
            still.want()
            thread = threading.Thread(target=still.stop)
            thread.start()
            still.go_on()
            thread.join(PATIENCE)
            assert not still.is_standing
        before = ran(top)
        wait_until(lambda: ran(top) != before)


def test_what_woke_by_itself_is_stopped_again() -> None:
    with apart(SPAWNS) as (top, still):
        stops(still)
        for pid in inside(top):
            with suppress(ProcessLookupError):  # it was ending when it was seen
                os.kill(pid, 18)
        still.keep()
        assert still.is_standing
        before = ran(top)
        assert [ran(top) for _ in range(20)] == 20 * [before]


def test_at_the_end_only_the_server_goes_on() -> None:
    code = "left = os.fork()\nready() if left else None\nwhile True: time.sleep(0.001)"
    with apart(code) as (top, still):
        stops(still)
        *chain, left = sorted(inside(top))
        still.finish(chain)
        wait_until(lambda: "T (stopped)" not in Path(f"/proc/{chain[-1]}/status").read_text())
        assert "T (stopped)" in Path(f"/proc/{left}/status").read_text()
        still.want()
        still.stop()
        still.go_on()
        assert "T (stopped)" in Path(f"/proc/{left}/status").read_text()
