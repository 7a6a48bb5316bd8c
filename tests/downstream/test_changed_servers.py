"""Servers that change their era, refuse to be listened to, or go between two rounds of a call."""

import json  # noqa: TID251  what a server of this test says
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import anyio
import pytest
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response, StreamingResponse

from ironcurtain_proxy.errors import DownstreamError, UnansweredError
from ironcurtain_proxy.jsonrpc.codec import value_at
from ironcurtain_proxy.model.operation import SUBSCRIPTION_KEY, VERSION_KEY
from ironcurtain_proxy.model.server import ServerSpec, ToolResult
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Message, Site, event, remote, serving
from tests.downstream.scripted_servers import a_call, modern_only, scripted, text_of
from tests.downstream.test_modern import Around, modern_site, operation, said, used
from tests.program import until

pytestmark = pytest.mark.anyio


class Listened:
    """A site without a handshake whose requests to listen a test answers."""

    def __init__(
        self, *, refuses: Sequence[str] = (), grants: Sequence[str] | None = None, least: int = 1
    ) -> None:
        """Acknowledge no request for fewer resources than `least`."""
        self.site = modern_site(resources={"subscribe": True})
        self.refuses, self.grants, self.least = refuses, grants, least
        assert self.site.handler is not None
        self.plain, self.site.handler = self.site.handler, self.answer

    async def answer(self, heard: Heard) -> Response | None:
        if heard.said != "subscriptions/listen":
            return await self.plain(heard)
        wanted = value_at(heard.body, "params", "notifications", "resourceSubscriptions")
        assert isinstance(wanted, list)
        if set(self.refuses) & {str(one) for one in wanted}:
            error: Message = {"code": -32603, "message": "full"}
            return JSONResponse({"jsonrpc": "2.0", "id": heard.body["id"], "error": error})
        heeded: Json = [one for one in wanted if self.grants is None or one in self.grants]
        said: Message = {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {SUBSCRIPTION_KEY: heard.body["id"]},
                "notifications": {"resourceSubscriptions": heeded},
            },
        }

        async def events() -> AsyncIterator[bytes]:
            yield event(said) if len(wanted) >= self.least else b": later"
            await anyio.sleep_forever()

        return StreamingResponse(events(), media_type="text/event-stream")


async def test_resources_that_are_subscribed_to_at_once_wait_for_no_other() -> None:
    server = Listened(least=5)
    with serving(server.site):
        async with used(remote(server.site.url), Around()) as servers:
            found: list[ToolResult] = []

            async def subscribe(uri: str) -> None:
                found.append(await servers.forward(operation("resources/subscribe", uri)))

            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(subscribe, f"note://{number}")
    assert [one.result for one in found] == [{}] * 5


@pytest.mark.parametrize(
    "server", [Listened(refuses=["note://b"]), Listened(grants=["note://a"])], ids=["all", "one"]
)
async def test_a_resource_that_a_server_does_not_tell_of_is_not_subscribed_to(
    server: Listened,
) -> None:
    with serving(server.site):
        async with used(remote(server.site.url), Around()) as servers:
            found = [
                await servers.forward(operation("resources/subscribe", uri))
                for uri in ("note://a", "note://b", "note://a")
            ]
    assert [one.error is None for one in found] == [True, False, True]


GONE: Final = {
    "refused": lambda _: JSONResponse({"jsonrpc": "2.0"}, 401),
    "no answer": lambda _: Response(status_code=404),
}


@pytest.mark.parametrize("end", GONE.values(), ids=GONE)
async def test_a_call_whose_server_is_gone_between_two_rounds_may_have_been_carried_out(
    end: Callable[[Heard], Response],
) -> None:
    async def handler(heard: Heard) -> Response | None:
        assert plain is not None
        return end(heard) if "inputResponses" in str(heard.body) else await plain(heard)

    wish: Message = {"inputRequests": {"a": {"method": "roots/list"}}, "requestState": "1"}
    site = modern_site(answers=[{"resultType": "input_required", **wish}])
    plain, site.handler = site.handler, handler
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            with pytest.raises(UnansweredError):
                await servers.forward(a_call("echo"))


