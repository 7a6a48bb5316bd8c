"""Which connections are made for a server, whatever its URL, its name or its redirects say."""

import socket
from collections.abc import Iterator
from ipaddress import ip_address

import anyio
import httpcore2
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from ironcurtain_proxy.downstream import conversation
from ironcurtain_proxy.downstream.remote import network
from ironcurtain_proxy.downstream.remote.network import (
    GuardedNetwork,
    GuardedTransport,
    RefusedAddressError,
    open_client,
)
from ironcurtain_proxy.model.server import RemoteEndpoint, is_public
from tests.downstream.remote.site import Site, remote, serving

pytestmark = pytest.mark.anyio

CLOSED = [
    *("127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "100.100.100.200", "0.0.0.0", "255.255.255.255", "224.0.0.1", "198.18.0.1"),  # noqa: S104
    *("168.63.129.16", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254", "64:ff9b::7f00:1"),
    *("2002:7f00:1::", "::127.0.0.1", "64:ff9b:1::1", "2001:0:7f00:1::1", "fec0::1"),
    *("::ffff:0:7f00:1", "4000::1", "192.0.0.192", "192.88.99.1", "3fff::1"),
]


@pytest.mark.parametrize("address", CLOSED)
async def test_an_address_that_is_not_public_is_not_connected_to(address: str) -> None:
    assert not is_public(ip_address(address))
    network = GuardedNetwork("one", RemoteEndpoint(url="https://mcp.example/mcp"))
    with pytest.raises(RefusedAddressError, match="no public address"):
        await network.connect_tcp(address, 443)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111"])
def test_an_address_of_the_public_network_may_be_connected_to(address: str) -> None:
    assert is_public(ip_address(address))


def test_what_a_url_spells_out_is_open_at_its_own_port_alone() -> None:
    endpoint = RemoteEndpoint(url="http://127.0.0.1:8080/mcp")
    assert endpoint.may_connect(ip_address("127.0.0.1"), 8080)
    assert not endpoint.may_connect(ip_address("127.0.0.1"), 8081)
    assert not endpoint.may_connect(ip_address("127.0.0.2"), 8080)
    assert RemoteEndpoint(url="http://localhost:1/").may_connect(ip_address("::1"), 1)
    assert not RemoteEndpoint(url="http://localhost:1/").may_connect(ip_address("10.0.0.1"), 1)


def test_what_the_operator_names_is_open_at_every_port() -> None:
    endpoint = remote("https://mcp.corp/mcp", addresses=["10.0.0.0/8"]).remote
    assert endpoint is not None
    assert endpoint.may_connect(ip_address("10.2.3.4"), 5)
    assert endpoint.may_connect(ip_address("::ffff:10.2.3.4"), 5)
    assert not endpoint.may_connect(ip_address("192.168.0.1"), 5)


class Resolver:
    """Answers for one name, with another address each time."""

    def __init__(self, *answers: str) -> None:
        self.answers: Iterator[str] = iter(answers)
        self.asked = 0

    def __call__(self, host: object, port: object, *rest: object, **more: object) -> list[object]:
        self.asked += 1
        address = next(self.answers)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]


async def test_a_name_is_resolved_once_and_the_address_that_was_held_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver("127.0.0.1", "10.9.9.9")
    with serving(Site()) as site:
        monkeypatch.setattr(socket, "getaddrinfo", resolver)
        url = f"http://changing.example:{site.port}/mcp"
        endpoint = remote(url, addresses=["127.0.0.1"]).remote
        assert endpoint is not None
        async with open_client(GuardedTransport("one", endpoint)) as client:
            answer = await client.get(url)
    assert answer.status_code == 405
    assert site.heard[0].headers["host"] == f"changing.example:{site.port}"
    assert resolver.asked == 1


async def test_a_name_that_begins_to_lead_to_this_machine_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver("127.0.0.1"))
    with serving(Site()) as site:
        url = f"https://changing.example:{site.port}/mcp"
        async with open_client(GuardedTransport("one", RemoteEndpoint(url=url))) as client:
            with pytest.raises(RefusedAddressError, match=r"changing.example leads to 127.0.0.1"):
                await client.get(url)
    assert site.heard == []


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Site()) as site:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
        async with open_client(GuardedTransport("one", RemoteEndpoint(url=site.url))) as client:
            assert (await client.get(site.url)).status_code == 405


HERE_AND_CLOUD = [
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "169.254.43518", "127.1", "127.0.0.1.", "0"),
    *("localhost", "LocalHost.", "a.localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f.0.0.01"),
]


async def test_the_operators_proxy_is_asked_and_an_address_in_a_url_is_still_held() -> None:
    with serving(Site()) as proxy:
        endpoint = remote(
            "http://far.example/mcp",
            proxy=f"http://127.0.0.1:{proxy.port}",
            addresses=["192.0.2.1"],
        ).remote
        assert endpoint is not None
        async with open_client(GuardedTransport("one", endpoint)) as client:
            assert (await client.get("http://far.example/mcp")).status_code == 405
            for host in HERE_AND_CLOUD:
                with pytest.raises(RefusedAddressError):
                    await client.get(f"http://{host}/")
    assert [one.headers["host"] for one in proxy.heard] == ["far.example"]


async def test_what_a_proxy_says_of_its_password_is_not_repeated() -> None:
    async def refuse(stream: SocketStream) -> None:
        async with stream:
            said = await stream.receive()
            secret = said.partition(b"Basic ")[2].split()[0]
            await stream.send(b"HTTP/1.1 407 %s\r\ncontent-length: 0\r\n\r\n" % secret)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse)
        place = listener.extra(SocketAttribute.local_port)  # noqa: S610  not Django's
        entry = remote("https://far.example/", proxy=f"http://me:secret@127.0.0.1:{place}")
        assert entry.remote is not None
        async with open_client(GuardedTransport("one", entry.remote)) as client:
            with pytest.raises(httpx2.ProxyError, match=r"^its proxy answers 407$"):
                await client.get("https://far.example/")
        tasks.cancel_scope.cancel()


# --- how much is read at once


class Endless(httpcore2.AsyncNetworkBackend, httpcore2.AsyncNetworkStream):
    """A connection on which as much comes as is read."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def connect_tcp(self, *_: object, **_also: object) -> httpcore2.AsyncNetworkStream:
        return self

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        del timeout
        self.asked.append(max_bytes)
        return bytes(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Take it."""


async def test_less_is_read_at_once_while_what_was_read_takes_long_to_deal_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded, real, now = (
        GuardedNetwork("one", RemoteEndpoint(url="http://1.1.1.1/")),
        Endless(),
        [0.0],
    )
    monkeypatch.setattr(guarded, "_real", real)
    monkeypatch.setattr(network, "thread_time", lambda: now[0])
    monkeypatch.setattr(conversation, "PAUSE", 0.0)
    stream = await guarded.connect_tcp("1.1.1.1", 80)

    async def sizes(seconds: float) -> list[int]:
        real.asked.clear()
        for _ in range(10):
            await stream.read(1 << 16)
            now[0] += seconds
        return [*real.asked]

    assert await sizes(0.0) == [1 << 16] * 10
    assert (await sizes(0.01))[1:] == [1 << n for n in (15, 14, 13, 12, 11, 10, 10, 10, 10)]
    await stream.write(b"")
    assert await sizes(0.0) == [1 << min(n, 16) for n in range(11, 21)], "it waits for no answer"
