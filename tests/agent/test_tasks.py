"""Calls that wait for a reviewer, as tasks for clients that declare the extension."""

from collections.abc import Mapping
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from ironcurtain_proxy.agent import rounds
from ironcurtain_proxy.model.values import Json
from tests.agent.connected import Agent, an_agent

pytestmark = pytest.mark.anyio

TASKS: Final = "io.modelcontextprotocol/tasks"
ABLE: Final[Json] = {"elicitation": {}, "extensions": {TASKS: {}}}


async def asked(
    agent: Agent, method: str, capabilities: Json = ABLE, **params: Json
) -> Mapping[str, Json]:
    answer = await agent.ask_alone(method, params, clientCapabilities=capabilities)
    found = answer.get("result", answer.get("error"))
    assert isinstance(found, dict)
    return found


async def begun(agent: Agent, name: str = "held") -> Json:
    """Make a call that a reviewer is asked about; return the name of its task."""
    said = await asked(agent, "tools/call", name=name, arguments={})
    assert (said["resultType"], said["status"]) == ("task", "working")
    assert "result" not in said
    return said["taskId"]


async def reached(agent: Agent, task: Json, status: str) -> Mapping[str, Json]:
    while True:
        said = await asked(agent, "tasks/get", taskId=task)
        if said["status"] == status:
            return said
        await anyio.lowlevel.checkpoint()


async def test_the_extension_is_offered_to_those_who_ask_without_a_handshake() -> None:
    async with an_agent() as agent:
        capabilities = (await asked(agent, "server/discover"))["capabilities"]
        assert isinstance(capabilities, dict)
        assert capabilities["extensions"] == {"a/b": {}, TASKS: {}}
        hello = (await agent.initialize())["result"]
        assert isinstance(hello, dict)
        assert TASKS not in str(hello)


async def test_a_call_that_waits_for_a_reviewer_is_a_task_until_its_outcome_is_fetched() -> None:
    async with an_agent() as agent:
        task = await begun(agent)
        for _ in range(rounds.MOST_LEGS + 2):
            waiting = await asked(agent, "tasks/get", taskId=task)
            assert waiting["status"] == "working"
            assert "reviewer" in str(waiting["statusMessage"])
        agent.calls.open.set()
        for _ in range(2):
            done = await reached(agent, task, "completed")
            assert done["resultType"] == "complete"
            assert done["result"] == {"content": []}
        assert agent.calls.begun == ["held"]


async def test_a_question_of_a_server_after_the_approval_is_answered_at_the_task() -> None:
    async with an_agent() as agent:
        task = await begun(agent, "approved")
        agent.calls.open.set()
        for message in ("first", "second"):
            said = await reached(agent, task, "input_required")
            requests = said["inputRequests"]
            assert isinstance(requests, dict)
            [(key, question)] = requests.items()
            assert question == {"method": "elicitation/create", "params": {"message": message}}
            given: Json = {key: {"action": "accept"}, "other": {}}
            heard = await asked(agent, "tasks/update", taskId=task, inputResponses=given)
            assert heard["resultType"] == "complete"
        done = await reached(agent, task, "completed")
        assert done["result"] == {"content": [], "said": [{"action": "accept"}] * 2}


@pytest.mark.requirement("T-28")
async def test_a_cancelled_task_withdraws_its_call() -> None:
    async with an_agent() as agent:
        task = await begun(agent)
        for _ in range(2):
            assert (await asked(agent, "tasks/cancel", taskId=task))["resultType"] == "complete"
        await reached(agent, task, "cancelled")
        agent.calls.open.set()
        assert (await asked(agent, "tasks/get", taskId=task))["status"] == "cancelled"


async def test_a_client_that_does_not_declare_tasks_gets_none_and_may_not_ask_for_them() -> None:
    async with an_agent() as agent:
        task = await begun(agent)
        for method in sorted(rounds.TASK_METHODS):
            assert (await asked(agent, method, {}, taskId=task))["code"] == -32021
        for unknown in ("0" * 32, "", None, 7):
            said = await asked(agent, "tasks/get", taskId=unknown)
            assert said["code"] == -32602
        agent.calls.open.set()
        plain = await asked(agent, "tools/call", {}, name="held", arguments={})
        assert plain["resultType"] == "complete"


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
async def test_what_the_extension_has_not_is_not_found(method: str) -> None:
    async with an_agent() as agent:
        assert (await asked(agent, method, taskId="x"))["code"] == -32601


async def test_a_call_that_is_under_way_otherwise_is_no_task() -> None:
    async with an_agent() as agent:
        said = await asked(agent, "tools/call", name="question", arguments={})
        assert said["resultType"] == "input_required"
        task = said["requestState"]
        assert (await asked(agent, "tasks/get", taskId=task))["code"] == -32602


async def test_outcomes_that_nobody_fetches_make_way_for_new_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_MOST", 2)
    async with an_agent() as agent:
        first, second = await begun(agent), await begun(agent)
        full = await asked(agent, "tools/call", name="held", arguments={})
        assert full["code"] == -32603
        agent.calls.open.set()
        await reached(agent, first, "completed")
        await reached(agent, second, "completed")
        said = await asked(agent, "tools/call", name="question", arguments={})
        assert said["resultType"] == "input_required"
        assert (await asked(agent, "tasks/get", taskId=first))["code"] == -32602
        await reached(agent, second, "completed")
