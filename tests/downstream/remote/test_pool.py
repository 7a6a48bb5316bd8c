"""Which connection a request takes, directly and through the operator's proxy."""

import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
from starlette.responses import Response

from ironcurtain_proxy.downstream.remote import pool as pool_module
from ironcurtain_proxy.downstream.remote.connection import HttpConnection
from ironcurtain_proxy.downstream.remote.network import GuardedNetwork
from ironcurtain_proxy.downstream.remote.pool import GuardedPool, head_of
from ironcurtain_proxy.model.json import Json
from tests.downstream.remote.site import Heard, Site, remote, serving
from tests.downstream.remote.test_tls import a_certificate

pytestmark = pytest.mark.anyio

_PATIENCE = 20.0
_OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"


def a_pool(url: str, proxy: str | None = None, addresses: Sequence[Json] = ()) -> GuardedPool:
    named: dict[str, Json] = {} if proxy is None else {"proxy": proxy}
    endpoint = remote(url, credentials=None, addresses=[*addresses], **named).remote
    assert endpoint is not None
    return GuardedPool("one", endpoint)


async def got(pool: GuardedPool, url: str, *headers: tuple[bytes, bytes]) -> bytes:
    """The body of an answer."""
    place = httpx2.URL(url)
    response = await pool.send("GET", place, [(b"host", place.netloc), *headers])
    try:
        found = b""
        while part := await response.read():
            found += part
        return found
    finally:
        response.close()


def a_site() -> Site:
    """A site that closes a connection when asked to."""

    async def handler(heard: Heard) -> Response | None:
        then = heard.headers.get("x-then")
        return Response(b"x" * 10, headers={} if then is None else {"connection": then})

    return Site(handler=handler)


async def test_a_connection_is_used_again_unless_its_server_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = a_site()
    with serving(site):
        pool, opened = a_pool(site.url), counted(monkeypatch)
        for _ in range(3):
            assert await got(pool, site.url) == b"x" * 10
        assert len(opened) == 1
        assert await got(pool, site.url, (b"x-then", b"close")) == b"x" * 10
        assert await got(pool, site.url) == b"x" * 10
        assert len(opened) == 2
        pool.close()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts to which connections are made."""
    opened: list[str] = []
    connect = GuardedNetwork.connect

    async def noted(self: GuardedNetwork, host: str, port: int) -> HttpConnection:
        opened.append(host)
        return await connect(self, host, port)

    monkeypatch.setattr(GuardedNetwork, "connect", noted)
    return opened


async def test_an_old_connection_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    site = a_site()
    with serving(site):
        pool, opened = a_pool(site.url), counted(monkeypatch)
        monkeypatch.setattr(pool_module, "_IDLE", 0.0)
        for _ in range(2):
            await got(pool, site.url)
        assert len(opened) == 2
        pool.close()


async def test_a_request_that_is_given_up_gives_its_turn_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "_MOST", 1)
    met = anyio.Event()

    async def handler(heard: Heard) -> Response | None:
        if heard.path == "/slow":
            met.set()
            await anyio.sleep_forever()
        return Response(b"fast")

    site = Site(handler=handler)
    with serving(site):
        pool = a_pool(site.url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(got, pool, f"{site.url[:-4]}/slow")
            await anyio.lowlevel.checkpoint()  # it has the one turn
            with anyio.move_on_after(0.05):
                assert await got(pool, site.url) == b"never"
            tasks.cancel_scope.cancel()
        with anyio.fail_after(_PATIENCE):
            assert await got(pool, site.url) == b"fast"
        pool.close()


async def test_who_waits_too_long_for_a_turn_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_MOST", 1)
    monkeypatch.setattr(pool_module, "CONNECT", 0.05)
    site = Site()
    with serving(site):
        pool = a_pool(site.url)
        response = await pool.send("GET", httpx2.URL(site.url), [(b"host", b"a")])
        with pytest.raises(httpx2.PoolTimeout):
            await got(pool, site.url)
        response.close()
        pool.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"a", b"b\r\nauthorization: c"),
        (b"a", b"b\n"),
        (b"a", b"b\rc"),
        (b"a", b"b\0c"),
        (b"a\r\nb", b"c"),
        (b"a b", b"c"),
        (b"a:b", b"c"),
        (b"", b"c"),
    ],
)
def test_a_header_that_would_be_two_is_not_sent(name: bytes, value: bytes) -> None:
    with pytest.raises(httpx2.LocalProtocolError):
        head_of("POST", b"/mcp", [(b"host", b"a"), (name, value)])


@pytest.mark.parametrize("target", [b"/a b", b"/a\r\nb: c", b"", b"/\0"])
def test_a_target_that_would_be_two_is_not_sent(target: bytes) -> None:
    with pytest.raises(httpx2.LocalProtocolError):
        head_of("GET", target, [(b"host", b"a")])


# --- through a proxy


class Tunnels:
    """A proxy that a test scripts."""

    def __init__(self, serve: Callable[[socket.socket, bytes], None]) -> None:
        self.heard: list[bytes] = []
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_PATIENCE)
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve one connection."""
        with suppress(OSError):
            theirs, _ = self._listener.accept()
            theirs.settimeout(_PATIENCE)
            with theirs:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += theirs.recv(1 << 16)
                self.heard.append(head)
                self._serve(theirs, head)

    def close(self) -> None:
        """Serve no more."""
        self._listener.close()


