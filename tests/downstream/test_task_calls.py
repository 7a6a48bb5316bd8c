"""Tools that a server carries out as tasks alone: called and awaited as others are."""

import anyio
import pytest
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response

from ironcurtain_proxy.errors import CallLostError, CallTimedOutError, UnansweredError
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Message, Site, done, reply, talking_to
from tests.downstream.scripted_servers import OPTIONS, a_call, text_of
from tests.program import until

pytestmark = pytest.mark.anyio

CALLED_SO: Message = {"tasks": {"requests": {"tools": {"call": {}}}}}


class Tasks:
    """A server whose one tool runs as a task."""

    def __init__(self, support: str = "required", capabilities: Message = CALLED_SO) -> None:
        self.support = support
        self.capabilities = capabilities
        self.name: Json = "t-1"
        self.site = Site(handler=self.answer)

    async def answer(self, heard: Heard) -> Response | None:
        match heard.said:
            case "initialize":
                hello = self.site.result_of(heard)
                hello["capabilities"] = {"tools": {}, **self.capabilities}
                return JSONResponse(reply(heard, hello), headers={"mcp-session-id": "s"})
            case "tools/list":
                tool: Message = {
                    "name": "echo",
                    "inputSchema": {"type": "object"},
                    "execution": {"taskSupport": self.support},
                }
                return JSONResponse(reply(heard, {"tools": [tool]}))
            case "tools/call" if "task" in self.params(heard):
                task: Message = {"taskId": self.name, "status": "working"}
                return JSONResponse(reply(heard, {"task": task}))
            case "tasks/result":
                return await self.result(heard)
            case _:
                return None

    async def result(self, heard: Heard) -> Response:
        return JSONResponse(done(heard, f"the end of {self.params(heard)['taskId']}"))

    @staticmethod
    def params(heard: Heard) -> Message:
        params = heard.body["params"]
        assert isinstance(params, dict)
        return params


async def test_a_tool_that_runs_as_a_task_is_called_like_any_other() -> None:
    server = Tasks()
    async with talking_to(server.site) as servers:
        assert await text_of(servers, "echo") == "the end of t-1"
    (called,) = server.site.said("tools/call")
    assert server.params(called)["task"] == {"ttl": OPTIONS.call_timeout * 1000}


@pytest.mark.parametrize(
    ("support", "capabilities"), [("optional", CALLED_SO), ("required", {}), ("forbidden", {})]
)
async def test_any_other_tool_is_called_without_a_task(support: str, capabilities: Message) -> None:
    server = Tasks(support, capabilities)
    async with talking_to(server.site) as servers:
        assert await text_of(servers, "echo") == "done"


class Endless(Tasks):
    """Its task never ends."""

    async def result(self, heard: Heard) -> Response:
        await anyio.sleep_forever()
        return JSONResponse(done(heard))


async def test_a_task_that_does_not_end_is_cancelled_at_the_deadline_of_its_call() -> None:
    server = Endless()
    async with talking_to(server.site, options=replace(OPTIONS, call_timeout=0.3)) as servers:

        async def is_cancelled() -> bool:
            with pytest.raises(CallTimedOutError):
                await servers.forward(a_call("echo"))
            return bool(server.site.said("tasks/cancel"))

        await until(is_cancelled, "a call that has become a task in time, and is cancelled")


async def test_a_call_that_is_withdrawn_cancels_its_task() -> None:
    server = Endless()
    async with talking_to(server.site) as servers, anyio.create_task_group() as tasks:

        async def call() -> None:
            await servers.forward(a_call("echo"))

        tasks.start_soon(call)
        await until(lambda: bool(server.site.said("tasks/result")))
        tasks.cancel_scope.cancel()
    (cancelled,) = server.site.said("tasks/cancel")
    assert server.params(cancelled) == {"taskId": "t-1"}


class Mistaken(Tasks):
    """It takes one task for another."""

    async def result(self, heard: Heard) -> Response:
        about: Message = {"io.modelcontextprotocol/related-task": {"taskId": "t-2"}}
        return JSONResponse(reply(heard, {"content": [], "_meta": about}))


async def test_the_result_of_another_task_is_no_answer() -> None:
    server = Mistaken()
    async with talking_to(server.site) as servers:
        with pytest.raises(UnansweredError, match="another task"):
            await servers.forward(a_call("echo"))
        server.name = "t-2"
        assert (await servers.forward(a_call("echo"))).result is not None


class Forgetful(Tasks):
    """It forgets the session while a task runs."""

    async def result(self, heard: Heard) -> Response:
        del heard
        return Response(status_code=404)


async def test_a_task_that_began_is_never_begun_again() -> None:
    server = Forgetful()
    async with talking_to(server.site) as servers:
        with pytest.raises(CallLostError):
            await servers.forward(a_call("echo"))
        await anyio.sleep(0.1)
    assert len(server.site.said("tools/call")) == 1


@pytest.mark.parametrize("name", [None, 5, "t" * 2000])
async def test_a_task_without_a_name_is_no_answer(name: Json) -> None:
    server = Tasks()
    server.name = name
    async with talking_to(server.site) as servers:
        with pytest.raises(UnansweredError, match="without a name"):
            await servers.forward(a_call("echo"))


async def test_a_task_under_the_name_of_another_is_no_answer_and_ends_not_the_first() -> None:
    """Attack: one of the two calls would get the result of the other, and cancel it at its end."""
    server = Endless()
    async with talking_to(server.site) as servers, anyio.create_task_group() as tasks:
        tasks.start_soon(text_of, servers, "echo")
        await until(lambda: bool(server.site.said("tasks/result")))
        with pytest.raises(UnansweredError, match="name of another"):
            await servers.forward(a_call("echo"))
        assert server.site.said("tasks/cancel") == []
        tasks.cancel_scope.cancel()
