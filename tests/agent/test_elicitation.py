"""Asking a person through the agent's own client, over real pipes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import orjson
import pytest

from ironcurtain_proxy.agent.asking import ElicitationReviewer
from ironcurtain_proxy.agent.transport import AgentTransport
from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling, Unreachable
from ironcurtain_proxy.model.values import Json
from tests.agent.connected import Agent, an_agent
from tests.fakes import FakeClock
from tests.questions import a_question
from tests.tables import named

pytestmark = pytest.mark.anyio

FORMS: dict[str, Json] = {"elicitation": {}}


@dataclass
class Client:
    """An agent's client whose person is played by the test."""

    agent: Agent
    clock: FakeClock

    def send(self, **message: object) -> None:
        self.agent.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")

    async def receive(self) -> dict[str, object]:
        return dict(await self.agent.receive())

    async def answer(self, seconds: float = 1, /, **content: object) -> dict[str, object]:
        """Take a question, think for a while, and send `content`. Gives the question."""
        asked = await self.receive()
        self.clock.seconds += seconds
        self.send(id=asked["id"], **content)
        return asked

    @property
    def transport(self) -> AgentTransport:
        return self.agent.server.transport

    @property
    def reviewer(self) -> ElicitationReviewer:
        return ElicitationReviewer(self.agent.server.rounds, self.clock)


@asynccontextmanager
async def a_client(capabilities: Json = FORMS) -> AsyncIterator[Client]:
    async with an_agent() as agent:
        await agent.initialize(capabilities=capabilities)
        yield Client(agent, FakeClock())


async def ruling_on(
    escalation: Escalation, answer: Mapping[str, object], seconds: float = 1
) -> Ruling:
    async with a_client() as client:
        rulings: list[Ruling] = []

        async def ask() -> None:
            rulings.append(await client.reviewer.ask(escalation))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await client.answer(seconds, **answer)
    return rulings[0]


async def test_a_person_is_shown_a_form_with_everything_that_is_asked() -> None:
    async with a_client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.reviewer.ask, a_question({"path": "/etc/\u202ehosts"}))
        asked = await client.answer(result={"action": "cancel"})
    assert asked["method"] == "elicitation/create"
    params = asked["params"]
    assert isinstance(params, dict)
    assert params["message"].splitlines() == [
        "May the agent use files/read_file?",
        "Why you are asked: it lies outside the workspace (rule outside)",
        "Working directory: /srv/repo",
        "Arguments, written by the agent:",
        '  path = "/etc/\\u202ehosts"',
        '"Remember" means: Allow files/read_file read-path within /etc',
    ]
    schema = params["requestedSchema"]
    assert schema["properties"]["decision"]["enum"] == ["approve", "approve and remember", "deny"]
    assert schema["required"] == ["decision"]
    assert "default" not in schema["properties"]["decision"]


async def test_each_kind_that_may_be_remembered_is_a_decision() -> None:
    question = a_question(kinds=2)
    async with a_client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.reviewer.ask, question)
        asked = await client.answer(result={"action": "cancel"})
    params = asked["params"]
    assert isinstance(params, dict)
    decisions = params["requestedSchema"]["properties"]["decision"]["enum"]
    assert decisions == ["approve", "approve and remember", "approve and remember 2", "deny"]
    assert '"Remember 2" means: Allow files/read_file read-path within /srv' in params["message"]
    second = await ruling_on(question, accept(decision="approve and remember 2"))
    assert second == Approved(by=HUMAN, remember=1)
    third = await ruling_on(question, accept(decision="approve and remember 3"))
    assert isinstance(third, Declined)


def accept(**content: object) -> dict[str, object]:
    return {"result": {"action": "accept", "content": content}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(accept(decision="approve"), Approved(by=HUMAN), id="approved"),
        pytest.param(
            accept(decision="approve and remember", note=" ok\u202e\n"),
            Approved(by=HUMAN, remember=0, note="ok\\u202e"),
            id="remembered, with a word",
        ),
        pytest.param(accept(decision="approve", note=None), Approved(by=HUMAN), id="an empty note"),
        pytest.param(
            accept(decision="deny", note="use /tmp"),
            Declined(by=HUMAN, kind="denied", note="use /tmp"),
            id="denied, with a word",
        ),
        pytest.param(
            {"result": {"action": "decline"}}, Declined(by=HUMAN, kind="denied"), id="declined"
        ),
        pytest.param({"result": {"action": "cancel"}}, Unreachable(), id="closed"),
        pytest.param({"error": {"code": -32601, "message": "no"}}, Unreachable(), id="an error"),
        pytest.param({"result": "approve"}, Unreachable(), id="no object"),
        pytest.param(
            {"result": accept()["result"], "error": {"code": 1}}, Unreachable(), id="both"
        ),
    ],
)
async def test_an_answer_is_read_strictly(answer: dict[str, object], expected: Ruling) -> None:
    assert await ruling_on(a_question(), answer) == expected


