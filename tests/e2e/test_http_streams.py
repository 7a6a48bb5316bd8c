"""Clients of the front that do not read, and fronts that come back."""

import socket
from contextlib import ExitStack, suppress

import httpx
import orjson
import pytest

from tests.e2e.http_front import BOTH, TOKENS, FrontAddress, HttpAgent, an_http_front
from tests.e2e.installation import Installation
from tests.e2e.raw_client import text
from tests.fakes import NO_TLS
from tests.program import PATIENCE

MIB = 1 << 20


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096


def unread(front: FrontAddress, agent: HttpAgent, size: int) -> socket.socket:
    """A call whose answer waits in a connection that nobody reads."""
    body = orjson.dumps(agent.message("tools/call", {"name": "fill", "arguments": {"bytes": size}}))
    headers = {
        **agent.headers,
        **agent.session,
        "Host": f"127.0.0.1:{front.port}",
        "Accept": BOTH,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE)
    connection.connect(("127.0.0.1", front.port))
    connection.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
    return connection


@pytest.fixture
def small(scripted: Installation) -> Installation:
    scripted.variables["MAX_MESSAGE_BYTES"] = str(8 * MIB)
    return scripted


def test_a_client_that_reads_nothing_holds_up_nobody_else_and_fills_no_memory(
    small: Installation,
) -> None:
    with an_http_front(small) as front, ExitStack() as opened:
        lazy, other = front.agent("alice"), front.agent("bob")
        lazy.initialize()
        other.initialize()
        before = resident(front.client.process.pid)
        for _ in range(20):
            opened.enter_context(unread(front, lazy, 7 * MIB))
        with lazy.open() as client, suppress(httpx.ReadTimeout):
            kind = {"Content-Type": "application/json"}
            while True:  # until nothing is handed out any more
                body = orjson.dumps(lazy.message("ping"))
                client.post(lazy.url, content=body, headers=kind, timeout=1)
        assert text(other.call("answer", text="still here")) == "still here"
        assert resident(front.client.process.pid) - before < 70 * MIB


def test_a_front_that_was_killed_is_replaced_at_the_same_places(scripted: Installation) -> None:
    place = scripted.root / "mcp.sock"
    variables = {"PROXY_SOCKET_PATH": str(place), "PROXY_TCP_PORT": "0"}
    with an_http_front(scripted, **variables) as first:
        agent = first.agent()
        agent.initialize()
        first.client.process.kill()
        first.client.process.wait(PATIENCE)
        assert place.is_socket()
        port_file = scripted.root / "port"
        assert port_file.exists()
        port_file.unlink()  # the next one is waited for by it
        with an_http_front(scripted, **variables) as second:
            late = HttpAgent(second.url, agent.headers, dict(agent.session))
            assert late.post(late.message("ping")).status_code == 404
            late.session = {}
            late.initialize()
            assert text(late.call("answer", text="again")) == "again"
            headers = {"Authorization": f"Bearer {TOKENS['bob']}", "Host": "localhost"}
            with httpx.Client(
                transport=httpx.HTTPTransport(uds=str(place), verify=NO_TLS)
            ) as client:
                assert client.get("http://localhost/mcp", headers=headers).status_code == 400


def test_a_second_front_takes_no_socket_that_answers(scripted: Installation) -> None:
    place = scripted.root / "mcp.sock"
    with an_http_front(scripted, PROXY_SOCKET_PATH=str(place), PROXY_TCP_PORT="0"):
        other = scripted.launch("serve", "--http", PROXY_SOCKET_PATH=str(place))
        assert other.process.wait(PATIENCE) == 2
        assert "another program listens there" in other.errors.read_text("utf-8")
        assert place.is_socket()


def test_the_log_of_a_second_session_is_no_news(scripted: Installation) -> None:
    with an_http_front(scripted) as front:
        for name in ("alice", "bob"):
            agent = front.agent(name)
            agent.initialize()
            agent.call("answer", text="x")
        assert "is in use by another process" not in front.errors()
    names = {
        str(record["session"])
        for log in scripted.audit.parent.iterdir()
        if log.suffix == ".jsonl" or log.suffix[1:].isdecimal()
        for record in scripted.records(log)
        if "session" in record
    }
    assert sorted(name.partition("-")[0] for name in names) == ["alice", "bob"]


def test_a_front_that_ends_leaves_the_port_of_the_one_that_took_its_place(
    scripted: Installation,
) -> None:
    port_file = scripted.root / "port"
    with an_http_front(scripted) as first:
        port_file.unlink()  # the next one is waited for by it
        with an_http_front(scripted) as second:
            first.client.process.terminate()
            first.client.process.wait(PATIENCE)
            assert port_file.read_text("ascii") == f"{second.port}\n"