@pytest.mark.parametrize("was_modern", [True, False])
async def test_a_server_over_http_that_speaks_the_other_era_later_is_begun_anew(
    was_modern: bool,
) -> None:
    """It was started again in another version: to its old era it answers with errors alone."""
    modern = modern_site(answers=[{"content": [{"type": "text", "text": "modern"}]}])
    is_modern = was_modern

    async def handler(heard: Heard) -> Response | None:
        assert modern.handler is not None
        number = heard.body.get("id") if is_modern else None
        if is_modern and VERSION_KEY in str(heard.body):
            return await modern.handler(heard)
        if not is_modern and (heard.said == "initialize" or "mcp-session-id" in heard.headers):
            return None
        fault: Message = {"code": -32602, "message": "no _meta, or no session"}
        return JSONResponse({"jsonrpc": "2.0", "id": number, "error": fault}, 400)

    site = Site(handler=handler)
    with serving(site):
        async with used(remote(site.url), Around()) as servers:
            words = {True: "modern", False: "done"}
            assert await text_of(servers, "echo") == words[was_modern]
            is_modern = not was_modern

            async def changed() -> None:
                while True:
                    with suppress(DownstreamError):
                        found = await servers.forward(a_call("echo"))
                        if found.error is None:
                            assert said(found) == words[not was_modern]
                            return
                    await anyio.sleep(0.05)

            await changed()


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.requirement("T-10")
async def test_a_process_that_speaks_the_other_era_after_a_restart_is_used_so(
    is_first: bool, tmp_path: Path
) -> None:
    """What its first process has said of its era holds for that one alone."""
    began, heard = tmp_path / "began", tmp_path / "heard"
    modern, legacy = modern_only(-32601), scripted()
    first, second = (modern, legacy) if is_first else (legacy, modern)
    commands = [shlex.join([one.command, *one.args]) for one in (first, second)]
    later = f"[ -e {began} ] && {{ tee {heard} | {commands[1]}; exit; }}"
    script = f"{later}; touch {began}; exec {commands[0]}"
    spec = replace(modern, command="/bin/sh", args=("-c", script))
    async with used(spec, Around()) as servers:
        await servers.forward(a_call("echo"))
        with suppress(DownstreamError):
            await servers.forward(a_call("crash"))
        await until(lambda: servers.status()["one"].starts == 2)
        await until(lambda: servers.status()["one"].state == "ready")
        assert (await servers.forward(a_call("echo"))).error is None
    (called,) = [line for line in heard.read_text().splitlines() if '"tools/call"' in line]
    assert (VERSION_KEY in called) == (not is_first)


HANDSHAKE: Final = ("initialize", "notifications/initialized")
FULL: Final[Message] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
}


@pytest.mark.parametrize(
    ("server", "begun"),
    [
        (scripted(), HANDSHAKE),
        (scripted(behaviour={"capabilities": FULL}), HANDSHAKE),
        (modern_only(-32601), ("initialize", "server/discover")),
        (modern_only(-32022, supported=["2026-07-28"]), ("initialize", "server/discover")),
        (Site(), ("server/discover", *HANDSHAKE)),
        (Site(session=None), ("server/discover", *HANDSHAKE)),
        (modern_site(), ("server/discover", "initialize")),
    ],
    ids=["process", "full", "modern", "modern says so", "site", "no session", "modern site"],
)
@pytest.mark.requirement("T-29")
@pytest.mark.requirement("T-31")
async def test_a_server_is_begun_as_its_era_is_and_asked_one_thing_besides_at_most(
    server: ServerSpec | Site, begun: Sequence[str], tmp_path: Path
) -> None:
    """A process of before is asked nothing besides: some end at what they do not know."""
    heard = tmp_path / "heard"
    with ExitStack() as stack:
        if isinstance(server, Site):
            spec = remote(stack.enter_context(serving(server)).url)
        else:
            line = f"tee {heard} | {shlex.join([server.command, *server.args])}"
            spec = replace(server, command="/bin/sh", args=("-c", line))
        async with used(spec, Around()) as servers:
            assert (await servers.forward(a_call("echo"))).error is None
            assert servers.status()["one"].starts == 1
    if isinstance(server, Site):
        told = [one.body for one in server.heard if one.method == "POST"]
    else:
        told = [json.loads(line) for line in heard.read_bytes().splitlines()]
    # The list is asked for again before a call where it may be no second old.
    methods = list(dict.fromkeys([str(one["method"]) for one in told]))
    assert methods == [*begun, "tools/list", "tools/call"]
    assert len({str(one["id"]) for one in told if "id" in one}) == len(
        [one for one in told if "id" in one]
    )
    is_before = begun[-2:] == HANDSHAKE
    later = [one for one in told if one["method"] not in {"server/discover", "initialize"}]
    assert [VERSION_KEY in str(one) for one in later] == [not is_before] * len(later)
