"""Real processes, killed in the middle; real disks, full to the last byte."""

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.shipping import _append
from ironcurtain_proxy.audit.verify import LogHead, publish, verify
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_directory import MailboxDirectory
from ironcurtain_proxy.private_files import append_line, write_whole
from tests.audit.specimens import lines_of, write_log
from tests.fakes import FakeClock
from tests.program import PATIENCE, wait_until

ENDLESS = """
import sys, anyio
from pathlib import Path
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.errors import AuditError
from tests.audit.specimens import record
log = AuditLog.open(Path(sys.argv[1]), LogSettings(max_bytes=int(sys.argv[2]) or None))
async def call(number):
    try:
        while True:
            await log.record(record(number, {"arguments": {"text": "x" * 5000}}))
            sys.stdout.write("ok\\n")
            sys.stdout.flush()
    except AuditError as error:
        sys.stdout.write(f"{error}\\n{log.latched}\\n")
        sys.stdout.flush()
        sys.stdin.read()
async def main():
    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(call, number)
anyio.run(main)
"""


def start(path: Path, max_bytes: int = 0, limit: int | None = None) -> subprocess.Popen[str]:
    """A process that records without end, and says `ok` for each record."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path), str(max_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=limited,  # noqa: PLW1509  the child has one thread
    )


@pytest.mark.parametrize("max_bytes", [0, 40_000], ids=["one file", "rotated"])
@pytest.mark.parametrize("many", [1, 40, 333])
def test_a_killed_process_loses_nothing_that_was_acknowledged(
    tmp_path: Path, many: int, max_bytes: int
) -> None:
    path = tmp_path / "audit.jsonl"
    with start(path, max_bytes) as process:
        assert process.stdout is not None
        for _ in range(many):
            assert process.stdout.readline() == "ok\n"
        process.send_signal(signal.SIGKILL)
        acknowledged = many + process.stdout.read().count("ok\n")
    AuditLog.open(path).close()
    verdict = verify(path)
    # A head that was on its way is older than the log; the lines are whole.
    assert {problem.where for problem in verdict.problems} <= {"audit.jsonl.head"}
    assert verdict.lines >= acknowledged
    write_log(path, 2, first=1001)
    assert verify(path).problems == ()


# --- no room -------------------------------------------------------------------------------------


def read_until_latched(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How many records were acknowledged, and what the operator is told."""
    assert process.stdout is not None
    for acknowledged, line in enumerate(process.stdout):
        if line != "ok\n":
            assert line.startswith("no audit record can be written")
            return acknowledged, process.stdout.readline()
    raise AssertionError


def test_a_limit_on_the_size_of_files_latches(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with start(path, limit=33_333) as process:
        acknowledged, told = read_until_latched(process)
        process.kill()
    assert "File too large" in told
    assert path.read_bytes().endswith(b"}\n")
    assert acknowledged <= len(lines_of(path)) <= acknowledged + 4
    write_log(path, 1, first=1001)
    assert verify(path).problems == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a disk")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_full_disk_latches_and_what_was_written_is_whole(small_disk: Path) -> None:
    path = small_disk / "audit.jsonl"
    with start(path) as process:
        acknowledged, told = read_until_latched(process)
        # What it could still write is not called another's while it runs.
        wait_until(lambda: not verify(path).problems)
        process.kill()
    assert "No space left on device" in told
    assert path.read_bytes().endswith(b"}\n")
    assert acknowledged <= len(lines_of(path))
    verdict = verify(path)
    assert verdict.problems == ()
    assert verdict.lines == len(lines_of(path))
    assert verdict.last.seq == verdict.lines


def test_a_disk_that_is_full_at_the_start_is_refused_or_latches(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 40_000)
    with start(small_disk / "audit.jsonl", 30_000) as process:
        acknowledged, told = read_until_latched(process)
        process.kill()
    assert acknowledged >= 1
    assert "No space left on device" in told
    # Rotated or not, no line is torn.
    for file in small_disk.glob("audit.jsonl*"):
        if file.suffix in {".jsonl", ".000001"}:
            assert file.stat().st_size == 0 or file.read_bytes().endswith(b"}\n")


def test_the_first_start_on_a_full_disk_says_that_the_disk_is_full(small_disk: Path) -> None:
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(b"x" * 512):
            pass
    with pytest.raises(ConfigurationError, match="No space left on device"):
        AuditLog.open(small_disk / "audit.jsonl", LogSettings())


FACE = LogHead(machine="m", log="audit.jsonl", seq=1, digest="0" * 64, at=FakeClock().now())


def put(path: Path, number: int) -> None:
    place = MailboxDirectory.open(path.parent, create=False)
    try:
        os.close(place.put(f"{path.name}.{number}", b"x" * 3000))
    finally:
        place.close()


def refused(write: Callable[[Path, int], object], path: Path) -> int:
    """Write until the disk is full. Return the number that was refused."""
    for number in range(100, 1000):
        try:
            write(path, number)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return number
            raise
    raise AssertionError("the disk is never full")


WRITERS: dict[str, Callable[[Path, int], object]] = {
    "a head": lambda path, number: publish(path, replace(FACE, seq=number)),
    "a line": lambda path, number: append_line(path, b"%d" % number * 300 + b"\n", 1 << 20),
    "a file": lambda path, number: write_whole(path, b"%d" % number * number * 30, locked=True),
    "a mailbox": put,
    "records": lambda path, number: _append(path, (b"%d" % number * 300,)),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_is_told_and_leaves_nothing_torn(kind: str, small_disk: Path) -> None:
    write, path = WRITERS[kind], small_disk / "place" / "file"
    path.parent.mkdir(mode=0o700)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 40_000)
    number = refused(write, path)
    kept = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    assert len(kept) == (number - 100 if kind == "a mailbox" else 1)
    if kind not in {"a file", "a mailbox", "records"}:
        assert kept["file"].count(b"\n") == number - 100
        assert kept["file"].endswith(b"\n")
    ballast.unlink()
    write(path, number)
    found = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    assert kept.keys() <= found.keys()
    if kind == "a file":
        assert kept["file"] == b"%d" % (number - 1) * (number - 1) * 30
    elif kind == "records":
        wanted = [b"%d" % one * 300 for one in range(100, number + 1)]
        assert found["file"].splitlines() == wanted


# --- a write that hangs on the loop --------------------------------------------------------------

HANGING = """
import os, sys, threading, anyio
from pathlib import Path
from ironcurtain_proxy.audit.writer import end_process
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.recovery import open_log
from ironcurtain_proxy.audit.writer import LogSettings
from tests.audit.specimens import record
def write(file, data):
    # On a busy machine a record may be handed to the thread, where a hang does no harm to the loop.
    if threading.current_thread() is threading.main_thread():
        threading.Event().wait()
    return os.write(file, data)
log = AuditLog(open_log(Path(sys.argv[1])), LogSettings(write_deadline=0.2), end_process, write)
async def main():
    for number in range(1, 10_000):
        await log.record(record(number))
anyio.run(main)
"""


def test_a_write_that_hangs_on_the_loop_ends_the_process(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING, str(tmp_path / "audit.jsonl")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 70
    assert ended.stderr == (
        "ironcurtain-proxy: audit log: a write has not returned for 0.2 s; ending\n"
    )
