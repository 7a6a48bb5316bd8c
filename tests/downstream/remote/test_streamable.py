"""Streamable HTTP against a real HTTP server: what is sent, and what goes wrong on the way back."""

import gzip
import threading

import anyio
import orjson
import pytest
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response, StreamingResponse

from ironcurtain_proxy.downstream.remote import streamable
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.errors import (
    CallLostError,
    CallTimedOutError,
    DownstreamError,
    UnansweredError,
)
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import (
    Heard,
    Message,
    Site,
    done,
    event,
    remote,
    reply,
    serving,
    stream,
    talking_to,
)
from tests.downstream.scripted_servers import OPTIONS, a_call, running, text, text_of
from tests.program import until

pytestmark = pytest.mark.anyio


async def test_a_server_is_greeted_once_and_each_later_request_names_session_and_version() -> None:
    site = Site()
    async with talking_to(site) as servers:
        assert [tool.name for tool in (await servers.tools())["one"]] == ["echo"]
        assert await text_of(servers, "echo") == "done"
    question, first, *others = site.heard
    assert question.said == "server/discover"
    assert question.headers["mcp-protocol-version"] == "2026-07-28"
    assert first.said == "initialize"
    assert "mcp-session-id" not in first.headers
    assert "mcp-protocol-version" not in first.headers
    assert {one.headers["mcp-session-id"] for one in others} == {"s-1"}
    assert {one.headers["mcp-protocol-version"] for one in others} == {"2025-06-18"}
    assert others[0].said == "notifications/initialized"
    assert others[-1].method == "DELETE"


async def test_an_answer_in_a_stream_comes_after_its_progress() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call":
            return None
        progress: Message = {"progressToken": "p", "progress": 1, "message": "half"}
        note: Message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
        return stream(event(note), b": comment\n\n", event(done(heard, "streamed")))

    seen: list[Json] = []

    async def on_progress(params: object) -> None:
        seen.append(dict(params)["message"])  # type: ignore[call-overload]

    async with talking_to(Site(handler=handler)) as servers:
        call = a_call("echo", _meta={"progressToken": "p"})
        assert text(await servers.forward(call, on_progress)) == "streamed"
    assert seen == ["half"]


async def test_a_slow_call_does_not_hold_up_a_fast_one() -> None:
    fast_was_answered = anyio.Event()

    async def handler(heard: Heard) -> Response | None:
        if heard.body.get("method") != "tools/call":
            return None
        params = heard.body["params"]
        assert isinstance(params, dict)
        if params["name"] == "slow":
            await fast_was_answered.wait()
        else:
            fast_was_answered.set()
        return JSONResponse(done(heard, str(params["name"])))

    answers: list[str] = []

    async def call(servers: DownstreamServers, tool: str) -> None:
        answers.append(await text_of(servers, tool))

    site = Site(handler=handler, tools=["slow", "fast"])
    async with talking_to(site) as servers, anyio.create_task_group() as tasks:
        tasks.start_soon(call, servers, "slow")
        await until(lambda: len(site.said("tools/call")) == 1)
        tasks.start_soon(call, servers, "fast")
    assert sorted(answers) == ["fast", "slow"]


async def test_a_torn_stream_is_taken_up_where_it_ended() -> None:
    asked: list[Message] = []

    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            asked.append(heard.body)
            return stream(event(id="e-7", retry="100"))
        if heard.method == "GET" and "last-event-id" in heard.headers:
            assert heard.headers["last-event-id"] == "e-7"
            return stream(event(done(Heard("", "", {}, asked[0]), "resumed"), id="e-8"))
        return None

    async with talking_to(Site(handler=handler)) as servers:
        assert await text_of(servers, "echo") == "resumed"


async def test_a_stream_that_ends_without_an_answer_loses_the_call_and_nothing_else() -> None:
    async def handler(heard: Heard) -> Response | None:
        first = heard.said == "tools/call" and len(site.said("tools/call")) == 1
        return stream(b": nothing\n\n") if first else None

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        with pytest.raises(UnansweredError, match="without an answer"):
            await servers.forward(a_call("echo"))
        assert await text_of(servers, "echo") == "done"


