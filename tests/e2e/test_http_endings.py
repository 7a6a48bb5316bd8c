"""How sessions over HTTP end: with their client, their front, their proxy; nothing is left."""

import os
import signal
import socket
import stat
from collections.abc import Iterator

import httpx
import orjson
import pytest

from tests.agent.connected import HELLO
from tests.e2e.http_front import TOKENS, HttpAgent, an_http_front, events
from tests.e2e.installation import Installation
from tests.e2e.process_tree import children, descendants
from tests.e2e.raw_client import Message, at, text
from tests.fakes import NO_TLS
from tests.program import PATIENCE, wait_until

STREAM = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}


def held(agent: HttpAgent) -> tuple[Message, bytes]:
    message = agent.message("tools/call", {"name": "hold", "arguments": {"key": "k"}})
    return message, orjson.dumps(message)


def rest_of(lines: Iterator[str]) -> str:
    return "".join(lines)


@pytest.fixture
def brief(scripted: Installation) -> Installation:
    """Calls under way are not waited for."""
    file = scripted.root / "config.json"
    file.write_text('{"drainSeconds": 0.01}', "utf-8")
    scripted.variables["IRONCURTAIN_CONFIG"] = str(file)
    return scripted


def test_a_call_under_way_is_answered_when_its_session_is_deleted(brief: Installation) -> None:
    with an_http_front(brief) as front:
        agent = front.agent()
        agent.initialize()
        message, body = held(agent)
        with (
            agent.open() as client,
            client.stream("POST", agent.url, content=body, headers=STREAM) as stream,
        ):
            said = stream.iter_text()
            first = next(said)
            assert agent.delete() == 200
            answer = events(first + rest_of(said))[-1][1]
        assert at(answer, "id") == message["id"]
        assert "not done in time" in text(at(answer, "result"))
        assert agent.post(agent.message("ping")).status_code == 404


def test_a_front_that_ends_answers_what_is_under_way_and_leaves_no_process(
    scripted: Installation,
) -> None:
    with an_http_front(scripted) as front:
        agent = front.agent()
        agent.initialize()
        _, body = held(agent)
        with (
            agent.open() as client,
            client.stream("POST", agent.url, content=body, headers=STREAM) as stream,
            client.stream("GET", agent.url) as own,
        ):
            said = stream.iter_text()
            first = next(said)
            assert len(descendants(front.client.process.pid)) > 2
            front.client.process.terminate()
            last = events(first + rest_of(said))[-1][1]
            rest_of(own.iter_text())
        assert at(last, "error", "message") == "the session ended before the answer"
        assert front.client.process.wait(PATIENCE) == 128 + signal.SIGTERM
    # The end of the installation looks for processes that are left.


def test_a_front_that_is_killed_leaves_no_process(scripted: Installation) -> None:
    with an_http_front(scripted) as front:
        front.agent().initialize()
        front.client.process.kill()
        front.client.process.wait(PATIENCE)
        (scripted.root / "port").unlink()  # it could not


def test_a_client_that_leaves_while_its_session_starts_leaves_no_process(
    scripted: Installation,
) -> None:
    """It never reads the session's name, so nobody would end it before it is unused for long."""
    with an_http_front(scripted) as front:
        pid, agent = front.client.process.pid, front.agent()
        body = orjson.dumps(agent.message("initialize", HELLO))
        sent = [f"{name}: {value}\r\n" for name, value in {**STREAM, **agent.headers}.items()]
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{front.port}\r\n{''.join(sent)}"
        with socket.create_connection(("127.0.0.1", front.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: len(children(pid)) == 1)
            [proxy] = children(pid)
            os.kill(proxy, signal.SIGSTOP)
        os.kill(proxy, signal.SIGCONT)
        wait_until(lambda: not children(pid))


def test_a_session_whose_proxy_dies_is_gone_and_others_go_on(scripted: Installation) -> None:
    with an_http_front(scripted) as front:
        one, other = front.agent("alice"), front.agent("bob")
        one.initialize()
        [proxy] = children(front.client.process.pid)
        other.initialize()
        _, body = held(one)
        with (
            one.open() as client,
            client.stream("POST", one.url, content=body, headers=STREAM) as stream,
        ):
            said = stream.iter_text()
            first = next(said)
            os.kill(proxy, signal.SIGKILL)
            last = events(first + rest_of(said))[-1][1]
        assert at(last, "error", "message") == "the session ended before the answer"
        assert one.post(one.message("ping")).status_code == 404
        assert text(other.call("answer", text="x")) == "x"


def test_a_message_whose_session_ends_before_it_is_whole_is_answered(
    scripted: Installation,
) -> None:
    with an_http_front(scripted) as front:
        agent = front.agent()
        agent.initialize()
        [proxy] = children(front.client.process.pid)

        def body() -> Iterator[bytes]:
            yield b'{"jsonrpc":"2.0","id":7,'
            # What came before this was read before its answer.
            assert agent.post(agent.message("ping")).status_code == 200
            os.kill(proxy, signal.SIGKILL)
            while agent.post(agent.message("ping")).status_code != 404:
                pass
            yield b'"method":"ping"}'

        with agent.open() as client:
            answer = client.post(agent.url, content=body(), headers=STREAM)
        last = events(answer.text)[-1][1]
        assert at(last, "error", "message") == "the session ended before the answer"


def test_a_call_that_is_cancelled_ends_its_stream(scripted: Installation) -> None:
    with an_http_front(scripted) as front:
        agent = front.agent()
        agent.initialize()
        message, body = held(agent)
        with (
            agent.open() as client,
            client.stream("POST", agent.url, content=body, headers=STREAM) as stream,
        ):
            said = stream.iter_text()
            first = next(said)
            params: Message = {"requestId": message["id"]}
            told: Message = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": params,
            }
            assert agent.post(told).status_code == 202
            ended = events(first + rest_of(said))
            assert not [one for _, one in ended if isinstance(one, dict) and "id" in one]
        assert text(agent.call("answer", text="x")) == "x"


def test_a_unix_socket_is_for_its_user_and_goes_with_the_front(scripted: Installation) -> None:
    place = scripted.root / "mcp.sock"
    variables = {"PROXY_SOCKET_PATH": str(place), "PROXY_TCP_PORT": "0"}
    with an_http_front(scripted, **variables) as front:
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        headers = {"Authorization": f"Bearer {TOKENS['alice']}", "Host": "localhost"}
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(place), verify=NO_TLS)) as client:
            assert client.get("http://localhost/mcp", headers=headers).status_code == 400
            del headers["Authorization"]
            assert client.get("http://localhost/mcp", headers=headers).status_code == 401
        assert front.agent().post({}).status_code == 400
    assert not place.exists()


def test_what_cannot_be_used_stops_the_start_with_a_line(scripted: Installation) -> None:
    scripted.variables |= {"PROXY_TOKEN": "short"}
    client = scripted.launch("serve", "--http")
    assert client.process.wait(PATIENCE) == 2
    said = client.errors.read_text("utf-8")
    assert "a token is 32 to 4096 visible characters" in said
    assert "Traceback" not in said
    assert "short" not in said
