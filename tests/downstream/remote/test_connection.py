"""One connection as the pool uses it, against a socket that a test holds in its hands."""

import os
import select
import socket
from collections.abc import Iterator

import anyio
import anyio.to_thread
import httpx2
import pytest
from starlette.responses import Response

from ironcurtain_proxy.downstream.remote.connection import HttpConnection, connect
from tests.downstream.remote.site import Heard, Site, talking_to
from tests.downstream.scripted_servers import text_of

pytestmark = pytest.mark.anyio

_PATIENCE = 20.0
_HEAD = b"POST / HTTP/1.1\r\nhost: a\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


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


async def asked(ours: HttpConnection, content: bytes = b"body") -> int:
    """The status of an answer."""
    return (await ours.ask(_HEAD, content, _PATIENCE)).status


async def whole(ours: HttpConnection) -> bytes:
    """The rest of a body."""
    found = b""
    while part := await ours.read():
        found += part
    return found


async def test_the_head_of_a_request_leaves_with_its_body(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        theirs.sendall(_ANSWER)  # it waits in the socket: nothing is read before the request
        assert await asked(ours) == 200
        assert theirs.recv(1 << 16) == _HEAD + b"body"
        ours.close()


async def test_a_connection_carries_one_request_after_another(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        for _ in range(3):
            theirs.sendall(_ANSWER)
            assert await asked(ours) == 200
            assert await whole(ours) == b"done"
            assert ours.finish()
            assert ours.is_usable
        ours.close()


async def test_a_connection_whose_answer_was_not_read_whole_is_closed(
    listener: socket.socket,
) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        theirs.sendall(_ANSWER[:-1])
        assert await asked(ours) == 200
        assert not ours.finish()
        assert not ours.is_usable


async def test_what_comes_unasked_closes_a_connection(listener: socket.socket) -> None:
    # Attack: an answer that lies ready is read as the answer to the next request.
    ours, theirs = await pair(listener)
    with theirs:
        theirs.sendall(_ANSWER)
        await asked(ours)
        await whole(ours)
        assert ours.finish()
        theirs.sendall(_ANSWER)
        assert not ours.is_usable  # the event loop has not seen it
        await until_closed(theirs)
        with pytest.raises(httpx2.WriteError):
            await asked(ours)


async def until_closed(theirs: socket.socket) -> None:
    """Wait until our end is closed."""

    def read() -> None:
        try:
            while theirs.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass

    await anyio.to_thread.run_sync(read)


async def test_what_nobody_reads_waits_with_the_sender(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    body = bytes(64 << 20)
    with theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        await asked(ours)
        theirs.setblocking(False)
        sent = 0
        with anyio.move_on_after(1):  # it takes no more long before
            while sent < len(body):
                try:
                    sent += theirs.send(body[sent : sent + (1 << 20)])
                except BlockingIOError:
                    await anyio.sleep(0.01)
        assert sent < len(body) // 2
        read = 0
        while read < sent:
            read += len(await ours.read())
        assert read == sent
        ours.close()


async def test_one_who_takes_nothing_ends_the_wait(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        with pytest.raises(httpx2.WriteTimeout):
            await ours.ask(_HEAD, bytes(32 << 20), 0.05)
        assert not ours.finish()


async def test_one_who_takes_a_large_message_slowly_gets_all_of_it(
    listener: socket.socket,
) -> None:
    ours, theirs = await pair(listener)
    content = bytes(8 << 20)

    def take() -> int:
        left = len(_HEAD) + len(content)
        while left:
            left -= len(theirs.recv(1 << 18))
            select.select([], [], [], 0.02)  # in all, longer than the patience for one write
        theirs.sendall(_ANSWER)
        return left

    with theirs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, take)
            assert (await ours.ask(_HEAD, content, 0.3)).status == 200
        ours.close()


async def test_an_answer_before_the_end_of_the_request_is_read(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    with theirs:
        theirs.sendall(_ANSWER.replace(b"200", b"413"))
        assert await asked(ours, bytes(32 << 20)) == 413
        assert await whole(ours) == b"done"
        assert not ours.finish()  # the rest of the request would be read as the next one


async def test_an_end_comes_after_what_was_said_before(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    theirs.sendall(b"HTTP/1.1 200 OK\r\n\r\nlast words")
    theirs.shutdown(socket.SHUT_WR)
    with theirs:
        assert await asked(ours) == 200
        assert await whole(ours) == b"last words"
        assert not ours.finish()


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 100 Continue\r\n\r\n"]
)
async def test_an_end_without_an_answer_is_a_fault(said: bytes, listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    theirs.sendall(said)
    theirs.shutdown(socket.SHUT_WR)
    with theirs, pytest.raises(httpx2.RemoteProtocolError, match="without an answer"):
        await asked(ours)


async def test_a_flood_of_early_answers_closes_the_connection(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    theirs.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)
    with theirs:
        with pytest.raises(httpx2.RemoteProtocolError, match="103"):
            await asked(ours)
        assert not ours.is_usable


async def test_a_body_that_breaks_off_is_a_fault(listener: socket.socket) -> None:
    ours, theirs = await pair(listener)
    theirs.sendall(_ANSWER[:-1])
    theirs.shutdown(socket.SHUT_WR)
    with theirs:
        assert await asked(ours) == 200
        assert await ours.read() == b"don"
        with pytest.raises(httpx2.RemoteProtocolError, match="before the end"):
            await ours.read()


async def test_one_who_has_gone_is_noticed_before_the_event_loop_sees_it(
    listener: socket.socket,
) -> None:
    ours, theirs = await pair(listener)
    seen = [ours.is_usable]
    theirs.close()
    seen.append(ours.is_usable)
    assert seen == [True, False]
    ours.close()


async def test_nobody_there_is_no_connection(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(httpx2.ConnectError):
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