async def test_a_connection_that_breaks_loses_its_call_as_one_that_may_have_been_done() -> None:
    async def torn(heard: Heard) -> Response | None:
        if heard.said != "tools/call":
            return None
        return Response(b"{", media_type="application/json", headers={"content-length": "100"})

    async with talking_to(Site(handler=torn)) as servers:
        with pytest.raises(CallLostError, match="broke before it answered"):
            await servers.forward(a_call("echo"))


async def test_a_request_of_the_server_with_our_own_number_is_no_answer() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call":
            return None
        ping: Message = {"jsonrpc": "2.0", "id": heard.body["id"], "method": "ping"}
        roots: Message = {"jsonrpc": "2.0", "id": "r", "method": "roots/list"}
        return stream(event(ping), event(roots), event(done(heard)))

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        assert await text_of(servers, "echo") == "done"
        await until(lambda: sum("result" in one.body for one in site.heard) == 2)
    answers = [one.body["result"] for one in site.heard if "result" in one.body]
    assert {} in answers
    assert {"roots": []} in answers


async def test_what_the_server_says_of_its_own_accord_comes_through_a_stream_of_its_own() -> None:
    more = threading.Event()  # the site has a loop of its own

    async def handler(heard: Heard) -> Response | None:
        if heard.method != "GET":
            return None

        async def send() -> object:
            yield b": hello\n\n"
            await until(more.is_set)  # as above
            yield event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await anyio.sleep_forever()

        return StreamingResponse(send(), media_type="text/event-stream")  # type: ignore[arg-type]

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        site.tools.append("new")
        await until(lambda: any(one.method == "GET" for one in site.heard))
        more.set()
        await until(lambda: len(servers.tools_now()["one"]) == 2)


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_without_such_a_stream_and_session_is_asked_for_one_once(
    status: int,
) -> None:
    async def handler(heard: Heard) -> Response | None:
        return Response(status_code=status) if heard.method == "GET" else None

    site = Site(handler=handler, session=None)
    async with talking_to(site) as servers:
        await until(lambda: any(one.method == "GET" for one in site.heard))
        assert await text_of(servers, "echo") == "done"
        # Two steps of the pause after which a stream that broke is asked for again.
        await anyio.sleep(2.2)
    assert [one.method for one in site.heard].count("GET") == 1
    assert [one.said for one in site.heard].count("initialize") == 1


async def test_a_server_without_a_usable_stream_is_asked_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamable, "_RETRY", 0.05)

    async def handler(heard: Heard) -> Response | None:
        return Response(status_code=500) if heard.method == "GET" else None

    site = Site(handler=handler)
    async with talking_to(site):
        # Pauses of 0.05, 0.1, 0.2, 0.4 and 0.8 seconds; without their growth there are 30.
        await anyio.sleep(1.5)
    assert 2 <= [one.method for one in site.heard].count("GET") <= 6


async def test_a_call_without_an_answer_ends_at_its_deadline_and_is_withdrawn() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            await anyio.sleep_forever()
        return None

    site = Site(handler=handler)
    async with talking_to(site, options=replace(OPTIONS, call_timeout=0.2)) as servers:
        with pytest.raises(CallTimedOutError):
            await servers.forward(a_call("echo"))
        await until(lambda: len(site.said("notifications/cancelled")) == 1)


@pytest.mark.parametrize("as_stream", [True, False])
async def test_an_answer_over_the_limit_fails_its_call_alone(as_stream: bool) -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call" or len(site.said("tools/call")) > 1:
            return None
        large = done(heard, "x" * 100_000)
        return stream(event(large)) if as_stream else JSONResponse(large)

    site = Site(handler=handler)
    async with talking_to(site, options=replace(OPTIONS, max_message_bytes=50_000)) as servers:
        with pytest.raises(UnansweredError, match="larger than 50000 bytes"):
            await servers.forward(a_call("echo"))
        assert await text_of(servers, "echo") == "done"


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call":
            return None
        packed = gzip.compress(orjson.dumps(done(heard)))
        return Response(packed, media_type="application/json", headers={"content-encoding": "gzip"})

    site = Site(handler=handler)
    async with talking_to(site) as servers:
        with pytest.raises(UnansweredError, match="compresses"):
            await servers.forward(a_call("echo"))
    assert {one.headers.get("accept-encoding") for one in site.heard} == {"identity"}


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "is its url right"),
        (401, "wants a login"),
        (403, "its login or its key may not do that"),
        (404, "it is greeted again"),
        (410, "is its url right"),
        (500, "the fault is its own, try later"),
        (503, "the fault is its own, try later"),
    ],
)
async def test_a_status_without_an_answer_is_an_error_of_its_call_with_what_to_do(
    status: int, advice: str
) -> None:
    async def handler(heard: Heard) -> Response | None:
        return Response("no", status_code=status) if heard.said == "tools/call" else None

    async with talking_to(Site(handler=handler)) as servers:
        with pytest.raises(DownstreamError, match=advice):
            await servers.forward(a_call("echo"))


