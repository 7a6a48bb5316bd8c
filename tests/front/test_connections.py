"""Connections that never come to the point are closed; all others stay as they are."""

import asyncio  # noqa: TID251  a transport of it
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ironcurtain_proxy.front import connections
from ironcurtain_proxy.front.connections import FrontConnection, JoinedWrites
from tests.program import PATIENCE

REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await Response(b"done" + body)(scope, receive, send)


async def name_headers(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    body = await request.body()
    names = ", ".join(request.headers.keys())
    await Response(f"{names} {len(body)}.")(scope, receive, send)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with our connections, which waits a tenth of a second for a head."""
    monkeypatch.setattr(connections, "_SLOWEST", 0.1)
    with serving(echo) as found:
        yield found


@contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    config = uvicorn.Config(app, port=0, log_level="critical", http=FrontConnection, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


@pytest.mark.parametrize(
    "begin",
    [
        *(b"", b"G", REQUEST, REQUEST + b"X: " + b"y" * 1000),
        REQUEST + b"Content-Length: 5\r\n\r\nbody",
    ],
)
def test_a_connection_that_says_nothing_whole_is_closed(port: int, begin: bytes) -> None:
    with connected(port) as connection:
        connection.sendall(begin)
        assert connection.recv(1000) == b""


def test_a_second_request_that_is_not_finished_is_given_up_too(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(REQUEST + b"\r\n")
        said = b""
        while b"done" not in said:
            said += connection.recv(1000)
        connection.sendall(b"GET /")
        assert connection.recv(1000) == b""


def test_a_head_without_end_is_not_kept(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SLOWEST", PATIENCE)
    with connected(port) as connection:
        connection.sendall(REQUEST)
        sent = 0
        with suppress(OSError):  # reset, or broken
            while sent < 1 << 26:
                sent += connection.send(b"X: " + b"y" * 10_000 + b"\r\n")
    assert sent < 1 << 26


@pytest.mark.parametrize("size", [60_000, 66_000, 70_000])
@pytest.mark.parametrize("piece", [1 << 20, 1000])
@pytest.mark.parametrize("before", [b"", REQUEST + b"\r\n"])
def test_a_head_has_64_kibibytes_whole_in_pieces_or_behind_another(
    size: int, piece: int, before: bytes
) -> None:
    head = REQUEST + b"X: " + b"y" * size + b"\r\nConnection: close\r\n\r\n"
    sent = before + head
    with serving(echo) as port, connected(port) as connection:
        with suppress(OSError):  # reset, or broken
            for at in range(0, len(sent), piece):
                connection.sendall(sent[at : at + piece])
        said = until_closed(connection)
    if size < 1 << 16:
        assert said.count(b"done") == 1 + bool(before)
    else:
        assert said.count(b"done") <= bool(before)


def until_closed(connection: socket.socket) -> bytes:
    said = b""
    with suppress(OSError):
        while more := connection.recv(65536):
            said += more
    return said


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
ENDING = REQUEST + b"Connection: close\r\n\r\n"


@pytest.mark.parametrize("step", [1, 2, 7, 61, 1 << 20])
@pytest.mark.parametrize(
    "first",
    [
        REQUEST + b"\r\n",
        REQUEST + b"Content-Length: 8\r\n\r\n\r\n\r\nbody",
        REQUEST + b"Transfer-Encoding: chunked\r\n\r\n8\r\n\r\n\r\nbody\r\n0\r\n\r\n",
        REQUEST + b"Transfer-Encoding: chunked\r\n\r\n8\r\n\r\n\r\nbody\r\n0\r\nX: y\r\n\r\n",
        REQUEST + OFFER + b"Content-Length: 4\r\n\r\nbody",
    ],
)
def test_an_offer_of_another_protocol_is_passed_over_wherever_it_stands(
    first: bytes, step: int
) -> None:
    offering = REQUEST + OFFER + b"Content-Length: 5\r\n\r\nsecond"[:-1]
    sent = first + offering + ENDING
    with serving(echo) as port, connected(port) as connection:
        for at in range(0, len(sent), step):
            connection.sendall(sent[at : at + step])
        said = until_closed(connection)
    assert said.count(b"200 OK") == 3
    assert b"donesecon" in said


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"0\r\n", b"X: " + b"y" * 10_000 + b"\r\n"),
        (b"0\r\nX: ", b"y" * 10_000),
        (b"2;x=", b"y" * 10_000),
    ],
)
def test_what_a_body_in_chunks_has_besides_is_not_kept_without_end(
    port: int, begin: bytes, piece: bytes
) -> None:
    with connected(port) as connection:
        connection.sendall(REQUEST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n" + begin)
        sent = 0
        with suppress(OSError):  # reset, or broken
            while sent < 1 << 26:
                sent += connection.send(piece)
    assert sent < 1 << 26


def test_a_body_in_many_chunks_is_whole_and_its_trailers_count_for_nothing() -> None:
    pieces = b"1;x=y\r\na\r\n" * 50_000
    with serving(name_headers) as headers, connected(headers) as connection:
        connection.sendall(REQUEST + b"Transfer-Encoding: chunked\r\n\r\n" + pieces)
        connection.sendall(b"0\r\nAuthorization: Bearer x\r\n\r\n")
        said = b""
        while not said.endswith(b"."):
            found = connection.recv(1000)
            assert found, said
            said += found
    assert said.endswith(b"\r\n\r\nhost, transfer-encoding 50000.")


def test_a_request_that_is_whole_is_answered_and_another_after_it(port: int) -> None:
    with connected(port) as connection:
        for _ in range(3):
            connection.sendall(REQUEST + b"\r\n")
            said = b""
            while b"done" not in said:
                said += connection.recv(1000)
            assert said.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "offer",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n",
        b"Connection: Upgrade\r\nuPGRADE: websocket\r\nSec-WebSocket-Version: 13\r\n",
    ],
)
def test_an_offer_of_another_protocol_is_ignored_and_the_body_read(port: int, offer: bytes) -> None:
    body = b"a\r\nUpgrade: x\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nHost: h\r\n" + offer
    with connected(port) as connection:
        for _ in range(2):
            connection.sendall(request + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            said = b""
            while not said.endswith(b"\r\n\r\ndone" + body):
                found = connection.recv(1000)
                assert found, said
                said += found
            assert said.startswith(b"HTTP/1.1 200")


def test_a_body_keeps_its_length_where_its_head_ends_in_another_packet(port: int) -> None:
    body = b"a\r\nUpgrade: x\r\n\r\n"
    head = REQUEST + b"Content-Length: %d\r\n\r\n" % len(body)
    with connected(port) as connection:
        said = answer_to(connection, head[:-1], head[-1:] + body + REQUEST + b"\r\n", ends=b"done")
    assert said.count(b"HTTP/1.1 200") == 2


class Wire(asyncio.Transport):
    """Keeps what leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.packets.append(bytes(data))

    def close(self) -> None:
        self.packets.append(b"end")


@pytest.mark.anyio
async def test_the_head_of_an_answer_leaves_with_its_body() -> None:
    wire = Wire()
    joined = JoinedWrites(wire, asyncio.get_running_loop())
    joined.write(b"head")
    joined.write(b"body")
    assert wire.packets == [b"headbody"]
    joined.write(b"head of a stream")
    await anyio.lowlevel.checkpoint()
    assert wire.packets[1:] == [b"head of a stream"]
    joined.write(b"refusal")
    joined.close()
    await anyio.lowlevel.checkpoint()
    assert wire.packets[2:] == [b"refusal", b"end"]


def answer_to(connection: socket.socket, *parts: bytes, ends: bytes = b".") -> bytes:
    said = b""
    for part in parts:
        connection.sendall(part)
        select.select([], [], [], 0.01)  # so that the parts arrive one by one
    while not said.endswith(ends):
        found = connection.recv(1000)
        assert found, said
        said += found
    return said


@pytest.mark.parametrize("length", [b"Content-Length: 3", b"Content-Length:0003"])
def test_a_small_body_may_come_in_parts(
    length: bytes, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SLOWEST", PATIENCE)
    with connected(port) as connection:
        for _ in range(2):
            head = REQUEST + length + b"\r\n\r\n"
            assert answer_to(connection, head[:9], head[9:], b"a", b"b", b".").endswith(b"doneab.")


def test_requests_that_come_at_once_are_answered_in_order(port: int) -> None:
    one = REQUEST + b"Content-Length: 2\r\n\r\n"
    with connected(port) as connection:
        said = b""
        connection.sendall(b"".join(one + b"%d." % number for number in range(5)))
        while said.count(b"done") < 5 or not said.endswith(b"."):
            said += connection.recv(1000)
    assert [
        int(said[at + 4 : at + 5]) for at in range(len(said)) if said[at:].startswith(b"done")
    ] == [*range(5)]


def test_one_who_waits_to_be_told_to_go_on_is_told(port: int) -> None:
    head = REQUEST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with connected(port) as connection:
        connection.sendall(head)
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        assert answer_to(connection, b"a.").endswith(b"donea.")
