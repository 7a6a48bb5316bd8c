"""The front over HTTP, for clients without a session: each request is one POST."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import orjson
import pytest

from ironcurtain_proxy.model.operation import TASKS
from ironcurtain_proxy.model.values import Json
from tests.agent.connected import ENVELOPE
from tests.e2e.http_front import FrontAddress, HttpAgent, an_http_front
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, at, text
from tests.program import wait_until

HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "answer"}
HELLO: Message = {"name": "answer", "arguments": {"text": "hello"}}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    built = Installation(tmp_path_factory.mktemp("modern"))
    built.add_scripted()
    built.allow_scripted()
    built.variables["ESCALATION_DIR"] = str(built.root / "questions")
    yield built
    built.end()


@pytest.fixture(scope="module")
def front(built: Installation) -> Iterator[FrontAddress]:
    with an_http_front(built) as found:
        yield found


@pytest.fixture(scope="module")
def alice(front: FrontAddress) -> HttpAgent:
    return front.agent("alice")


def result(answer: httpx.Response) -> Json:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in answer.headers
    return at(orjson.loads(answer.content), "result")


def test_a_request_without_a_session_is_decided_and_answered_alone(
    built: Installation, alice: HttpAgent
) -> None:
    def answered() -> list[Message]:
        logs = [built.records(file) for file in built.audit.parent.glob("audit.jsonl*")]
        return [record for log in logs for record in log if record.get("toolName") == "answer"]

    before = answered()
    assert at(result(alice.alone("server/discover")), "supportedVersions") == ["2026-07-28"]
    called = result(alice.alone("tools/call", HELLO))
    assert text(called) == "hello"
    assert at(called, "resultType") == "complete"
    denied = result(alice.alone("tools/call", {"name": "forbidden", "arguments": {"text": "x"}}))
    assert "DENIED" in text(denied)
    mine = [record for record in answered() if record not in before]
    assert {str(record["session"]).partition("-")[0] for record in mine} == {"alice"}
    assert {record["client"] for record in mine} == {"a 1"}


ENCODED = f"=?base64?{base64.b64encode(b'answer').decode()}?="


@pytest.mark.parametrize(
    ("changed", "code", "status"),
    [
        ({"Mcp-Name": ENCODED}, None, 200),
        ({"Mcp-Name": "=?base64?YW5zd2Vy=?="}, -32020, 400),
        ({"Mcp-Name": "=?base64?!?="}, -32020, 400),
        ({"Mcp-Name": "forbidden"}, -32020, 400),
        ({"Mcp-Name": ""}, -32020, 400),
        ({"Mcp-Name": None}, -32020, 400),
        ({"Mcp-Name": ["answer", "answer"]}, -32020, 400),
        ({"Mcp-Method": "tools/list"}, -32020, 400),
        ({"Mcp-Method": None}, -32020, 400),
        ({"Mcp-Method": ["tools/call", "tools/list"]}, -32020, 400),
        ({"MCP-Protocol-Version": None}, -32020, 400),
        ({"MCP-Protocol-Version": "2025-11-25"}, -32020, 400),
        ({"MCP-Protocol-Version": "1900-01-01"}, -32020, 400),
        ({"Mcp-Session-Id": "alice-" + "0" * 32}, None, 200),
    ],
)
@pytest.mark.requirement("T-12")
def test_what_a_router_reads_is_what_the_body_says(
    alice: HttpAgent, changed: dict[str, str | list[str] | None], code: int | None, status: int
) -> None:
    message = alice.message("tools/call", {"_meta": {**ENVELOPE}, **HELLO})
    said: dict[str, str | list[str] | None] = {**HEADERS, **changed}
    headers = [("Content-Type", "application/json")]
    for name, value in said.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        headers += [(name, one) for one in values]
    with alice.open() as client:
        answer = client.post(alice.url, content=orjson.dumps(message), headers=headers)
    assert answer.status_code == status, answer.text
    error = orjson.loads(answer.content).get("error")
    assert code == (None if error is None else error["code"])
    assert orjson.loads(answer.content)["id"] == message["id"]


@pytest.mark.parametrize(
    ("method", "meta", "version", "code", "status"),
    [
        ("tools/list", {}, "2026-07-28", -32602, 400),
        ("initialize", {}, "2026-07-28", -32602, 400),
        ("ping", {}, "2026-07-28", -32602, 400),
        ("ping", None, "2026-07-28", -32601, 404),
        ("initialize", None, "2026-07-28", -32601, 404),
        ("no/such", None, "2026-07-28", -32601, 404),
        ("resources/read", None, "2026-07-28", -32602, 400),
        (
            "tools/list",
            {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "1900-01-01"},
            "1900-01-01",
            -32022,
            400,
        ),
    ],
)
def test_an_error_has_the_status_of_its_kind(
    alice: HttpAgent, method: str, meta: Json, version: str, code: int, status: int
) -> None:
    given: Message = {} if meta is None else {"_meta": meta}
    answer = alice.alone(method, given, **{"MCP-Protocol-Version": version})
    assert answer.status_code == status, answer.text
    error = at(orjson.loads(answer.content), "error")
    assert at(error, "code") == code
    if code == -32022:
        assert at(error, "data", "supported") == ["2026-07-28"]
        assert at(error, "data", "requested") == "1900-01-01"


@pytest.mark.requirement("T-27")
def test_a_task_is_its_principals_alone_and_its_name_stands_in_a_header(
    front: FrontAddress, alice: HttpAgent
) -> None:
    able: Json = {"extensions": {TASKS: {}}}
    meta: Json = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": able}
    call: Message = {"_meta": meta, "name": "ask", "arguments": {"text": "x"}}
    task = at(result(alice.alone("tools/call", call)), "taskId")
    assert isinstance(task, str)

    def about(agent: HttpAgent, method: str, **headers: str) -> httpx.Response:
        return agent.alone(method, {"_meta": meta, "taskId": task}, **headers)

    assert at(result(about(alice, "tasks/get", **{"Mcp-Name": task})), "status") == "working"
    for headers, agent, code in (
        ({}, alice, -32020),
        ({"Mcp-Name": "another"}, alice, -32020),
        ({"Mcp-Name": task, "Mcp-Method": "tools/call"}, alice, -32020),
        ({"Mcp-Name": task}, front.agent("bob"), -32602),
    ):
        for method in ("tasks/cancel", "tasks/get"):
            refused = about(agent, method, **{"Mcp-Method": method, **headers})
            assert refused.status_code == 400, refused.text
            assert at(orjson.loads(refused.content), "error", "code") == code
    assert at(result(about(alice, "tasks/get", **{"Mcp-Name": task})), "status") == "working"
    result(about(alice, "tasks/cancel", **{"Mcp-Name": task}))
    assert at(result(about(alice, "tasks/get", **{"Mcp-Name": task})), "status") == "cancelled"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_there_is_no_session_to_listen_to_or_to_end(alice: HttpAgent, method: str) -> None:
    with alice.open() as client:
        headers = {"MCP-Protocol-Version": "2026-07-28"}
        answer = client.request(method, alice.url, headers=headers)
    assert answer.status_code == 405


def test_a_notification_is_taken_and_withdraws_nothing(alice: HttpAgent) -> None:
    params: Message = {"_meta": {**ENVELOPE}, "requestId": 1}
    message: Message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    answer = alice.post(message, **{"MCP-Protocol-Version": "2026-07-28"})
    assert answer.status_code == 202


def test_clients_that_number_their_requests_alike_get_their_own_answers(
    built: Installation, front: FrontAddress
) -> None:
    names = [name for name in ("alice", "bob") for _ in range(8)]

    def call(number: int) -> tuple[int, str]:
        agent = front.agent(names[number])  # each begins with request 1
        params: Message = {"name": "answer", "arguments": {"text": f"for {number}"}}
        answer = agent.alone("tools/call", params)
        return at(orjson.loads(answer.content), "id"), text(result(answer))  # type: ignore[return-value]

    with ThreadPoolExecutor(16) as threads:
        found = [*threads.map(call, range(16))]
    assert found == [(1, f"for {number}") for number in range(16)]
    logs = [built.records(file) for file in built.audit.parent.glob("audit.jsonl*")]
    sessions = {str(record["session"]) for log in logs for record in log if "session" in record}
    # One proxy for each principal, however many clients it has.
    assert sorted(one.partition("-")[0] for one in sessions) == ["alice", "bob"]


@pytest.mark.requirement("T-14")
def test_a_client_that_closes_its_response_withdraws_its_call(
    built: Installation, alice: HttpAgent
) -> None:
    message = alice.message(
        "tools/call", {"_meta": {**ENVELOPE}, "name": "hold", "arguments": {"key": "k"}}
    )
    with alice.open() as client:
        headers = {**HEADERS, "Mcp-Name": "hold", "Content-Type": "application/json"}
        with client.stream(
            "POST", alice.url, content=orjson.dumps(message), headers=headers
        ) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
    wait_until(lambda: withdrawn(built))


def withdrawn(built: Installation) -> bool:
    logs = [built.records(file) for file in built.audit.parent.glob("audit.jsonl*")]
    return any(
        "withdrawn" in str(record)
        for log in logs
        for record in log
        if record.get("toolName") == "hold"
    )
