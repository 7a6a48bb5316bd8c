"""Inputs that atheris makes up, for each place where something comes from outside.

A target fails by an exception, by a hang, or where a request is not answered exactly once. The
input that did it is kept in a file, and `scripts/fuzz TARGET --input FILE` runs it again.
"""

import argparse
import json  # noqa: TID251  lenient, as an agent's library is
import sys
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import atheris

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["ironcurtain_proxy"]):
    import httpx2

    from ironcurtain_proxy.audit.log import AuditLog
    from ironcurtain_proxy.audit.verify import verify
    from ironcurtain_proxy.config.policy.annotations_file import read_annotations_file
    from ironcurtain_proxy.config.policy.policy_file import PolicyReader
    from ironcurtain_proxy.config.reading.document import Report
    from ironcurtain_proxy.downstream.connection import Connection
    from ironcurtain_proxy.downstream.conversation import Listeners
    from ironcurtain_proxy.downstream.notifications import UnusableMessages
    from ironcurtain_proxy.downstream.remote.exchange import Response, is_answer_to
    from ironcurtain_proxy.downstream.remote.streamable import StreamPosition
    from ironcurtain_proxy.downstream.session_log import SessionLog
    from ironcurtain_proxy.errors import ConfigurationError, DownstreamError
    from ironcurtain_proxy.front.guard import Principals, RequestGuard
    from ironcurtain_proxy.front.serving import Front
    from ironcurtain_proxy.front.sessions import ProxyProcess, Sessions
    from ironcurtain_proxy.jsonrpc.codec import decode
    from ironcurtain_proxy.mailbox.messages import Expected, judge_response, read_request
    from ironcurtain_proxy.model.values import RealPath
    from tests.agent.connected import an_agent

TOKEN: Final = "t" * 40
CALLS: Final = 3
HELLO: Final = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
RULE: Final = b'{"rules":[{"name":"a","if":{"server":["x"]},"then":"allow","reason":"r"}]}'


class BrokenPromiseError(Exception):
    """What must always hold does not."""


# --- the wire


def agent(data: bytes) -> None:
    """Lines of an agent: each request is answered once, and the connection stays usable."""
    anyio.run(_agent, data)


async def _agent(data: bytes) -> None:
    said = data[:60_000]
    with anyio.fail_after(20):
        async with an_agent(max_line=1 << 16) as found:
            await found.initialize()
            found.write(said + b"\n")
            found.send(id="the end", method="ping")
            await found.answer("the end")
            found.hang_up()
            while isinstance(line := await found.lines.receive(), bytes):
                found.arrived.append(json.loads(line))
    given = Counter(_key(one.get("id")) for one in found.arrived if "method" not in one)
    asked = [_asked(line) for line in said.split(b"\n")]
    times = Counter(_key(one.get("id")) for one in asked if one is not None)
    unreadable = asked.count(None) + 1  # its id is a guess, or none
    for key in given.keys() - {_key(None), _key("the end"), _key("ask-0")}:
        if given[key] > times[key] + unreadable:
            raise BrokenPromiseError(
                f"{key} was answered {given[key]} times, and asked {times[key]} times"
            )
    for one in asked:
        if one is not None and _is_ping(one) and not given[_key(one["id"])]:
            raise BrokenPromiseError(f"{one['id']!r} was not answered")


def _asked(line: bytes) -> dict[str, object] | None:
    """The message of a line; None: it is none that everybody reads alike."""
    with suppress(ValueError, RecursionError):
        message = json.loads(line)
        return message if isinstance(message, dict) else None
    return None


def _is_ping(one: dict[str, object]) -> bool:
    has_id = type(one.get("id")) in {int, str}
    return one.get("jsonrpc") == "2.0" and one.get("method") == "ping" and has_id


def _key(value: object) -> str:
    return f"{type(value).__name__} {value}"


