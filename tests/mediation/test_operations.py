"""Reads, prompts and subscriptions wait for their server: each end of the wait is recorded."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio
import pytest

from ironcurtain_proxy.facts.live_catalogue import Names
from ironcurtain_proxy.mediation.operations import Operations
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, object_of
from tests.fakes import Harness

pytestmark = pytest.mark.anyio

ALLOWED = Policy(rules=(Rule(name="all", effect="allow", reason="so"),), version="v1")


@dataclass
class Waiting:
    """A server that calls wait for."""

    wait: Callable[[], Awaitable[str]]
    names: Sequence[str] = ("files",)

    async def until_started(self, server: str) -> str:
        return await self.wait()

    async def until_settled(self, server: str) -> None:
        await self.wait()

    async def entries(
        self, server: str, method: str, keys: tuple[str, str]
    ) -> Sequence[Mapping[str, Json]]:
        return ()


def operations(harness: Harness, wait: Callable[[], Awaitable[str]]) -> Operations:
    return Operations(naming=Names(["files"]), lists=Waiting(wait), session=harness.session)


@pytest.mark.requirement("C-36")
async def test_a_read_that_is_withdrawn_before_its_server_has_started_is_recorded() -> None:
    harness, waits = Harness(ALLOWED), anyio.Event()

    async def wait() -> str:
        waits.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(operations(harness, wait).handle, "resources/read", {"uri": "memo://a"})
        await waits.wait()
        tasks.cancel_scope.cancel()
    (record,) = harness.recorder.records
    assert (record.tool, record.rule, record.effect) == ("resources/read", "withdrawn", "deny")
    assert record.arguments == {"uri": "memo://a"}
    assert harness.servers.forwarded == []


async def test_a_wait_that_fails_refuses_the_read_and_is_recorded() -> None:
    harness = Harness(ALLOWED)

    async def wait() -> str:
        raise RuntimeError("no such loop")

    reply = await operations(harness, wait).handle("resources/read", {"uri": "memo://a"})
    assert isinstance(reply, Refused)
    (record,) = harness.recorder.records
    assert (record.rule, record.effect) == ("internal-error", "deny")


async def test_a_server_that_has_started_is_asked_once() -> None:
    harness = Harness(ALLOWED)

    async def wait() -> str:
        return ""

    reply = await operations(harness, wait).handle("resources/read", {"uri": "memo://a"})
    assert isinstance(reply, Answered)
    assert [call.method for call in harness.servers.forwarded] == ["resources/read"]
    assert [record.result is None for record in harness.recorder.records] == [True, False]


@pytest.mark.parametrize("is_denied_meanwhile", [False, True])
async def test_what_waits_for_its_server_counts_as_subscribed_and_is_looked_at_anew(
    is_denied_meanwhile: bool,
) -> None:
    """It was counted once its server had answered, so what waited together was never too much."""
    harness, goes_on, replies = Harness(ALLOWED), anyio.Event(), Counter[type]()

    async def wait() -> str:
        return ""

    async def answered(_: object) -> ToolResult:
        await goes_on.wait()
        return ToolResult(result={})

    harness.servers.act = answered
    asked = operations(harness, wait)

    async def subscribe(number: int) -> None:
        reply = await asked.handle("resources/subscribe", {"uri": f"memo://{number}"})
        replies[type(reply)] += 1

    async with anyio.create_task_group() as tasks:
        for number in range(1003):
            tasks.start_soon(subscribe, number)
        await anyio.wait_all_tasks_blocked()
        if is_denied_meanwhile:
            harness.in_force.policy = Policy(rules=(), version="v2")
            await asked.forget_what_is_denied()
        goes_on.set()
    assert replies == {Answered: 1000, Refused: 3}
    news = [asked.updated("files", {"uri": f"memo://{number}"}) for number in range(1003)]
    assert len([one for one in news if one]) == (0 if is_denied_meanwhile else 1000)


@pytest.mark.parametrize("is_denied_meanwhile", [False, True])
async def test_news_between_a_servers_answer_and_its_record_come_once_it_is_recorded(
    is_denied_meanwhile: bool,
) -> None:
    """A server tells of a resource as soon as it has answered. Nobody subscribes again for that."""
    harness, told = Harness(ALLOWED), list[Mapping[str, Json]]()

    async def wait() -> str:
        return ""

    async def tell(news: Mapping[str, Json]) -> None:
        told.append(news)

    async def answered(call: AuthorizedCall) -> ToolResult:
        if call.arguments["uri"] == "memo://b":
            return ToolResult(result={})
        for uri in ("memo://other", "memo://a", "memo://b"):
            for number in (1, 2):
                assert asked.updated("files", {"uri": uri, "_meta": {"of": number}}) is None
        assert asked.updated("files", {"uri": "memo://a", "large": "x" * 99_999}) is None
        if is_denied_meanwhile:
            harness.in_force.policy = Policy(rules=(), version="v2")
        return ToolResult(result={})

    harness.servers.act = answered
    asked = operations(harness, wait)
    asked.tell = tell
    await asked.handle("resources/subscribe", {"uri": "memo://a"})
    assert told == ([] if is_denied_meanwhile else [{"uri": "memo://a", "_meta": {"of": 2}}])
    await asked.handle("resources/subscribe", {"uri": "memo://b"})
    assert len(told) < 2, "what came before it was asked for is no news of it"


async def test_the_lists_of_all_servers_are_asked_for_at_once() -> None:
    """One after the other, several slow ones take longer than a client waits."""
    harness, asked, both = Harness(ALLOWED), list[str](), anyio.Event()

    class Slow(Waiting):
        async def entries(
            self, server: str, method: str, keys: tuple[str, str]
        ) -> Sequence[Mapping[str, Json]]:
            asked.append(server)
            if len(asked) == 2:
                both.set()
            await both.wait()
            if server == "files":
                await anyio.wait_all_tasks_blocked()
            return [{"uri": f"memo://{server}", "name": server}]

    async def wait() -> str:
        return ""

    names = ["files", "other"]
    lists = Operations(naming=Names(names), lists=Slow(wait, names), session=harness.session)
    found = await lists.listing("resources")
    assert [object_of(entry)["name"] for entry in found] == names
