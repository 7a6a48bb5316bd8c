"""Servers without a handshake that mean harm, over HTTP and as processes.

Each costs a bounded time and memory, is told of in words of the proxy's own, and the server beside
it goes on.
"""

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from msgspec.structs import replace

from ironcurtain_proxy.downstream import notifications
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.starting import DownstreamOptions
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.reply import question_in
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import remote
from tests.downstream.scripted_servers import a_call, run, scripted, text_of
from tests.downstream.test_modern import Around, operation
from tests.program import PATIENCE

pytestmark = pytest.mark.anyio

Message = dict[str, Json]
OPTIONS: Final = DownstreamOptions(
    call_timeout=2.0, initialize_timeout=4.0, start_deadline=PATIENCE, max_message_bytes=1 << 20
)

HOSTILE: Final[Mapping[str, str]] = {
    "discover: garbage": "if method == 'server/discover': raw(b'\\x00\\xff{{{' * 100)",
    "discover: 10 MiB": (
        "if method == 'server/discover': answer({**ABLE, 'instructions': 'x' * (10 << 20)})"
    ),
    "discover: half of UTF-8": 'if method == \'server/discover\': raw(b\'{"id":2,"":"\\xe2\\x82\')',
    "discover: a list of lists as versions": (
        "if method == 'server/discover': answer({'supportedVersions': [[[]]] * 9999})"
    ),
    "tools: pages without end": (
        "if method == 'tools/list': answer({'tools': [], 'nextCursor': str(count())})"
    ),
    "tools: a cursor of a mebibyte, again and again": (
        "if method == 'tools/list': answer({'tools': [TOOL], 'nextCursor': 'x' * 900_000})"
    ),
    "tools: an answer under another id": (
        "if method == 'tools/list': raw_answer(id + 1, {'tools': []})"
    ),
    "call: silence": "if method == 'tools/call': return",
    "call: a result type that nobody knows": (
        "if method == 'tools/call': answer({'resultType': 'surprise', 'content': []})"
    ),
    "call: questions without end": (
        "if method == 'tools/call': answer({'resultType': 'input_required', 'inputRequests':"
        " {'a': {'method': 'roots/list'}}, 'requestState': str(count())})"
    ),
    "call: a state without end": (
        "if method == 'tools/call': answer({'resultType': 'input_required', 'requestState': 's'})"
    ),
    "call: rounds that take half of the time each": (
        "if method == 'tools/call':\n"
        "        time.sleep(1.2)\n"
        "        answer({'resultType': 'input_required', 'requestState': str(count())})"
    ),
    "call: a task": (
        "if method == 'tools/call': answer({'resultType': 'task', 'taskId': 't', 'status': 'x'})"
    ),
    "call: an answer that is too large": (
        "if method == 'tools/call': answer({'content': [], 'x': 'y' * (10 << 20)})"
    ),
    "call: half of UTF-8": (
        'if method == \'tools/call\': raw(b\'{"jsonrpc":"2.0","id":\' + str(id).encode()'
        ' + b\',"result":{"content":[{"type":"text","text":"\\xe2\\x82"}]}}\')'
    ),
    "call: answers to requests that nobody sent": (
        "if method == 'tools/call': [raw_answer(n, {'content': []}) for n in range(900, 5000)]"
    ),
    "call: its answer twice": (
        "if method == 'tools/call': [raw_answer(id, {'content': []}) for _ in range(1000)]"
    ),
    "call: notifications without end": (
        "if method == 'tools/call':\n"
        "        for _ in range(20000): say('notifications/message', {'level': 'error'})"
    ),
    "call: a request of its own": (
        'if method == \'tools/call\': raw(b\'{"jsonrpc":"2.0","id":1,"method":"roots/list"}\')'
    ),
    "news: a flood of acknowledgements": (
        "if method == 'subscriptions/listen':\n        for _ in range(5000): acknowledge()"
    ),
    "news: a flood of changes": (
        "if method == 'subscriptions/listen':\n"
        "        acknowledge()\n"
        "        for n in range(5000): say('notifications/resources/updated', {'uri': f'x://{n}'})"
    ),
    "news: an acknowledgement of anything": (
        "if method == 'subscriptions/listen':\n"
        "        for what in (None, 5, [], {'resourceSubscriptions': {}},"
        " {'resourceSubscriptions': [[]] * 99}):\n"
        "            say(ACK, {'_meta': {SUB: id}, 'notifications': what})"
    ),
}
"""What a server does, in its own words."""

