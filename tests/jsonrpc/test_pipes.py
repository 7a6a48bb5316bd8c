"""Lines over real pipes: framing, caps, waiting, and ends."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.jsonrpc import pipes
from ironcurtain_proxy.jsonrpc.pipes import LineReader, Oversize, open_reader, open_writer

pytestmark = pytest.mark.anyio


async def drained(reader: LineReader) -> list[bytes | Oversize]:
    lines: list[bytes | Oversize] = []
    while (line := await reader.receive()) is not None:
        lines.append(line)
    return lines


def feed(fd: int, data: bytes) -> threading.Thread:
    """Write everything and close, from a thread, as another process would."""

    def write() -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except BrokenPipeError:
            pass
        finally:
            os.close(fd)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


async def test_lines_come_in_order_without_blank_ones_and_the_last_may_lack_its_newline() -> None:
    read, write = os.pipe()
    feed(write, b"one\n\n  \ntwo\r\nthree")
    assert await drained(await open_reader(read)) == [b"one", b"two\r", b"three"]


async def test_a_large_line_comes_whole() -> None:
    read, write = os.pipe()
    large = b"x" * (20 << 20)
    feed(write, b"a\n" + large + b"\nb\n")
    assert await drained(await open_reader(read)) == [b"a", large, b"b"]


async def test_a_line_over_the_cap_is_thrown_away_and_the_next_one_is_not() -> None:
    read, write = os.pipe()
    feed(write, b"a\n{" + b"x" * 3_000_000 + b"}\nb\n")
    first, large, last = await drained(await open_reader(read, max_line=1_000_000))
    assert (first, last) == (b"a", b"b")
    assert isinstance(large, Oversize)
    assert large.size == 3_000_002
    assert large.head == b"{" + b"x" * 4095
    assert large.tail == b"x" * 4095 + b"}"


@given(
    lines=st.lists(st.text("ab", min_size=1, max_size=40).map(str.encode), max_size=8),
    cuts=st.lists(st.integers(1, 30), max_size=30),
    cap=st.integers(5, 30),
    large=st.integers(1, 40),
)
def test_how_the_bytes_are_cut_makes_no_difference(
    lines: list[bytes], cuts: list[int], cap: int, large: int
) -> None:
    reader = LineReader(cap)
    data = b"".join(line + b"\n" for line in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipes, "_LARGE_PART", large)
        for cut in cuts:
            reader.data_received(data[:cut])
            data = data[cut:]
        reader.data_received(data)
    got = [(item.size, item.head) if isinstance(item, Oversize) else item for item in reader._lines]
    assert got == [line if len(line) <= cap else (len(line), line) for line in lines]


def test_a_read_of_blanks_is_not_taken_apart_and_ends_a_line_that_had_begun() -> None:
    """64 KiB of them are as many lines: without end they took the time of hundreds of calls."""

    class Whole(bytes):
        def split(self, *_: object) -> list[bytes]:
            raise AssertionError

    reader = LineReader(30)
    for blanks in (b"\n" * 9, b"\r\n" * 9, b"\r", b" \t"):
        reader.data_received(Whole(blanks))
    for data in (b'{"a":', b"\r\n ", b"\n", b"1}\n\n", b"\n"):
        reader.data_received(data)
    assert [*reader._lines] == [b'{"a":\r', b"1}"]


async def test_who_is_not_listened_to_has_to_wait() -> None:
    read, write = os.pipe()
    reader = await open_reader(read)
    os.set_blocking(write, False)
    line = b"y" * 999 + b"\n"
    written = 0
    refused = 0
    while refused < 20:  # Until the pipe stays full, however often the loop has turned.
        try:
            written += os.write(write, line * 64)
            refused = 0
        except BlockingIOError:
            refused += 1
        await anyio.sleep(0.001)
    assert written < 16 << 20
    for _ in range(written // len(line) // 2):
        assert await reader.receive() == line[:-1]
    await anyio.sleep(0.01)
    assert os.write(write, line) == len(line)
    os.close(write)
    reader.close()


async def test_lines_offered_to_a_taker_stay_in_order_with_those_it_refuses() -> None:
    read, write = os.pipe()
    reader = await open_reader(read)
    taken: list[bytes] = []

    def take(line: bytes) -> bool:
        if line.startswith(b"t"):
            taken.append(line)
            return True
        return False

    reader.offer_to(take)
    queued: list[bytes | Oversize] = []

    async def receive() -> None:
        queued.extend(await drained(reader))

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        os.write(write, b"t1\nr1\nt2\n")
        os.close(write)
    assert (taken, queued) == ([b"t1"], [b"r1", b"t2"])


async def test_a_writer_waits_for_a_slow_reader_and_every_line_arrives_whole() -> None:
    read, write = os.pipe()
    writer = await open_writer(write)
    lines = [b"%d" % n * 200_000 + b"\n" for n in range(10, 30)]
    got: list[bytes | Oversize] = []

    async def send() -> None:
        for line in lines:
            await writer.send(line)
        await writer.drain_and_close()

    async with anyio.create_task_group() as group:
        group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        assert 0 < writer.backlog < 2 << 20
        got += await drained(await open_reader(read))
    assert got == [line[:-1] for line in lines]


async def test_a_cancelled_send_leaves_no_half_line() -> None:
    read, write = os.pipe()
    writer = await open_writer(write)
    with anyio.move_on_after(0.05):
        await writer.send(b"x" * 5_000_000 + b"\n")
    writer.write(b"next\n")
    reader = await open_reader(read)
    first, second = await reader.receive(), await reader.receive()
    assert isinstance(first, bytes)
    assert (len(first), second) == (5_000_000, b"next")
    writer.abort()
    reader.close()


async def test_sending_into_a_closed_pipe_is_an_error_also_for_who_waits() -> None:
    read, write = os.pipe()
    writer = await open_writer(write)
    ended: list[bool] = []

    async def send() -> None:
        with pytest.raises(BrokenPipeError):
            await writer.send(b"x" * 10_000_000 + b"\n")
        ended.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        os.close(read)
    assert ended
    with pytest.raises(BrokenPipeError):
        writer.write(b"x\n")
    assert writer.is_closed


async def test_a_file_and_dev_null_can_be_read_and_a_file_can_be_written(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"one\ntwo\n")
    reader = await open_reader(os.open(source, os.O_RDONLY))
    assert await drained(reader) == [b"one", b"two"]
    assert await drained(await open_reader(os.open(os.devnull, os.O_RDONLY))) == []
    writer = await open_writer(os.open(target, os.O_WRONLY | os.O_CREAT))
    await writer.send(b"line\n")
    await writer.drain_and_close()
    assert target.read_bytes() == b"line\n"
    with pytest.raises(BrokenPipeError):
        await writer.send(b"line\n")


def test_the_wire_is_out_of_reach_of_prints_and_of_children() -> None:
    program = """
import os, subprocess
from ironcurtain_proxy.jsonrpc.pipes import claim_stdio
read, write = claim_stdio()
print("stray", flush=True)
subprocess.run(["sh", "-c", "echo child; cat"])
os.write(write, os.read(read, 100))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"wire", capture_output=True, check=True
    )
    assert done.stdout == b"wire"
    assert done.stderr == b"stray\nchild\n"