@pytest.mark.parametrize(
    "answer",
    named(
        "agent/elicitation.what_is_no_clear_approval_is_a_refusal",
        tuple[dict[str, dict[str, Json]]],
    ),
)
async def test_what_is_no_clear_approval_is_a_refusal(answer: dict[str, object]) -> None:
    ruling = await ruling_on(a_question(), answer)
    assert isinstance(ruling, Declined)
    assert ruling.kind == "invalid"


async def test_remembering_is_not_offered_and_not_taken_where_it_cannot_be() -> None:
    async with a_client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.reviewer.ask, a_question(grantable=False))
        asked = await client.answer(result={"action": "cancel"})
    assert b"remember" not in orjson.dumps(asked)
    ruling = await ruling_on(a_question(grantable=False), accept(decision="approve and remember"))
    assert isinstance(ruling, Declined)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(accept(decision="approve"), id="accept"),
        pytest.param({"result": {"action": "decline"}}, id="decline"),
        pytest.param(accept(decision="nonsense"), id="nonsense"),
    ],
)
async def test_an_answer_faster_than_anyone_can_read_was_given_by_a_program(
    answer: dict[str, object],
) -> None:
    assert await ruling_on(a_question(), answer, 0.299) == Unreachable()


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        pytest.param({"elicitation": {}}, True, id="as it was first declared"),
        pytest.param({"elicitation": {"form": {}, "url": {}}}, True, id="forms and URLs"),
        pytest.param({"elicitation": {"url": {}}}, False, id="URLs only"),
        pytest.param({"roots": {}}, False, id="not declared"),
        pytest.param({"elicitation": True}, False, id="no object"),
        pytest.param([], False, id="no capabilities"),
    ],
)
async def test_only_a_client_that_shows_forms_is_asked(capabilities: Json, expected: bool) -> None:
    async with a_client(capabilities) as client:
        assert client.reviewer.is_reachable() is expected
        if not expected:
            assert await client.reviewer.ask(a_question()) == Unreachable()


async def test_a_client_cannot_declare_itself_later() -> None:
    async with a_client({}) as client:
        await client.agent.initialize(capabilities=FORMS)
        assert not client.reviewer.is_reachable()


async def test_no_answer_until_the_deadline_is_a_refusal_and_the_client_is_told() -> None:
    async with a_client() as client:
        ruling = await client.reviewer.ask(a_question(seconds=0.05))
        assert ruling == Declined(by=TIMEOUT, kind="expired")
        asked, told = await client.receive(), await client.receive()
        assert told["method"] == "notifications/cancelled"
        assert told["params"] == {"requestId": asked["id"], "reason": "the deadline has passed"}
        client.send(id=asked["id"], **accept(decision="approve"))
        assert await client.reviewer.ask(a_question(seconds=0)) == ruling


async def test_a_question_that_is_withdrawn_is_taken_back_from_the_client() -> None:
    async with a_client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.reviewer.ask, a_question())
            asked = await client.receive()
            tasks.cancel_scope.cancel()
        told = await client.receive()
    assert told["method"] == "notifications/cancelled"
    assert told["params"] == {"requestId": asked["id"], "reason": "the question was withdrawn"}


async def test_a_client_that_leaves_gives_no_answer() -> None:
    async with a_client() as client:
        rulings: list[Ruling] = []

        async def ask() -> None:
            rulings.append(await client.reviewer.ask(a_question()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await client.receive()
            client.agent.hang_up()
        assert rulings == [Unreachable()]
        with pytest.raises(AgentError):
            await client.transport.request("x", {}, 1)


async def test_each_of_many_questions_gets_its_own_answer() -> None:
    async with a_client() as client:
        rulings: dict[int, Ruling] = {}

        async def ask(number: int) -> None:
            rulings[number] = await client.reviewer.ask(a_question({"n": number}))

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(ask, number)
            asked = [await client.receive() for _ in range(10)]
            client.clock.seconds += 1
            for message in reversed(asked):
                words = str(message["params"])
                decision = "approve" if "n = 3" in words else "deny"
                client.send(id=message["id"], **accept(decision=decision))
        approved = [number for number, ruling in rulings.items() if isinstance(ruling, Approved)]
    assert approved == [3]


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(1, id="a number"),
        pytest.param("1", id="the number as text"),
        pytest.param("ironcurtain-proxy/2", id="another question"),
        pytest.param("ironcurtain-proxy/01x", id="no number"),
        pytest.param("ironcurtain-proxy/" + "9" * 5000, id="a number without end"),
        pytest.param("ironcurtain-proxy/\u0661", id="other digits"),
        pytest.param(None, id="null"),
    ],
)
async def test_an_answer_with_another_id_is_nobodys(forged: object) -> None:
    async with a_client() as client:
        rulings: list[Ruling] = []

        async def ask() -> None:
            rulings.append(await client.reviewer.ask(a_question()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            asked = await client.receive()
            client.clock.seconds += 1
            client.send(id=forged, **accept(decision="approve"))
            client.send(id=asked["id"], **accept(decision="deny"))
        assert rulings == [Declined(by=HUMAN, kind="denied")]