PROGRAM: Final = """
import json, sys, itertools, time
numbers = itertools.count()
count = lambda: next(numbers)
ACK, SUB = "notifications/subscriptions/acknowledged", "io.modelcontextprotocol/subscriptionId"
ABLE = {"supportedVersions": ["2026-07-28"], "capabilities": {
    "tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}}}
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}

def handle(line, raw):
    message = json.loads(line)
    method, id, params = message["method"], message.get("id"), message.get("params", {})
    def raw_answer(id, result):
        raw(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode())
    def answer(result):
        raw_answer(id, result)
    def say(method, params):
        raw(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())
    def acknowledge():
        say(ACK, {"_meta": {SUB: id}, "notifications": params["notifications"]})
    if id is None:
        return
    if method == "initialize":
        error = {"code": -32601, "message": "no"}
        return raw(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())
    %s
    elif method == "server/discover":
        answer(ABLE)
    elif method == "tools/list":
        answer({"tools": [TOOL]})
    elif method == "subscriptions/listen":
        acknowledge()
    else:
        answer({"content": [{"type": "text", "text": "done"}]})
"""

BY_STDIO: Final = """
def raw(data):
    sys.stdout.buffer.write(data + b"\\n")
    sys.stdout.buffer.flush()
for line in sys.stdin.buffer:
    handle(line, raw)
"""


class OverHttp:
    """The same server over HTTP: each message of its stands in a stream without an end."""

    def __init__(self, program: str) -> None:
        self.handle: dict[str, Callable[[bytes, Callable[[bytes], None]], None]] = {}
        exec(program, self.handle)  # noqa: S102  the program of this test

    async def __call__(self, client: SocketStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with client:
                received = b""
                while True:
                    while b"\r\n\r\n" not in received:
                        received += await client.receive()
                    head, _, received = received.partition(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length:")[2].split(b"\r")[0])
                    while len(received) < length:
                        received += await client.receive()
                    body, received = received[:length], received[length:]
                    await self.answer(client, body)

    async def answer(self, client: SocketStream, body: bytes) -> None:
        events: list[bytes] = []
        await anyio.to_thread.run_sync(self.handle["handle"], body, events.append)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        await client.send(head + b"transfer-encoding: chunked\r\n\r\n")
        for one in events:
            data = b"data: " + one + b"\n\n"
            await client.send(b"%x\r\n%b\r\n" % (len(data), data))
        while True:  # it never ends
            await client.send(b"3\r\n:x\n\r\n")
            await anyio.sleep(0.05)


@asynccontextmanager
async def hostile(what: str, transport: str) -> AsyncIterator[ServerSpec]:
    program = PROGRAM % HOSTILE[what]
    if transport == "stdio":
        command = ("-I", "-S", "-c", program + BY_STDIO)
        yield ServerSpec(name="one", annotations="one", command=sys.executable, args=command)
        return
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, OverHttp(program))
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610  no query of a database
        yield remote(f"http://127.0.0.1:{port}/mcp")
        tasks.cancel_scope.cancel()


ANSWERED: Final = {
    *("call: half of UTF-8", "call: its answer twice"),
    "tools: a cursor of a mebibyte, again and again",
    *[one for one in HOSTILE if one.startswith("news: ")],
}
"""Those whose call is answered all the same."""
WITHHELD: Final = {"call: a result type that nobody knows", "call: a task"} | {
    "call: questions without end",
    "call: a state without end",
}
"""Those whose answer is handed on as a question that nobody may ask."""


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_server_ends_its_own_calls_alone_in_a_bounded_time(
    what: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_FIRST_PAUSE", 0.05)
    around = Around()
    found, words = None, ""
    async with hostile(what, transport) as spec, anyio.create_task_group() as group:
        servers = DownstreamServers((spec, replace(scripted(), name="two")), OPTIONS)
        servers.hooks.on_question, servers.hooks.on_notice = around.ask, around.notice
        await group.start(run, servers)
        await servers.tools()
        # Beside it nobody waits, from the beginning to the end.
        assert await text_of(servers, "echo", {"text": "hi"}, server="two") == "hi"
        try:
            if what.startswith("news: "):
                await servers.forward(operation("resources/subscribe", "note://a"))
            found = await servers.forward(a_call("echo"))
        except DownstreamError as error:
            words = str(error)
        assert await text_of(servers, "echo", {"text": "hi"}, server="two") == "hi"
        group.cancel_scope.cancel()
    is_answered = what in ANSWERED | WITHHELD
    assert (found is not None) == is_answered, words
    assert (found is not None and question_in(found) is not None) == (what in WITHHELD)
    assert is_answered or ('server "one"' in words and words.isascii() and words.isprintable())
    assert len(words) < 400
    assert len(around.noticed) <= 5000, "a burst, and the rate of some seconds"
    assert around.asked == []
