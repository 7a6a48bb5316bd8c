"""A process that is paused for longer than its deadlines, while the audit log is written.

SIGSTOP stands for all that pauses a process: a shell's Ctrl-Z, a container, a virtual machine.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ironcurtain_proxy.audit.verify import verify
from tests.program import PATIENCE

PAUSE = 2.5
"""Seconds: longer than the deadlines below."""

WRITER = """
import os, signal, sys, threading, time, anyio
from pathlib import Path
from ironcurtain_proxy.audit import writer
from ironcurtain_proxy.audit.writer import end_process
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.recovery import open_log
from ironcurtain_proxy.audit.writer import LogSettings
from tests.audit.specimens import record

path, where = Path(sys.argv[1]), sys.argv[2]
writer.STUCK_SECONDS = 2.0
writes = 0
syncing_now, may_sync = threading.Event(), threading.Event()
fsync = os.fsync

def pause():
    os.kill(os.getpid(), signal.SIGSTOP)

def write(file, data):
    global writes
    writes += 1
    if writes == 2 and where != "sync":
        pause()
        time.sleep(0.1)  # the other thread comes first
    return os.write(file, data)

def slow_fsync(file):
    if where == "sync" and threading.current_thread().name.startswith("sync"):
        syncing_now.set()
        may_sync.wait(20)
    fsync(file)

AuditLog._is_inline_safe = lambda log, size: where == "loop"
os.fsync = slow_fsync
log = AuditLog(open_log(path), LogSettings(write_deadline=2.0), end_process, write)

async def main():
    await log.record(record(1))
    if where == "sync":
        await anyio.to_thread.run_sync(syncing_now.wait)
    await log.record(record(2))
    if where == "sync":
        pause()
        await log.record(record(3))
        may_sync.set()
    await log.record(record(4))

anyio.run(main)
print(log.latched)
log.close()
"""


@pytest.mark.parametrize("where", ["thread", "loop", "sync"])
def test_a_pause_in_the_middle_of_a_write_is_no_failure_of_the_disk(
    tmp_path: Path, where: str
) -> None:
    log = tmp_path / "audit.jsonl"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(log), where],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    _, status = os.waitpid(writer.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    time.sleep(PAUSE)
    os.kill(writer.pid, signal.SIGCONT)
    said, _ = writer.communicate(timeout=PATIENCE)
    assert said == "None\n"
    verdict = verify(log)
    assert (verdict.problems, verdict.lines) == ((), 4 if where == "sync" else 3)
