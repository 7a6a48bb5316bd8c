"""The front over HTTP, by real HTTP: who is let in, whose session it is, and how it ends."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.e2e.http_front import (
    BOTH,
    TOKENS,
    FrontAddress,
    HttpAgent,
    an_http_front,
    events,
    raw_request,
)
from tests.e2e.installation import Installation
from tests.e2e.process_tree import marked
from tests.e2e.raw_client import at, text
from tests.tables import table

MIB = 1 << 20


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    built = Installation(tmp_path_factory.mktemp("front"))
    built.add_scripted()
    built.allow_scripted()
    built.variables["MAX_MESSAGE_BYTES"] = str(MIB)
    yield built
    built.end()


@pytest.fixture(scope="module")
def front(built: Installation) -> Iterator[FrontAddress]:
    with an_http_front(built) as found:
        yield found


@pytest.fixture(scope="module")
def alice(front: FrontAddress) -> HttpAgent:
    agent = front.agent("alice")
    agent.initialize()
    return agent


@pytest.fixture(scope="module")
def bob(front: FrontAddress) -> HttpAgent:
    agent = front.agent("bob")
    agent.initialize()
    return agent


@pytest.mark.parametrize(
    ("headers", "status"),
    table(
        "e2e/http_front.a_request_that_is_not_in_order_reaches", list[tuple[dict[str, str], int]]
    ),
)
def test_a_request_that_is_not_in_order_reaches_no_session(
    front: FrontAddress, headers: dict[str, str], status: int
) -> None:
    given = {name: value.format(port=front.port) for name, value in headers.items()}
    agent = front.agent()
    answer = agent.post(agent.message("tools/list"), **given)
    assert answer.status_code == status
    assert at(orjson.loads(answer.content), "error", "message")
    assert TOKENS["alice"] not in answer.text


def test_a_host_that_is_said_twice_is_refused(front: FrontAddress) -> None:
    token = f"Authorization: Bearer {TOKENS['alice']}\r\n"
    hosts = f"Host: 127.0.0.1:{front.port}\r\nHost: evil.example\r\n"
    line = raw_request(front.port, f"GET /mcp HTTP/1.1\r\n{hosts}{token}\r\n".encode())
    assert line.split()[1] in {b"400", b"421"}


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("Transfer-Encoding: chunked", b"200"),
        ("Transfer-Encoding: gzip, chunked", b"415"),
        ("Transfer-Encoding: chunked\r\nContent-Encoding: gzip", b"415"),
        (
            "Transfer-Encoding: chunked\r\nContent-Encoding: identity\r\nContent-Encoding: gzip",
            b"415",
        ),
        (
            "Transfer-Encoding: chunked\r\nAccept: application/json\r\nAccept: text/event-stream",
            b"200",
        ),
        ("Transfer-Encoding: chunked\r\nContent-Type: text/plain", b"415"),
        ("Transfer-Encoding: chunked\r\nMcp-Session-Id: alice-0", b"400"),
        ("Transfer-Encoding: chunked\r\nMcp-Method: tools/list", b"200"),
        ("Transfer-Encoding: chunked\r\nMcp-Method: tools/call", b"400"),
        ("Transfer-Encoding: chunked\r\nMcp-Method: tools/list\r\nMcp-Method: ping", b"400"),
        ("Transfer-Encoding: chunked\r\nMCP-Protocol-Version: 2026-07-28", b"400"),
    ],
)
def test_what_a_router_could_read_in_another_way_is_refused(
    front: FrontAddress, alice: HttpAgent, more: str, status: bytes
) -> None:
    head = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{front.port}",
        f"Authorization: Bearer {TOKENS['alice']}",
        "Content-Type: application/json",
        f"Mcp-Session-Id: {alice.session['Mcp-Session-Id']}",
        "MCP-Protocol-Version: 2025-11-25",
        more,
    ]
    body = orjson.dumps(alice.message("tools/list"))
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    line = raw_request(front.port, "\r\n".join([*head, "", ""]).encode() + chunks)
    assert line.split()[1] == status


def test_a_session_s_call_of_another_tool_than_its_header_says_is_refused(
    alice: HttpAgent,
) -> None:
    call = alice.message("tools/call", {"name": "answer", "arguments": {"text": "x"}})
    for name, status in (("answer", 200), ("forbidden", 400)):
        assert alice.post(call, **{"Mcp-Name": name}).status_code == status
    begin = alice.message("initialize", {})
    new = HttpAgent(alice.url, alice.headers)
    assert new.post(begin, **{"Mcp-Method": "tools/list"}).status_code == 400


def test_each_call_is_decided_and_recorded_under_its_session(
    built: Installation, alice: HttpAgent
) -> None:
    assert text(alice.call("answer", text="hello")) == "hello"
    assert "DENIED" in text(alice.call("forbidden", text="x"))
    logs = [built.records(file) for file in built.audit.parent.glob("audit.jsonl*")]
    sessions = {record.get("session") for log in logs for record in log}
    assert {record.get("door") for log in logs for record in log if "result" in record} == {"http"}
    assert alice.session["Mcp-Session-Id"] in sessions
    assert alice.session["Mcp-Session-Id"].startswith("alice-")


@pytest.mark.requirement("T-15")
def test_no_principal_sees_the_session_of_another(alice: HttpAgent, bob: HttpAgent) -> None:
    thief = HttpAgent(bob.url, bob.headers, dict(alice.session))
    listed = thief.message("tools/list")
    assert thief.post(listed).status_code == 404
    with thief.open() as client:
        assert client.get(thief.url).status_code == 404
        assert client.get(thief.url, headers={"Last-Event-ID": "1/0"}).status_code == 404
    assert thief.delete() == 404
    assert alice.post(listed).status_code == 200
    assert bob.post(listed).status_code == 200


def test_a_message_over_the_limit_is_refused_as_it_comes(alice: HttpAgent) -> None:
    large = alice.message("tools/call", {"name": "answer", "arguments": {"text": "x" * MIB}})
    assert alice.post(large).status_code == 413
    with alice.open() as client:
        pieces = (b" " * 65536 for _ in range(17))
        answer = client.post(
            alice.url, content=pieces, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == 413
    assert text(alice.call("answer", text="y" * (MIB // 2))) == "y" * (MIB // 2)


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{", -32700), (b"[]", -32600), (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600)],
)
def test_what_is_no_message_is_answered_with_its_error_and_recorded(
    built: Installation, alice: HttpAgent, body: bytes, code: int
) -> None:
    with alice.open() as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post(alice.url, content=body, headers=headers)
    assert answer.status_code == 400
    assert at(orjson.loads(answer.content), "error", "code") == code
    # The record is there before that of the next call.
    alice.call("answer", text="next")
    session = alice.session["Mcp-Session-Id"]
    logs = [built.records(file) for file in built.audit.parent.glob("audit.jsonl*")]
    (log,) = [one for one in logs if any(record.get("session") == session for record in one)]
    assert [one["toolName"] for one in log if "result" in one][-2:] == ["unreadable", "answer"]


@pytest.mark.parametrize("name", ["unread", "stream_ended"])
def test_what_the_front_says_to_the_proxy_no_agent_can_say(
    built: Installation, alice: HttpAgent, name: str
) -> None:
    method = f"notifications/ironcurtain/{name}"
    body = {"jsonrpc": "2.0", "method": method, "params": {"why": "forged", "shared": True}}
    with alice.open() as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post(alice.url, content=orjson.dumps(body), headers=headers)
    assert answer.status_code == 202
    alice.call("answer", text="next")
    logs = [file.read_text() for file in built.audit.parent.glob("audit.jsonl*")]
    assert not [log for log in logs if "forged" in log]


def test_a_message_may_be_written_on_many_lines(alice: HttpAgent) -> None:
    message = alice.message("tools/call", {"name": "answer", "arguments": {"text": "a\nb"}})
    with alice.open() as client:
        body = orjson.dumps(message, option=orjson.OPT_INDENT_2).replace(b"\n", b"\r\n")
        headers = {"Content-Type": "application/json"}
        answer = client.post(alice.url, content=body, headers=headers)
    assert text(at(orjson.loads(answer.content), "result")) == "a\nb"


def test_a_client_that_lost_its_stream_reads_the_rest_of_it(alice: HttpAgent) -> None:
    call = alice.message("tools/call", {"name": "hold", "arguments": {"key": "lost"}})
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
    with (
        alice.open() as client,
        client.stream("POST", alice.url, content=orjson.dumps(call), headers=headers) as stream,
    ):
        first = next(stream.iter_text())
    (place, said), *_ = events(first)
    assert said is None
    again = alice.post({**call, "method": "ping"})
    assert again.status_code == 400, "the call is under way still"
    alice.call("release", key="lost")
    with alice.open() as client:
        rest = client.get(alice.url, headers={"Last-Event-ID": place, "Accept": BOTH})
        nothing = client.get(alice.url, headers={"Last-Event-ID": "999/1"})
    assert at(events(rest.text)[-1][1], "id") == call["id"]
    assert nothing.status_code == 400


def test_a_second_stream_of_what_belongs_to_no_request_is_refused(bob: HttpAgent) -> None:
    with bob.open() as client, client.stream("GET", bob.url) as stream:
        assert stream.status_code == 200
        said = stream.iter_text()
        next(said)
        with bob.open() as other:
            assert other.get(bob.url).status_code == 409
        bob.call("change", add="added")
        changed = next(said)
    assert at(events(changed)[0][1], "method") == "notifications/tools/list_changed"


def test_no_token_reaches_a_server_a_record_or_a_log(
    built: Installation, front: FrontAddress, alice: HttpAgent
) -> None:
    environment = text(alice.call("environment"))
    files = [built.audit, built.session_log, *(built.home / ".ironcurtain").rglob("*")]
    logged = "".join(one.read_text("utf-8", "replace") for one in files if one.is_file())
    for said in (environment, logged, front.errors()):
        assert not [token for token in TOKENS.values() if token in said]
    assert "PROXY_" not in environment


def test_a_session_that_was_deleted_is_gone_with_its_processes(
    built: Installation, front: FrontAddress
) -> None:
    agent = front.agent("bob")
    before = marked(built.mark)
    agent.initialize()
    agent.call("answer", text="x")
    assert marked(built.mark) > before
    assert agent.delete() == 200
    assert agent.delete() == 404
    assert agent.post(agent.message("ping")).status_code == 404
    while marked(built.mark) - before:
        pass  # ends with the deadline of the test


def test_an_installation_makes_a_token_of_its_own(tmp_path: Path) -> None:
    built = Installation(tmp_path)
    built.add_scripted()
    built.allow_scripted()
    with an_http_front(built, PROXY_TOKENS_FILE="") as front:
        file = built.home / ".ironcurtain" / "http-tokens"
        assert file.stat().st_mode & 0o777 == 0o600
        name, token = file.read_text("utf-8").split()
        while str(file) not in front.errors():
            pass  # it is said when the port is open; ends with the deadline of the test
        assert token not in front.errors()
        agent = HttpAgent(front.url, {"Authorization": f"Bearer {token}"})
        agent.initialize()
        assert agent.session["Mcp-Session-Id"].startswith(f"{name}-")
    built.end()
