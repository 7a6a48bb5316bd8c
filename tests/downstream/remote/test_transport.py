"""How requests travel: on which connection, directly or through the operator's proxy."""

import os
import select
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from starlette.responses import Response

from ironcurtain_proxy.downstream.remote.exchange import NoLogin, Requester
from ironcurtain_proxy.downstream.remote.network import GuardedNetwork, GuardedTransport
from ironcurtain_proxy.errors import CallLostError, DownstreamError, ServerUnavailableError
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Site, done, event, remote, stream, talking_to
from tests.downstream.remote.test_tls import a_certificate
from tests.downstream.scripted_servers import text_of
from tests.program import PATIENCE
from tests.tables import table

pytestmark = pytest.mark.anyio

_OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


def a_requester(url: str, proxy: str | None = None, addresses: Sequence[Json] = ()) -> Requester:
    named: dict[str, Json] = {} if proxy is None else {"proxy": proxy}
    endpoint = remote(url, credentials=None, addresses=[*addresses], **named).remote
    assert endpoint is not None
    transport = GuardedTransport("one", endpoint)
    return Requester("one", transport, authorizer=NoLogin(), headers={}, max_message=1 << 30)


async def asked(
    requester: Requester, url: str, content: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    method = "POST" if content else "GET"
    async with requester.open(method, url, headers, content) as response:
        return response.status, await requester.body(response)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts to which connections are made."""
    opened: list[str] = []
    connect = GuardedNetwork.connect_tcp

    async def noted(
        self: GuardedNetwork, host: str, port: int, *rest: object, **more: object
    ) -> object:
        opened.append(host)
        return await connect(self, host, port, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(GuardedNetwork, "connect_tcp", noted)
    return opened


@pytest.mark.parametrize("as_stream", [False, True])
async def test_calls_and_notifications_one_after_another_share_a_connection(
    monkeypatch: pytest.MonkeyPatch, *, as_stream: bool
) -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call" and as_stream:
            return stream(event(done(heard)))
        return None

    opened = counted(monkeypatch)
    async with talking_to(Site(handler=handler)) as servers:
        await text_of(servers, "echo")
        before = len(opened)
        for _ in range(5):
            assert await text_of(servers, "echo") == "done"
            await servers.notify_roots_changed("one")
        assert len(opened) - before <= 1


async def test_after_many_calls_at_once_few_connections_stay() -> None:
    all_there = anyio.Event()
    before = open_files()

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            if len(site.said("tools/call")) == 60:
                all_there.set()
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


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.parametrize(
    ("name", "value"),
    table("downstream/remote/transport.a_header_that_would_be", list[tuple[str, str]]),
)
async def test_a_header_that_would_be_two_is_not_sent(name: str, value: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        requester = a_requester(url)
        with pytest.raises(CallLostError):
            await asked(requester, url, b"x", **{name: value})
        await requester.close()
        theirs, _ = listener.accept()
        with theirs:
            assert theirs.recv(1) == b""


# --- what a server's socket does


async def test_what_nobody_reads_waits_with_the_sender() -> None:
    size = 64 << 20
    sent = 0
    stuck = threading.Event()

    def serve(theirs: socket.socket, _head: bytes) -> None:
        nonlocal sent
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size and select.select([], [theirs], [], 1)[1]:
            sent += theirs.send(bytes(1 << 16))
        stuck.set()

    async with tunnelling(serve) as server:
        requester = a_requester(server.url)
        async with requester.open("GET", server.url, {}):
            await anyio.to_thread.run_sync(stuck.wait, PATIENCE)
        await requester.close()
    assert sent < size // 2


async def test_one_who_takes_a_large_message_slowly_gets_all_of_it() -> None:
    content = bytes(4 << 20)

    def serve(theirs: socket.socket, head: bytes) -> None:
        left = len(content) - len(head.partition(b"\r\n\r\n")[2])
        while left:
            left -= len(theirs.recv(1 << 16))
        theirs.sendall(_ANSWER)

    async with tunnelling(serve) as server:
        requester = a_requester(server.url)
        assert await asked(requester, server.url, content) == (200, b"done")
        await requester.close()
    assert b"content-length: 4194304\r\n" in server.heard[0].lower()


async def test_an_answer_before_the_end_of_the_request_is_read() -> None:
    def serve(theirs: socket.socket, _head: bytes) -> None:
        theirs.sendall(_ANSWER.replace(b"200", b"413"))
        theirs.shutdown(socket.SHUT_RD)
        select.select([theirs], [], [], 1)

    async with tunnelling(serve) as server:
        requester = a_requester(server.url)
        with suppress(DownstreamError):  # the network may drop what was said before a reset
            assert await asked(requester, server.url, bytes(8 << 20)) == (413, b"done")
        await requester.close()


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 100 Continue\r\n\r\n"),
        *(_ANSWER[:-1], b"HTTP/2 200 OK\r\n\r\n", b"SSH-2.0-OpenSSH\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\ndone!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000 + b"\r\n",
    ],
)
async def test_what_is_no_whole_answer_is_a_fault(said: bytes) -> None:
    def serve(theirs: socket.socket, _head: bytes) -> None:
        with suppress(OSError):
            theirs.sendall(said)

    async with tunnelling(serve) as server:
        requester = a_requester(server.url)
        with pytest.raises(DownstreamError):
            await asked(requester, server.url)
        await requester.close()


# --- through a proxy


class Tunnels:
    """A proxy or a server that a test scripts."""

    def __init__(self, serve: Callable[[socket.socket, bytes], None]) -> None:
        self.heard: list[bytes] = []
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE)
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve one connection."""
        with suppress(OSError):
            theirs, _ = self._listener.accept()
            theirs.settimeout(PATIENCE)
            with theirs:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += theirs.recv(1 << 16)
                self.heard.append(head)
                self._serve(theirs, head)

    @property
    def url(self) -> str:
        """Its address, where it is asked as a server."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def close(self) -> None:
        """Serve no more."""
        self._listener.close()


@asynccontextmanager
async def tunnelling(serve: Callable[[socket.socket, bytes], None]) -> AsyncIterator[Tunnels]:
    """One of these, meanwhile."""
    found = Tunnels(serve)
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        yield found
    finally:
        await anyio.to_thread.run_sync(thread.join)  # our end is closed in a turn of its own
        found.close()


async def test_the_operators_proxy_leads_to_a_server_of_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_certificate(tmp_path, "far.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    inner: list[bytes] = []

    def serve(theirs: socket.socket, _head: bytes) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        theirs.sendall(_OPEN)
        with context.wrap_socket(theirs, server_side=True) as secured:
            inner.append(secured.recv(1 << 16))
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfar")

    async with tunnelling(serve) as proxy:
        requester = a_requester(
            "https://far.example/mcp", proxy=f"http://me:p%40ss@127.0.0.1:{proxy.port}"
        )
        told = await asked(requester, "https://far.example/mcp", authorization="Bearer x")
        assert told == (200, b"far")
        await requester.close()
    (head,) = proxy.heard
    assert head.startswith(b"CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n")
    assert b"proxy-authorization: basic bWU6cEBzcw==\r\n".lower() in head.lower()
    assert b"Bearer" not in head
    assert inner[0].startswith(b"GET /mcp HTTP/1.1\r\nHost: far.example\r\n")
    assert b"proxy-authorization" not in inner[0].lower()


async def test_a_proxy_that_refuses_is_named_and_hears_nothing_more() -> None:
    after: list[bytes] = []

    def serve(theirs: socket.socket, head: bytes) -> None:
        theirs.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        with suppress(ConnectionResetError):
            after.append(theirs.recv(1))

    async with tunnelling(serve) as proxy:
        requester = a_requester("https://far.example/mcp", proxy=f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(ServerUnavailableError, match="407"):
            await asked(requester, "https://far.example/mcp")
        await requester.close()
    assert not any(after)


async def test_an_answer_that_a_proxy_adds_to_its_word_is_not_the_servers() -> None:
    def serve(theirs: socket.socket, head: bytes) -> None:
        theirs.sendall(_OPEN + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        with suppress(OSError):
            theirs.recv(1)

    async with tunnelling(serve) as proxy:
        requester = a_requester("https://far.example/mcp", proxy=f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(ServerUnavailableError, match="cannot be reached"):
            await asked(requester, "https://far.example/mcp")
        await requester.close()


async def test_a_server_of_http_is_asked_through_the_proxy_by_its_whole_address() -> None:
    def serve(theirs: socket.socket, head: bytes) -> None:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfar")

    async with tunnelling(serve) as proxy:
        requester = a_requester(
            "http://far.example:81/mcp?a=b",
            proxy=f"http://me:x@127.0.0.1:{proxy.port}",
            addresses=["192.0.2.1"],
        )
        assert await asked(requester, "http://far.example:81/mcp?a=b") == (200, b"far")
        await requester.close()
    assert proxy.heard[0].startswith(b"GET http://far.example:81/mcp?a=b HTTP/1.1\r\n")
    assert b"proxy-authorization: basic bWU6eA==\r\n".lower() in proxy.heard[0].lower()
