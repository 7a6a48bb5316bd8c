"""A lack of descriptors is no fault of the disk: the log goes on."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ironcurtain_proxy.audit.files import read_head, rotated_paths
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.audit.writer import LogSettings
from tests.audit.specimens import record, write_log
from tests.program import until

pytestmark = pytest.mark.anyio

KILLED_AFTER_THE_FIRST_RECORD = """
import os, signal, sys
from pathlib import Path
import anyio
from ironcurtain_proxy.audit.log import AuditLog
from tests.audit.specimens import record

log = AuditLog.open(Path(sys.argv[1]))

async def main() -> None:
    await log.record(record(1))
    os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Whatever is open stays open; nothing more can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_moment_without_descriptors_does_not_stop_the_log(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl")
    with no_descriptors():
        await log.record(record(1))
        await until(lambda: log._syncer._headless is not None or log.latched)  # a thread
        await log.record(record(2))
    assert log.latched is None
    await until(lambda: read_head(log.path) == log._last)  # another thread writes it
    log.close()
    assert verify(log.path).problems == ()
    assert verify(log.path).notes == ()


async def test_a_full_file_is_written_on_where_no_other_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    first = AuditLog.open(path, LogSettings(max_bytes=2000))
    for number in range(1, 21):
        await first.record(record(number))
    first.close()
    before = {one.name: one.read_bytes() for one in rotated_paths(path)}
    assert len(before) > 1
    log = AuditLog.open(path, LogSettings(max_bytes=2000))
    with no_descriptors():
        for number in range(21, 30):
            await log.record(record(number))
    assert log.latched is None
    await log.record(record(30))
    log.close()
    after = {one.name: one.read_bytes() for one in rotated_paths(path)}
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert (verify(path).problems, verify(path).lines) == ((), 30)


def test_a_proxy_killed_right_after_its_first_record_leaves_a_whole_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_THE_FIRST_RECORD, str(path)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert killed.returncode == -signal.SIGKILL
    assert (verify(path).problems, verify(path).lines) == ((), 1)
    log = write_log(path, 1, first=2)
    assert log.notices == ()
