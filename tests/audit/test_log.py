"""A record is written before `record` returns, or nothing is ever recorded again."""

import os
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.audit.files import read_head, rotated_paths
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.recovery import open_log
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.audit.writer import LogSettings, OnHang
from ironcurtain_proxy.errors import AuditError
from tests.audit.specimens import intent, lines_of, record, write_log
from tests.program import until

pytestmark = pytest.mark.anyio

Opener = Callable[..., AuditLog]


def never(why: str) -> None:
    raise AssertionError(why)


@pytest.fixture(params=["through the thread", "on the loop", "fsync always"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens logs in each of the ways they are written; closes them."""
    logs: list[AuditLog] = []

    def opener(max_bytes: int | None = None) -> AuditLog:
        always = request.param == "fsync always"
        # The disk of a busy machine takes seconds; what a hanging disk does is tried below.
        settings = LogSettings(
            fsync="always" if always else "group", max_bytes=max_bytes, write_deadline=60
        )
        on_hang: OnHang | None = never if request.param == "on the loop" else None
        logs.append(AuditLog.open(tmp_path / "audit.jsonl", settings, on_hang))
        return logs[-1]

    yield opener
    for log in logs:
        log.close()


@pytest.mark.requirement("C-35", "C-36")
async def write(log: AuditLog, number: int) -> None:
    await log.record(record(number))


async def test_a_record_is_in_the_file_when_record_returns(opened: Opener) -> None:
    log = opened()
    for number in range(1, 50):
        await log.record(record(number))
        assert len(lines_of(log.path)) == number


async def test_records_of_concurrent_calls_are_all_written_in_one_chain(opened: Opener) -> None:
    log = opened()

    async def call(number: int) -> None:
        await log.record(intent(number))
        await anyio.lowlevel.checkpoint()
        await log.record(record(number))
        ours = [
            line for line in lines_of(log.path) if line["requestId"] == intent(number).request_id
        ]
        assert len(ours) == 2

    async with anyio.create_task_group() as group:
        for number in range(1, 101):
            group.start_soon(call, number)
    log.close()
    lines = lines_of(log.path)
    assert [line["seq"] for line in lines] == list(range(1, 201))
    verdict = verify(log.path)
    assert verdict.problems == ()
    assert verdict.unfinished == ()


async def test_a_cancelled_caller_loses_no_record_and_tears_no_line(opened: Opener) -> None:
    log = opened()
    async with anyio.create_task_group() as group:
        for number in range(1, 41):
            group.start_soon(write, log, number)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    await log.record(record(41))
    log.close()
    written = {line["requestId"] for line in lines_of(log.path)}
    assert written == {record(number).request_id for number in range(1, 42)}
    assert verify(log.path).problems == ()


async def test_after_close_nothing_is_recorded(opened: Opener) -> None:
    log = opened()
    await log.record(record(1))
    log.close()
    log.close()
    with pytest.raises(AuditError, match="closed"):
        await log.record(record(2))
    assert len(lines_of(log.path)) == 1


async def test_close_writes_what_is_still_waiting(opened: Opener) -> None:
    log = opened()
    async with anyio.create_task_group() as group:
        for number in range(1, 11):
            group.start_soon(write, log, number)
        await anyio.lowlevel.checkpoint()
        log.close()
    assert len(lines_of(log.path)) == 10
    assert verify(log.path).problems == ()


async def test_the_head_file_names_the_last_line_after_close(opened: Opener) -> None:
    """G20."""
    log = opened()
    for number in range(1, 6):
        await log.record(record(number))
    log.close()
    head = read_head(log.path)
    assert head is not None
    assert head.seq == 5
    assert head.digest == sha256(log.path.read_bytes().splitlines()[-1]).hexdigest()


async def test_the_head_file_follows_while_the_log_is_open(opened: Opener) -> None:
    log = opened()
    await log.record(record(1))
    await until(lambda: read_head(log.path) == log._last)  # another thread writes it


async def test_a_full_file_is_rotated_and_the_chain_goes_on(opened: Opener) -> None:
    log = opened(max_bytes=2000)
    for number in range(1, 31):
        await log.record(record(number))
    log.close()
    rotated = rotated_paths(log.path)
    assert len(rotated) > 3
    assert rotated[0].name == "audit.jsonl.000001"
    assert all(path.stat().st_size <= 2000 for path in [*rotated, log.path])
    verdict = verify(log.path)
    assert (verdict.problems, verdict.lines) == ((), 30)
    again = opened(max_bytes=2000)
    await again.record(record(31))
    again.close()
    assert verify(log.path).last.seq == 31
    assert verify(log.path).problems == ()


async def test_a_log_that_was_deleted_while_open_latches(opened: Opener) -> None:
    log = opened()
    await log.record(record(1))
    log.path.unlink()
    await latches(log, "deleted")


async def test_a_log_that_was_replaced_while_open_latches(opened: Opener, tmp_path: Path) -> None:
    log = opened()
    await log.record(record(1))
    elsewhere = tmp_path / "elsewhere"
    log.path.rename(elsewhere)
    log.path.symlink_to(elsewhere)
    await latches(log, "replaced")
    assert len(lines_of(elsewhere)) == 1


async def test_a_log_that_was_cut_while_open_latches(opened: Opener) -> None:
    log = opened()
    await log.record(record(1))
    os.truncate(log.path, 10)
    await latches(log, "changed")


async def latches(log: AuditLog, why: str) -> None:
    """The next record fails and says little; all later ones fail; the operator learns why."""
    for number in (2, 3):
        with pytest.raises(AuditError) as caught:
            await log.record(record(number))
        assert str(log.path) not in str(caught.value)
    assert log.latched is not None
    assert why in log.latched
    assert str(log.path) in log.latched
    assert "\n" not in log.latched


# --- a disk that does not do what it should ------------------------------------------------------


class Disk:
    """Stands for `os.write`: can hang, be slow to return, or take only a part."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.takes: list[int] = []

    def write(self, file: int, data: bytes) -> int:
        self.gate.wait()
        if self.takes:
            room = self.takes.pop(0)
            if room < 0:
                raise OSError(28, "No space left on device")
            return os.write(file, data[:room])
        return os.write(file, data)


@pytest.fixture
def disk() -> Iterator[Disk]:
    one = Disk()
    yield one
    one.gate.set()


def on(disk: Disk, path: Path, deadline: float = 0.2) -> AuditLog:
    return AuditLog(open_log(path), LogSettings(write_deadline=deadline), None, disk.write)


async def test_a_write_that_hangs_is_given_up_and_the_loop_goes_on(
    disk: Disk, tmp_path: Path
) -> None:
    log = on(disk, tmp_path / "audit.jsonl")
    await log.record(record(1))
    disk.gate.clear()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.005)
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        with pytest.raises(AuditError):
            await log.record(record(2))
        group.cancel_scope.cancel()
    assert ticks > 1
    assert log.latched is not None
    assert "longer than 0.2 s" in log.latched
    with pytest.raises(AuditError):
        await log.record(record(3))
    log.close()


async def test_all_who_wait_behind_a_hanging_write_are_told(disk: Disk, tmp_path: Path) -> None:
    log = on(disk, tmp_path / "audit.jsonl")
    disk.gate.clear()
    refused: list[int] = []

    async def call(number: int) -> None:
        with pytest.raises(AuditError):
            await log.record(record(number))
        refused.append(number)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(call, number)
    assert sorted(refused) == list(range(20))
    log.close()


async def test_a_write_that_is_slow_but_in_time_is_waited_for(disk: Disk, tmp_path: Path) -> None:
    log = on(disk, tmp_path / "audit.jsonl", deadline=5)
    disk.gate.clear()
    async with anyio.create_task_group() as group:
        for number in range(1, 6):
            group.start_soon(write, log, number)
        await anyio.sleep(0.02)
        assert lines_of(log.path) == []
        disk.gate.set()
    assert len(lines_of(log.path)) == 5
    log.close()
    assert verify(log.path).problems == ()


async def test_closing_while_a_write_hangs_comes_to_an_end(disk: Disk, tmp_path: Path) -> None:
    log = on(disk, tmp_path / "audit.jsonl", deadline=0.1)
    disk.gate.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(expect_refusal, log)
        await anyio.sleep(0.02)
        log.close()
    assert log.latched is not None


async def test_what_a_hanging_write_brings_after_the_end_is_no_strangers(
    disk: Disk, tmp_path: Path
) -> None:
    log = on(disk, tmp_path / "audit.jsonl", deadline=0.1)
    await log.record(record(1))
    disk.gate.clear()
    await expect_refusal(log)
    log.close()
    disk.gate.set()
    await until(lambda: log.path.read_bytes().count(b"\n") >= 2 and not verify(log.path).problems)


async def expect_refusal(log: AuditLog) -> None:
    with pytest.raises(AuditError):
        await log.record(record(9))


async def test_a_write_that_takes_a_part_is_completed(disk: Disk, tmp_path: Path) -> None:
    log = on(disk, tmp_path / "audit.jsonl")
    disk.takes = [10, 20]
    await log.record(record(1))
    log.close()
    assert verify(log.path).problems == ()


async def test_a_write_that_fails_half_way_leaves_no_torn_line(disk: Disk, tmp_path: Path) -> None:
    log = on(disk, tmp_path / "audit.jsonl")
    await log.record(record(1))
    disk.takes = [10, -1]
    await latches(log, "No space left on device")
    log.close()
    assert log.path.read_bytes().endswith(b"}\n")
    verdict = verify(log.path)
    assert (verdict.problems, verdict.lines) == ((), 1)


async def test_the_thread_notices_a_write_that_hangs_on_the_loop(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can only end the process; here it opens the gate instead."""
    told: list[str] = []

    def on_hang(why: str) -> None:
        told.append(why)
        disk.gate.set()

    # How fast the disk was before would say whether the loop writes; a busy machine is slow.
    monkeypatch.setattr(AuditLog, "_is_inline_safe", lambda _log, _size: True)
    settings = LogSettings(write_deadline=0.2)
    log = AuditLog(open_log(tmp_path / "audit.jsonl"), settings, on_hang, disk.write)
    disk.gate.clear()
    await log.record(record(1))
    assert set(told) == {"a write has not returned for 0.2 s"}
    assert lines_of(log.path)
    log.close()


async def test_after_a_pause_the_loop_does_not_trust_the_disk(disk: Disk, tmp_path: Path) -> None:
    """A disk that began to hang meanwhile would take the loop with it."""
    settings = LogSettings(write_deadline=0.2)
    log = AuditLog(open_log(tmp_path / "audit.jsonl"), settings, never, disk.write)
    await log.record(record(1))
    await anyio.sleep(0.3)
    disk.gate.clear()
    with pytest.raises(AuditError):
        await log.record(record(2))
    log.close()


async def test_one_log_serves_two_loops_one_after_the_other(tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(lambda: write_log(tmp_path / "audit.jsonl", 3))
    await anyio.to_thread.run_sync(lambda: write_log(tmp_path / "audit.jsonl", 3, first=4))
    assert verify(tmp_path / "audit.jsonl").last.seq == 6
