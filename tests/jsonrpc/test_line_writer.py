"""Large lines go out in pieces, and whole, and in order with all others."""

import os

import anyio
import anyio.to_thread
import pytest

from ironcurtain_proxy.jsonrpc.pipes import open_writer
from ironcurtain_proxy.jsonrpc.sending import Batch

pytestmark = pytest.mark.anyio

LARGE = bytes(range(1, 10)) * (5 << 16)


def read_to_the_end(fd: int) -> bytes:
    found = bytearray()
    while data := os.read(fd, 1 << 16):
        found += data
    os.close(fd)
    return bytes(found)


async def test_lines_before_and_after_a_large_one_keep_their_order() -> None:
    read, write = os.pipe()
    batch = Batch()
    writer = await open_writer(write, batch=batch)
    with batch:
        writer.write(b"one\n")
        writer.write(LARGE + b"\n")
        writer.write(b"two\n")
        writer.write_parts(b"three,", LARGE, b"four\n")
        writer.write(b"five\n")
    sent = b"one\n%b\ntwo\nthree,%bfour\nfive\n" % (LARGE, LARGE)
    # The pipe holds a part of it.
    assert len(sent) > writer.backlog > len(LARGE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.drain_and_close)
        assert await anyio.to_thread.run_sync(read_to_the_end, read) == sent
    assert writer.backlog == 0


async def test_who_sends_a_large_line_waits_until_all_of_it_is_on_its_way() -> None:
    read, write = os.pipe()
    writer = await open_writer(write)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.send, LARGE)
        await anyio.wait_readable(read)
        assert writer.backlog > 1 << 20
        with anyio.move_on_after(0) as waited:
            await writer.until_uncongested()
        assert waited.cancelled_caught
        tasks.cancel_scope.cancel()
    writer.abort()
    os.close(read)


async def test_what_is_left_of_a_large_line_is_forgotten_when_its_reader_goes() -> None:
    read, write = os.pipe()
    writer = await open_writer(write)
    writer.write(LARGE)
    os.close(read)
    await writer.until_closed()
    assert writer.is_closed
    assert writer.backlog == 0
    with pytest.raises(BrokenPipeError):
        writer.write(b"more\n")
    await writer.drain_and_close()