class Lines:
    """A server's side of the wire: what it says was there before it was asked."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = deque(lines)
        self.is_closed = False
        self.backlog = 0
        self.asked = anyio.Event()

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """Offer nothing: all lines wait in a queue."""

    async def receive(self) -> bytes | None:
        """The next line."""
        await self.asked.wait()
        return self.lines.popleft() if self.lines else None

    def close(self) -> None:
        """Close."""
        self.is_closed = True

    def write(self, line: bytes) -> None:
        """Take a line."""
        if b'"tools/call"' in line:
            self.asked.set()

    abort = close


def server(data: bytes) -> None:
    """Lines of a server: each call ends once, with an answer or an error of ours."""
    anyio.run(_server, data)


async def _server(data: bytes) -> None:
    async def pass_on(_params: object) -> None:
        return

    wire = Lines(data.split(b"\n"))
    listeners = Listeners(tools_changed=lambda: None, logged=pass_on, roots=list)
    log = SessionLog()
    connection = Connection("one", (wire, wire), listeners, UnusableMessages("one", (), log), 9999)
    ended: list[bool] = []

    async def call(number: int) -> None:
        params = {"name": "echo", "_meta": {"progressToken": number}}
        with suppress(DownstreamError):
            await connection.call(params, 5, pass_on)
        ended.append(True)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(CALLS):
                tasks.start_soon(call, number)
            tasks.start_soon(connection.run)
    if len(ended) != CALLS:
        raise BrokenPromiseError(f"{len(ended)} calls ended")


def http(data: bytes) -> None:
    """A request to the front: headers and a body. It gets one whole answer."""
    anyio.run(_http, data)


async def _http(data: bytes) -> None:
    async def start(_name: str) -> ProxyProcess:
        raise FileNotFoundError

    given = atheris.FuzzedDataProvider(data)
    names = (b"host", b"authorization", b"accept", b"content-type", b"mcp-session-id",
             b"last-event-id", b"origin", b"mcp-protocol-version", b"content-length")  # fmt: skip
    headers = {
        b"host": b"h",
        b"authorization": f"Bearer {TOKEN}".encode(),
        b"content-type": b"application/json",
    }
    for _ in range(given.ConsumeIntInRange(0, 2)):
        name = names[given.ConsumeIntInRange(0, len(names) - 1)]
        headers[name] = given.ConsumeBytes(given.ConsumeIntInRange(0, 40))
    method = ("POST", "GET", "DELETE", "PUT")[given.ConsumeIntInRange(0, 3)]
    body = given.ConsumeBytes(given.remaining_bytes())
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    said: list[str] = []

    async def receive() -> Mapping[str, object]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Mapping[str, object]) -> None:
        said.append(str(message["type"]))

    sessions = Sessions(start, max_waiting=1 << 16, patience=1)
    front = Front(RequestGuard(Principals({TOKEN: "me"}), ["h"]), sessions, 1 << 16)
    scope = {
        "type": "http",
        "method": method,
        "path": "/mcp",
        "query_string": b"",
        "headers": list(headers.items()),
    }
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(sessions.run)
            await front(scope, receive, send)
            tasks.cancel_scope.cancel()
    if said[:1] != ["http.response.start"] or said.count("http.response.start") != 1:
        raise BrokenPromiseError(f"answered with {said}")


def events(data: bytes) -> None:
    """The kind of an answer, then a stream of events or a JSON answer, of a server over HTTP."""
    anyio.run(_events, data)


async def _events(data: bytes) -> None:
    kind, _, body = data.partition(b"\n")

    async def parts() -> AsyncIterator[bytes]:
        yield body

    response = httpx2.Response(
        200,
        headers=[(b"content-type", b"text/event-stream; charset=" + kind)],
        content=parts(),
        request=httpx2.Request("GET", "http://a/"),
    )
    place = StreamPosition()
    with suppress(httpx2.TransportError):
        async for event in Response(response).events(1 << 14):
            place.note(event)
            is_answer_to(event.data.encode(), 1)
    is_answer_to(body, 1)
    decode(body)


# --- files


def audit(data: bytes) -> None:
    """A log that somebody wrote to: it is verified, repaired, and written on."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        log = Path(place) / "audit.jsonl"
        log.write_bytes(data)
        log.chmod(0o600)
        verify(log)
        with suppress(ConfigurationError):
            AuditLog.open(log).close()
        verify(log)


def mailbox(data: bytes) -> None:
    """An answer, and a question, as files."""
    expected = Expected(digest="0" * 64, require_digest=False, candidates=2, session="s", id="e")
    judge_response(data, expected)
    read_request("request-e.json", data)


def policy(data: bytes) -> None:
    """Rules and annotations, as YAML and as JSON."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for name in ("x.yaml", "x.json"):
            file = Path(place) / name
            file.write_bytes(data)
            home = Path("/home/x")
            PolicyReader(home=home, workspace=RealPath(("w",)), report=Report()).read(file)
            read_annotations_file(file, Report())


SEEDS: Final[Mapping[Callable[[bytes], None], Sequence[bytes]]] = {
    agent: [
        HELLO,
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}\n' * 2,
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}',
        b'[{"jsonrpc":"2.0","id":"x","method":"ping"}]\n{"id":1.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":"x","method":"ping"}\n{"jsonrpc":"2.0","id":4,"method":"ping"}',
    ],
    server: [
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n{"jsonrpc":"2.0","id":2,"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}\n{"id":3,"result":{},"error":{"code":1}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}',
    ],
    http: [b"\x00\x00" + HELLO, b"\x01\x04\x08abcdefgh\x00" + HELLO],
    events: [
        b'utf-8\nid: 1\nevent: message\nretry: 5\ndata: {"id":1,"result":{}}\n\n',
        b'bz2\ndata: {"id":1}\nretry: ' + b"9" * 400 + b"\n\n",
        b'\n{"id":1,"result":' + b"[" * 1500,
    ],
    audit: [
        b'{"seq":1,"prev":"' + b"0" * 64 + b'","requestId":"a","phase":"intent","hash":"1"}\n' * 2
    ],
    mailbox: [
        b'{"escalationId":"e","decision":"approved","requestDigest":"x","remember":1}',
        b'{"escalationId":"e","serverName":"s","toolName":"t","reason":"r","arguments":{}}',
    ],
    policy: [RULE, b"rules:\n- &a {name: x, if: {}, then: deny, reason: r}\n- *a\n"],
}
TARGETS: Final = {target.__name__: target for target in SEEDS}


def main() -> None:
    """Run one target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="for how long (default: 60)")
    parser.add_argument("--input", type=Path, help="run this input once")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "fuzz")
    options = parser.parse_args()
    target = TARGETS[options.target]
    if options.input is not None:
        target(options.input.read_bytes())
        return
    corpus = options.keep / options.target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[target]):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={options.seconds}", "-timeout=25", "-max_len=4096"]
    kept = f"-artifact_prefix={options.keep}/{options.target}-"
    atheris.Setup([sys.argv[0], *limits, kept, "-print_final_stats=1", str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
