"""One connection as the pool uses it, against a socket that a test holds in its hands."""

import os
import socket
from collections.abc import Iterator

import anyio
import httpcore2
import pytest
from starlette.responses import Response

from ironcurtain_proxy.downstream.remote.connection import HttpConnection, connect
from tests.downstream.remote.site import Heard, Site, talking_to
from tests.downstream.scripted_servers import text_of

pytestmark = pytest.mark.anyio

_PATIENCE = 20.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(_PATIENCE)
        yield found


async def pair(listener: socket.socket) -> tuple[HttpConnection, socket.socket]:
    """Our end and theirs."""
    ours = await connect("127.0.0.1", listener.getsockname()[1], _PATIENCE, ())
    theirs, _ = listener.accept()
    theirs.settimeout(_PATIENCE)
    return ours, theirs


async def test_the_head_of_a_request_leaves_with_its_body(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        await ours.write(b"head ")
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        await ours.write(b"body")
        theirs.settimeout(_PATIENCE)
        assert theirs.recv(100) == b"head body"
        await ours.aclose()


async def test_a_request_without_a_body_leaves_at_its_end(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        await ours.write(b"head")
        await ours.write(b"")
        assert theirs.recv(100) == b"head"
        await ours.aclose()


async def test_what_nobody_reads_waits_with_the_sender(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    whole = bytes(64 << 20)
    with theirs:
        theirs.setblocking(False)
        sent = 0
        with anyio.move_on_after(1):  # it takes no more long before
            while sent < len(whole):
                try:
                    sent += theirs.send(whole[sent : sent + (1 << 20)])
                except BlockingIOError:
                    await anyio.sleep(0.01)
        assert sent < len(whole) // 2
        read = 0
        while read < sent:
            read += len(await ours.read(1 << 16))
        assert read == sent
        await ours.aclose()


async def test_one_who_takes_nothing_ends_the_wait(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        await ours.write(b"head")
        with pytest.raises(httpcore2.WriteTimeout):
            await ours.write(bytes(32 << 20), 0.05)
        await ours.aclose()


async def test_an_end_comes_after_what_was_said_before(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    theirs.sendall(b"last words")
    theirs.close()
    assert await ours.read(100) == b"last words"
    assert await ours.read(100) == b""
    await ours.write(b"head")
    with pytest.raises(httpcore2.WriteError):
        await ours.write(b"body")


async def test_one_who_has_gone_is_noticed_before_the_event_loop_sees_it(
    listener: socket.socket,
) -> None:
    ours, theirs = await pair(listener)
    assert not ours.get_extra_info("is_readable")
    theirs.close()
    assert ours.get_extra_info("is_readable")
    await ours.aclose()


async def test_one_who_says_nothing_ends_the_wait(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        with pytest.raises(httpcore2.ReadTimeout):
            await ours.read(100, 0.05)
        await ours.aclose()


async def test_nobody_there_is_no_connection(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(httpcore2.ConnectError):
        await connect("127.0.0.1", port, _PATIENCE, ())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def test_after_many_calls_at_once_few_connections_stay() -> None:
    all_there = anyio.Event()
    before = open_files()

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            if len(site.said("tools/call")) == 60:
                all_there.set()
            with anyio.fail_after(20):
                await all_there.wait()
        return None

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        async with anyio.create_task_group() as calls:
            for _ in range(60):
                calls.start_soon(text_of, servers, "echo")
        await text_of(servers, "echo")
        # Theirs and ours; without the limit there are 120 of them.
        assert open_files() - before < 80
