"""A confined server finds the services that its entry names on its loopback, and nothing else."""

import shlex
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.e2e.confined_installation import add_hostile
from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, texts
from tests.e2e.website import Website, open_website

pytestmark = [pytest.mark.usefixtures("sandbox"), pytest.mark.worker("postgresql")]

ASK_DIRECTLY = (
    "import sys, urllib.request as u\n"
    "direct = u.build_opener(u.ProxyHandler({}))\n"
    "print(*[direct.open(sys.argv[1], timeout=20).read().decode() for _ in range(20)])\n"
)
QUERY = (
    "import sys, psycopg\nprint(psycopg.connect(sys.argv[1]).execute('select 41 + 1').fetchone())"
)


@pytest.fixture
def named() -> Iterator[Website]:
    with open_website() as site:
        yield site


@pytest.fixture
def unnamed() -> Iterator[Website]:
    with open_website() as site:
        yield site


def confined(installation: Installation, *services: str) -> RawClient:
    add_hostile(installation, "hostile", sandbox={"network": {"services": [*services]}})
    installation.variables["SANDBOX_POLICY"] = "enforce"
    return installation.start()


def python(agent: RawClient, program: str, *arguments: str) -> str:
    command = shlex.join([sys.executable, "-c", program, *arguments])
    return "\n".join(texts(agent.call("shell", {"command": command})))


def test_only_a_named_service_is_reached_at_the_same_port(
    installation: Installation, named: Website, unnamed: Website
) -> None:
    agent = confined(installation, f"127.0.0.1:{named.server_port}")
    assert python(agent, ASK_DIRECTLY, named.url).split().count("hello") == 20
    refused = agent.call("connect", {"host": "127.0.0.1", "port": unnamed.server_port})
    assert refused.get("isError"), texts(refused)
    # Neither does the sandbox's own proxy lead there.
    blocked = agent.call("http", {"url": unnamed.url})
    assert "hello" not in "\n".join(texts(blocked))
    assert (len(named.visits), unnamed.visits) == (20, [])


class OverTcp(socketserver.ThreadingTCPServer):
    """A port that leads to PostgreSQL, which listens on a unix socket alone in these tests."""

    daemon_threads = True

    def __init__(self, unix: str) -> None:
        super().__init__(("127.0.0.1", 0), Carry)
        self.unix = unix


class Carry(socketserver.BaseRequestHandler):
    """One connection, both ways."""

    def handle(self) -> None:
        assert isinstance(self.server, OverTcp)
        with socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(self.server.unix)
            back = threading.Thread(target=copy, args=(upstream, self.request), daemon=True)
            back.start()
            copy(self.request, upstream)
            back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def test_a_driver_that_knows_no_proxy_reaches_postgresql(
    installation: Installation, postgres_url: str
) -> None:
    parts = urlsplit(postgres_url)
    [directory] = parse_qs(parts.query)["host"]
    with OverTcp(f"{directory}/.s.PGSQL.5432") as database:
        threading.Thread(target=database.serve_forever, daemon=True).start()
        port = database.server_address[1]
        agent = confined(installation, f"127.0.0.1:{port}")
        url = f"postgresql://tests@localhost:{port}{parts.path}"
        assert "(42,)" in python(agent, QUERY, url)
        database.shutdown()


def test_a_service_that_is_away_closes_the_connection_and_the_server_lives(
    installation: Installation,
) -> None:
    with open_website() as gone:
        agent = confined(installation, f"127.0.0.1:{gone.server_port}")
    said = python(agent, ASK_DIRECTLY, gone.url)
    assert "hello" not in said
    assert not agent.call("pids", {}).get("isError")


def test_the_end_of_a_server_is_not_held_up_by_its_relay(
    installation: Installation, named: Website
) -> None:
    agent = confined(installation, f"127.0.0.1:{named.server_port}")
    assert "hello" in python(agent, ASK_DIRECTLY, named.url)
    assert agent.close() == 0
