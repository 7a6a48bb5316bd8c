"""What is kept of a stream for a client whose connection broke."""

import anyio
import pytest

from ironcurtain_proxy.front.connections import Stream, StreamReader

pytestmark = pytest.mark.anyio


def a_stream(*lines: bytes) -> Stream:
    stream = Stream("1", lambda: None)
    for line in lines:
        stream.put(line)
    return stream


async def read(follower: StreamReader, count: int) -> list[bytes | None]:
    return [await follower.next() for _ in range(count)]


async def test_a_stream_is_read_again_from_any_number_that_is_kept() -> None:
    stream = a_stream(b"a", b"b", b"c")
    assert await read(stream.follow(), 3) == [b"a", b"b", b"c"]
    assert await read(stream.follow(1), 2) == [b"b", b"c"]


async def test_a_second_reader_takes_over_and_the_first_ends() -> None:
    stream = a_stream(b"a")
    first = stream.follow()
    assert await first.next() == b"a"
    got: list[bytes | None] = []

    async def wait() -> None:
        got.append(await first.next())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        second = stream.follow(1)
    assert got == [None]
    first.leave()
    assert stream.is_followed
    stream.put(b"b", is_last=True)
    assert await read(second, 2) == [b"b", None]


async def test_what_was_not_sent_is_all_kept_and_of_the_rest_the_newest() -> None:
    large = b"x" * 100_000
    stream = a_stream(*[large] * 9)
    follower = stream.follow()
    assert await read(follower, 6) == [large] * 6
    assert stream.unsent == 400_000, "the last may be on its way"
    assert await read(follower, 3) == [large] * 3
    follower.leave()
    assert stream.unsent == 0
    stream.end()
    assert await read(stream.follow(), 3) == [large, large, None]


async def test_a_stream_that_was_shed_has_what_came_after() -> None:
    stream = a_stream(b"a", b"b")
    stream.shed()
    assert (stream.unsent, stream.is_over) == (0, True)
    stream.put(b"answer", is_last=True)
    assert await read(stream.follow(), 2) == [b"answer", None]


async def test_a_number_that_was_never_given_out_counts_for_nothing() -> None:
    stream = a_stream(b"a", b"b")
    first = stream.follow()
    assert await read(first, 1) == [b"a"]
    first.leave()
    assert await read(stream.follow(999_999_999), 1) == [b"b"]
    assert stream.unsent == 1