@pytest.mark.parametrize(("status", "words"), [(404, "status 404 and no stream; is its url right")])
async def test_a_place_without_a_server_is_not_said_to_speak_the_older_transport(
    status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_: Heard) -> Response:
        return Response("no", status_code=status)

    async with talking_to(Site(handler=handler)) as servers:
        assert words in servers.status()["one"].error
    assert "2024-11-05" not in caplog.text


async def test_a_json_rpc_error_with_a_status_is_passed_on() -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call":
            return None
        error: Message = {"code": -32602, "message": "no such tool"}
        body: Message = {"jsonrpc": "2.0", "id": heard.body["id"], "error": error}
        return JSONResponse(body, status_code=400)

    async with talking_to(Site(handler=handler)) as servers:
        answer = await servers.forward(a_call("echo"))
        assert answer.error == {"code": -32602, "message": "no such tool"}


async def test_headers_get_their_secrets_from_the_credentials() -> None:
    site = Site()
    with serving(site):
        spec = remote(
            site.url, headers={"Authorization": "Bearer ${TOKEN}"}, credentials={"TOKEN": "t-1"}
        )
        async with running(spec) as servers:
            await text_of(servers, "echo")
    assert {one.headers["authorization"] for one in site.heard} == {"Bearer t-1"}
    assert "t-1" not in repr(spec)


async def test_a_header_without_its_secret_is_not_sent() -> None:
    site = Site()
    with serving(site):
        async with running(remote(site.url, headers={"X-Key": "${KEY}"})) as servers:
            status = servers.status()["one"]
    assert "KEY is not in serverCredentials" in status.error
    assert site.heard == []


async def test_a_server_that_comes_late_is_greeted_then() -> None:
    with serving(Site()) as gone:
        url = gone.url
    async with running(remote(url)) as servers:
        assert "cannot be reached" in servers.status()["one"].error
        assert servers.status()["one"].state == "failed"


@pytest.mark.parametrize(
    ("status", "line_end"), [(400, b"\n"), (404, b"\r"), (405, b"\r\n"), (405, b"\r|\n")]
)
async def test_a_server_of_the_older_transport_is_spoken_to_as_it_likes(
    status: int, line_end: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """`|` stands where the server sends the rest as a piece of its own."""
    outgoing, incoming = anyio.create_memory_object_stream[bytes](100)

    async def handler(heard: Heard) -> Response | None:
        if heard.method == "GET":

            async def send() -> object:
                await outgoing.send(b"event: endpoint\ndata: /messages?session=1\n\n")
                async for one in incoming:
                    for piece in one.replace(b"\n", line_end).split(b"|"):
                        yield piece

            return StreamingResponse(send(), media_type="text/event-stream")  # type: ignore[arg-type]
        if heard.path == "/mcp":
            return Response("no", status_code=status)
        if "id" in heard.body and "method" in heard.body:
            outgoing.send_nowait(event(reply(heard, site.result_of(heard)), event="message"))
        return Response(status_code=202)

    site = Site(handler=handler)
    with outgoing, incoming:
        async with talking_to(site) as servers:
            assert await text_of(servers, "echo") == "done"
    assert "the HTTP transport of 2024-11-05" in caplog.text
    assert [one.path for one in site.said("tools/call")] == ["/messages"]


async def test_the_older_transport_is_not_led_to_another_origin() -> None:
    with serving(Site()) as other:

        async def handler(heard: Heard) -> Response | None:
            there = f"http://127.0.0.1:{other.port}/messages".encode()
            return stream(b"event: endpoint\ndata: " + there + b"\n\n")

        site = Site(handler=handler)
        with serving(site):
            async with running(remote(site.url, type="sse")) as servers:
                assert "another origin" in servers.status()["one"].error
        assert other.heard == []
