"""Whatever comes over the wire, from the agent or from a server: each request ends once."""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.downstream.connection import Connection
from ironcurtain_proxy.downstream.conversation import Listeners
from ironcurtain_proxy.downstream.notifications import UnusableMessages
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.values import Json
from tests.agent.connected import an_agent

CALLS: Final = 3
ODD: Final[st.SearchStrategy[object]] = st.sampled_from(
    [None, True, 1.5, -1, 1 << 70, "", "é", [], {}]
)
IDS: Final = st.one_of(st.integers(0, 4), st.sampled_from(["a", "b"]), ODD)
METHODS: Final = st.sampled_from(
    ["ping", "tools/call", "tools/list", "nope", "notifications/cancelled", "", 7]
)
PARAMS: Final = st.one_of(
    st.just({"name": "echo", "arguments": {"x": 1}}),
    st.just({"requestId": 1}),
    st.just({"name": "fail"}),
    st.just({"progressToken": 0}),
    ODD,
)
RESULTS: Final = st.one_of(st.just({"content": []}), st.just({"code": -1, "message": "m"}), ODD)


def messages(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[bytes]:
    """Objects that have some of these fields, as lines; now and then one that is torn."""
    whole = st.fixed_dictionaries({}, optional={"jsonrpc": st.just("2.0"), **fields})
    lines = whole.map(_line)
    torn = st.tuples(lines, st.integers(0, 60)).map(lambda one: one[0][: one[1]])
    return st.one_of(lines, lines, lines, torn, st.binary(max_size=12))


def _line(message: dict[str, object]) -> bytes:
    with suppress(TypeError):
        return orjson.dumps(message)
    return repr(message).encode()


@given(st.lists(messages(id=IDS, method=METHODS, params=PARAMS), max_size=8))
@settings(max_examples=60, deadline=None)
def test_an_agents_request_is_answered_once_whatever_comes_beside_it(lines: list[bytes]) -> None:
    anyio.run(_answered_once, b"\n".join(lines))


async def _answered_once(data: bytes) -> None:
    ours = [f"ours-{number}" for number in range(3)]
    async with an_agent() as agent:
        await agent.initialize()
        for request_id in ours:
            agent.send(id=request_id, method="ping")
            agent.write(data + b"\n")
        agent.hang_up()
        while isinstance(line := await agent.lines.receive(), bytes):
            agent.arrived.append(orjson.loads(line))
    answers = Counter(
        str(one["id"]) for one in agent.arrived if "method" not in one and "id" in one
    )
    assert [answers[one] for one in ours] == [1, 1, 1]


class Said:
    """A server's side of the wire: it has said everything before it is asked."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = deque(lines)
        self.is_closed = False
        self.backlog = 0
        self.calls = 0
        self.asked = anyio.Event()

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """All lines wait in the queue."""

    async def receive(self) -> bytes | None:
        await self.asked.wait()
        return self.lines.popleft() if self.lines else None

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def write(self, line: bytes) -> None:
        self.calls += b'"tools/call"' in line
        if self.calls == CALLS:
            self.asked.set()


@given(
    st.lists(
        messages(id=IDS, method=METHODS, params=PARAMS, result=RESULTS, error=RESULTS), max_size=12
    )
)
@settings(max_examples=100, deadline=None)
def test_a_call_ends_once_whatever_its_server_says(lines: list[bytes]) -> None:
    anyio.run(_ended_once, lines)


async def _ended_once(lines: list[bytes]) -> None:
    async def pass_on(_params: object) -> None:
        return

    wire = Said(lines)
    listeners = Listeners(tools_changed=lambda: None, logged=pass_on, roots=list)
    dropped = UnusableMessages("one", (), SessionLog())
    connection = Connection("one", (wire, wire), listeners, dropped, 1 << 16)
    ended: list[bool] = []

    async def call(number: int) -> None:
        params: dict[str, Json] = {"name": "echo", "_meta": {"progressToken": number}}
        with suppress(DownstreamError):
            await connection.call(params, 10, pass_on)
        ended.append(True)

    async with anyio.create_task_group() as tasks:
        for number in range(CALLS):
            tasks.start_soon(call, number)
        tasks.start_soon(connection.run)
    assert len(ended) == CALLS
