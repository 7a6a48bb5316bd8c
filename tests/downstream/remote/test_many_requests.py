"""Many requests at once over streamable HTTP, of ours and of the server, and hostile answers."""

import sys
import threading
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest
from starlette.responses import Response, StreamingResponse

from ironcurtain_proxy.downstream.remote import exchange
from ironcurtain_proxy.downstream.remote.exchange import REPLIES_AT_ONCE
from ironcurtain_proxy.errors import UnansweredError
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Site, done, event, stream, talking_to
from tests.downstream.scripted_servers import text_of
from tests.program import until

pytestmark = pytest.mark.anyio
READ_BY_NEWER = pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer Pythons read it")


@pytest.mark.parametrize("as_stream", [False, True])
@pytest.mark.parametrize(
    "depth",
    [
        pytest.param(1_500, marks=READ_BY_NEWER),
        30_000,
    ],
)
async def test_an_answer_nested_too_deeply_fails_its_call_alone(
    depth: int, *, as_stream: bool
) -> None:
    async def handler(heard: Heard) -> Response | None:
        params = heard.body.get("params")
        if heard.said != "tools/call" or not isinstance(params, dict) or params["name"] != "deep":
            return None
        deep = b"[" * depth + b"]" * depth
        number = str(heard.body["id"]).encode()
        answer = b'{"jsonrpc":"2.0","id":%b,"result":{"a":%b}}' % (number, deep)
        if as_stream:
            return stream(b"data: " + answer + b"\n\n")
        return Response(answer, media_type="application/json")

    async with talking_to(Site(handler=handler, tools=["deep", "echo"])) as servers:
        with pytest.raises(UnansweredError):
            await text_of(servers, "deep")
        assert await text_of(servers, "echo") == "done"


async def test_a_call_that_is_withdrawn_before_its_turn_is_never_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "REQUESTS_AT_ONCE", 4)
    released = threading.Event()  # the site has a loop of its own

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            await anyio.to_thread.run_sync(released.wait, 20)
        return None

    def names() -> list[Json]:
        return [one.body["params"]["name"] for one in site.said("tools/call")]  # type: ignore[index, call-overload]

    site = Site(handler=handler, tools=["first", "late", "last"])
    async with talking_to(site) as servers, anyio.create_task_group() as calls:
        for _ in range(4):
            calls.start_soon(text_of, servers, "first")
        await until(lambda: len(names()) == 4)
        with anyio.move_on_after(0.2):
            await text_of(servers, "late")
        calls.start_soon(text_of, servers, "last")
        released.set()
    assert names() == ["first"] * 4 + ["last"]
    assert site.said("notifications/cancelled") == []


async def test_a_server_that_asks_much_at_once_is_answered_by_few_requests_at_a_time() -> None:
    asked = 400
    replied, most, now = 0, 0, 0
    first, every = anyio.Event(), anyio.Event()

    async def send() -> AsyncIterator[bytes]:
        for number in range(asked):
            yield event({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"})
        await every.wait()
        yield event(done(call))

    call: Heard

    async def handler(heard: Heard) -> Response | None:
        nonlocal call, replied, most, now
        if heard.said == "tools/call":
            call = heard
            return StreamingResponse(send(), media_type="text/event-stream")
        if "method" not in heard.body and heard.method == "POST":
            now += 1
            most = max(most, now)
            if now == REPLIES_AT_ONCE:
                first.set()
            await first.wait()
            now, replied = now - 1, replied + 1
            if replied == asked:
                every.set()
        return None

    async with talking_to(Site(handler=handler)) as servers:
        assert await text_of(servers, "echo") == "done"
    assert (replied, most) == (asked, REPLIES_AT_ONCE)
