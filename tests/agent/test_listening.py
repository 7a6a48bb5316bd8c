"""Requests of the newer era that listen: what they are told, and when they end."""

from functools import partial
from typing import Final

import pytest

from ironcurtain_proxy.jsonrpc.codec import value_at
from ironcurtain_proxy.model.values import Json, object_of
from tests.agent.connected import ENVELOPE, an_agent
from tests.agent.test_era import KEY, error_of, result_of
from tests.program import until

pytestmark = pytest.mark.anyio

CHANGED: Final = "notifications/tools/list_changed"


@pytest.mark.requirement("T-25")
async def test_a_client_is_told_of_what_it_listens_to_and_of_nothing_else() -> None:
    async with an_agent() as agent:
        wanted: Json = {
            "toolsListChanged": True,
            "promptsListChanged": False,
            "resourceSubscriptions": ["memo://a", "memo://a", 5],
        }
        params: Json = {"_meta": ENVELOPE, "notifications": wanted}
        agent.send(id="l", method="subscriptions/listen", params=params)
        first = await agent.receive()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        told = first["params"]
        assert isinstance(told, dict)
        assert told["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["memo://a"],
        }
        await agent.server.notice("notifications/prompts/list_changed", None)
        await agent.server.notice("notifications/resources/updated", {"uri": "memo://b"})
        await agent.server.notice("notifications/resources/updated", {"uri": "memo://a"})
        await agent.server.tools_changed()
        news = [await agent.receive(), await agent.receive()]
        assert [one["method"] for one in news] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        for one in (first, *news):
            params = one["params"]
            assert isinstance(params, dict)
            assert params["_meta"] == {f"{KEY}subscriptionId": "l"}
        agent.send(method="notifications/cancelled", params={"requestId": "l"})
        await until(lambda: "resources/unsubscribe" in agent.calls.begun)
        assert agent.calls.begun == ["resources/subscribe", "resources/unsubscribe"]


async def test_a_client_that_reads_new_tools_in_its_list_is_not_told_that_they_are_new() -> None:
    """It would ask for the same list again; who listens has perhaps not asked, and is told."""
    async with an_agent() as agent:
        await agent.initialize()
        listen: Json = {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True}}
        agent.send(id="l", method="subscriptions/listen", params=listen)
        await agent.receive()
        agent.calls.found = partial(agent.server.tools_changed, is_told=False)
        await agent.ask("tools/list")
        told = [one for one in agent.arrived if one.get("method") == CHANGED]
        assert ["_meta" in object_of(one.get("params")) for one in told] == [True]
        agent.calls.found = agent.server.tools_changed
        await agent.ask("tools/list")
        await agent.server.tools_changed(is_told=False)
        await agent.ask("ping")
        told = [one for one in agent.arrived if one.get("method") == CHANGED]
        assert ["_meta" in object_of(one.get("params")) for one in told[1:]] == [False, True] * 2


async def test_news_that_come_before_it_is_told_what_it_listens_to_come_afterwards() -> None:
    """A server tells of a resource as soon as it has answered, while the next one is decided."""
    async with an_agent() as agent:
        wanted: Json = {
            "toolsListChanged": True,
            "resourceSubscriptions": ["memo://a", "memo://slow"],
        }
        params: Json = {"_meta": ENVELOPE, "notifications": wanted}
        agent.send(id="l", method="subscriptions/listen", params=params)
        await until(lambda: agent.calls.begun.count("resources/subscribe") == 2)
        for number in range(3):
            news: dict[str, Json] = {"uri": "memo://a", "number": number}
            await agent.server.notice("notifications/resources/updated", news)
        large: dict[str, Json] = {"uri": "memo://slow", "large": "x" * 99_999}
        await agent.server.notice("notifications/resources/updated", large)
        await agent.server.notice("notifications/resources/updated", {"uri": "memo://b"})
        await agent.server.notice("notifications/prompts/list_changed", None)
        await agent.server.tools_changed()
        agent.calls.open.set()
        told = [await agent.receive() for _ in range(4)]
        assert [one["method"] for one in told] == [
            "notifications/subscriptions/acknowledged",
            *["notifications/resources/updated"] * 2,
            "notifications/tools/list_changed",
        ]
        assert "large" not in str(told[2])
        assert value_at(told[1], "params", "number") == 2
        assert value_at(told[1], "params", "_meta") == {f"{KEY}subscriptionId": "l"}
        assert "result" in await agent.ask_alone("tools/list"), "nothing else came"


async def test_a_resource_that_is_given_back_now_is_subscribed_to_again_after_that() -> None:
    """Over HTTP two requests overtake each other: the second listener would hear nothing."""
    async with an_agent() as agent:

        def listen(number: int) -> None:
            wanted: Json = {"resourceSubscriptions": ["memo://kept"]}
            params: Json = {"_meta": ENVELOPE, "notifications": wanted}
            agent.send(id=number, method="subscriptions/listen", params=params)

        listen(1)
        await agent.receive()
        agent.send(method="notifications/cancelled", params={"requestId": 1})
        await until(lambda: agent.calls.begun[-1] == "resources/unsubscribe")
        listen(2)
        assert "result" in await agent.ask_alone("tools/list"), "it has been taken by now"
        assert agent.calls.begun == ["resources/subscribe", "resources/unsubscribe"]
        agent.calls.open.set()
        assert (await agent.receive())["method"] == "notifications/subscriptions/acknowledged"
        assert agent.calls.begun[-1] == "resources/subscribe"


async def test_requests_that_begin_to_listen_count_and_keep_what_they_are_about_to_take() -> None:
    async with an_agent() as agent:

        def listen(number: int, *uris: str) -> None:
            wanted: Json = {"resourceSubscriptions": [*uris]}
            params: Json = {"_meta": ENVELOPE, "notifications": wanted}
            agent.send(id=number, method="subscriptions/listen", params=params)

        listen(0, "memo://a")
        await agent.receive()
        for number in range(1, 65):
            listen(number, "memo://slow", "memo://a")
        assert error_of(await agent.answer(64))["code"] == -32603
        agent.send(method="notifications/cancelled", params={"requestId": 0})
        agent.send(id=65, method="ping")
        await agent.answer(65)
        # The policy changes: none of them listens on under the one before.
        agent.server.subscriptions.end()
        agent.calls.open.set()
        for number in range(1, 64):
            assert "resultType" in result_of(await agent.answer(number))
        assert agent.calls.begun.count("resources/unsubscribe") == 2


async def test_a_listening_request_ends_with_a_result_when_the_connection_does() -> None:
    async with an_agent() as agent:
        params: Json = {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True}}
        agent.send(id=1, method="subscriptions/listen", params=params)
        await agent.receive()
        agent.hang_up()
        found = result_of(await agent.answer(1))
        assert found["resultType"] == "complete"
        await agent.is_served.wait()


async def test_listening_to_nothing_that_is_known_is_refused() -> None:
    async with an_agent() as agent:
        assert error_of(await agent.ask_alone("subscriptions/listen"))["code"] == -32602
