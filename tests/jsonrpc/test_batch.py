"""What one read brings is done in one go, and a task goes on where its answer is read."""

import asyncio  # noqa: TID251  futures and transports
from collections.abc import Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ironcurtain_proxy.jsonrpc.pipes import LineReader
from ironcurtain_proxy.jsonrpc.sending import Batch, LineWriter, PromptFuture

pytestmark = pytest.mark.anyio


class Pipe(asyncio.WriteTransport):
    """Keeps what each write held."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_shut = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_shut


def written() -> tuple[Pipe, Batch, LineWriter]:
    pipe, batch = Pipe(), Batch()
    writer = LineWriter(batch)
    writer.connection_made(pipe)
    return pipe, batch, writer


async def in_callback(do: Callable[[], None]) -> None:
    """Where no task runs, as when the loop reads a pipe."""
    done = anyio.Event()

    def run() -> None:
        try:
            do()
        finally:
            done.set()

    asyncio.get_running_loop().call_soon(run)
    await done.wait()


async def test_lines_of_one_read_are_answered_in_one_write() -> None:
    pipe, batch, writer = written()
    reader = LineReader(1000, batch)

    def take(line: bytes) -> bool:
        writer.write(line + b"!\n")
        assert writer.backlog > 0
        return True

    reader.offer_to(take)
    waiting = asyncio.ensure_future(reader.receive())
    await checkpoint()
    reader.data_received(b"a\nb\nc\n")
    assert pipe.writes == [b"a!\nb!\nc!\n"]
    assert writer.backlog == 0
    waiting.cancel()


async def test_what_is_large_leaves_at_once_and_in_order() -> None:
    pipe, batch, writer = written()
    large = b"x" * (1 << 16) + b"\n"
    with batch:
        writer.write(b"a\n")
        writer.write(large)
        writer.write(b"b\n")
        assert pipe.writes == [b"a\n", large]
    assert pipe.writes == [b"a\n", large, b"b\n"]


async def test_a_pipe_that_closes_within_a_batch_gets_nothing_more() -> None:
    pipe, batch, writer = written()
    with batch:
        writer.write(b"a\n")
        pipe.is_shut = True
        with pytest.raises(BrokenPipeError):
            writer.write(b"b\n")
    assert pipe.writes == []


async def test_what_is_sent_leaves_after_all_else_is_done_and_a_fault_stops_nothing() -> None:
    batch, done = Batch(), list[str]()

    def fail() -> None:
        done.append("failed")
        batch.at_end(lambda: done.append("again"))
        raise RuntimeError("no")

    def work() -> None:
        with batch:
            batch.send_at_end(lambda: done.append("sent"))
            batch.at_end(fail)
            with batch:
                batch.at_end(lambda: done.append("inner"))
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert done == ["failed", "inner", "again", "sent"]
    assert not batch.is_open


async def test_a_task_goes_on_where_its_value_is_set() -> None:
    prompt = PromptFuture[int](loop=asyncio.get_running_loop())
    got: list[object] = []

    async def wait() -> None:
        got.append(await prompt)
        got.append(asyncio.current_task() is task)

    task = asyncio.ensure_future(wait())
    await checkpoint()

    def settle() -> None:
        prompt.set_result(1)
        assert got == [1, True]

    await in_callback(settle)
    await task


async def test_within_another_task_it_goes_on_in_the_next_turn() -> None:
    prompt = PromptFuture[int](loop=asyncio.get_running_loop())
    got: list[int] = []

    async def wait() -> None:
        got.append(await prompt)

    task = asyncio.ensure_future(wait())
    await checkpoint()
    prompt.set_result(1)
    assert got == []
    await task
    assert got == [1]


async def test_a_wait_can_be_cancelled_and_one_that_has_its_value_keeps_it() -> None:
    loop = asyncio.get_running_loop()
    early, late = PromptFuture[int](loop=loop), PromptFuture[int](loop=loop)
    got: list[int] = []

    async def wait(prompt: PromptFuture[int]) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            got.append(await prompt)

    scopes: list[anyio.CancelScope] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, early)
        tasks.start_soon(wait, late)
        await checkpoint()
        late.set_result(2)
        for scope in scopes:
            scope.cancel()
    assert early.cancelled()
    assert got == [2]


async def test_a_second_task_that_waits_for_the_same_value_gets_it_too() -> None:
    prompt = PromptFuture[int](loop=asyncio.get_running_loop())
    got: list[int] = []

    async def wait() -> None:
        got.append(await prompt)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await checkpoint()
        await in_callback(lambda: prompt.set_result(1))
    assert got == [1, 1]