@asynccontextmanager
async def tunnelling(serve: Callable[[socket.socket, bytes], None]) -> AsyncIterator[Tunnels]:
    """A proxy, meanwhile."""
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
        pool = a_pool("https://far.example/mcp", proxy=f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        token = (b"authorization", b"Bearer x")
        assert await got(pool, "https://far.example/mcp", token) == b"far"
        pool.close()
    (head,) = proxy.heard
    assert head.startswith(b"CONNECT far.example:443 HTTP/1.1\r\nhost: far.example:443\r\n")
    assert b"proxy-authorization: Basic bWU6cEBzcw==\r\n" in head
    assert b"Bearer" not in head
    assert inner[0].startswith(b"GET /mcp HTTP/1.1\r\nhost: far.example\r\n")
    assert b"proxy-authorization" not in inner[0]


async def test_a_proxy_that_refuses_is_named_and_hears_nothing_more() -> None:
    after: list[bytes] = []

    def serve(theirs: socket.socket, head: bytes) -> None:
        theirs.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        with suppress(ConnectionResetError):
            after.append(theirs.recv(1))

    async with tunnelling(serve) as proxy:
        pool = a_pool("https://far.example/mcp", proxy=f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(httpx2.ProxyError, match="407"):
            await got(pool, "https://far.example/mcp")
        pool.close()
    assert not any(after)


async def test_an_answer_that_a_proxy_adds_to_its_word_is_not_the_servers() -> None:
    def serve(theirs: socket.socket, head: bytes) -> None:
        theirs.sendall(_OPEN + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        with suppress(OSError):
            theirs.recv(1)

    async with tunnelling(serve) as proxy:
        pool = a_pool("https://far.example/mcp", proxy=f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(httpx2.ProxyError, match="before"):
            await got(pool, "https://far.example/mcp")
        pool.close()


async def test_a_server_of_http_is_asked_through_the_proxy_by_its_whole_address() -> None:
    def serve(theirs: socket.socket, head: bytes) -> None:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfar")

    async with tunnelling(serve) as proxy:
        pool = a_pool(
            "http://far.example:81/mcp?a=b",
            proxy=f"http://me:x@127.0.0.1:{proxy.port}",
            addresses=["192.0.2.1"],
        )
        assert await got(pool, "http://far.example:81/mcp?a=b") == b"far"
        pool.close()
    assert proxy.heard[0].startswith(b"GET http://far.example:81/mcp?a=b HTTP/1.1\r\n")
    assert b"proxy-authorization: Basic bWU6eA==\r\n" in proxy.heard[0]
