"""A policy that changes while calls are judged, wait or take their turn."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from ironcurtain_proxy.model.decision import HUMAN, KERNEL, Effect
from ironcurtain_proxy.model.escalation import Approved, EscalationId, Superseded
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused
from ironcurtain_proxy.model.request import Gathered
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from tests.fakes import DONE, FakeFacts, Harness, no_roles

pytestmark = pytest.mark.anyio


def policy(effect: Effect, version: str) -> Policy:
    return Policy(rules=(Rule(name=f"{effect}-it", effect=effect, reason="so"),), version=version)


def once(change: Callable[[], None]) -> Callable[[], None]:
    left = [change]
    return lambda: left.pop()() if left else None


def takes(harness: Harness, effect: Effect, version: str = "new") -> Callable[[], None]:
    def change() -> None:
        harness.in_force.policy = policy(effect, version)

    return once(change)


@pytest.mark.parametrize(("after", "reply"), [("allow", Answered), ("deny", Refused)])
async def test_facts_gathered_under_another_policy_are_gathered_again(
    after: Effect, reply: type
) -> None:
    harness = Harness(policy("escalate", "old"))
    change, gathered = takes(harness, after), []

    def answer(call: object) -> Gathered:
        gathered.append(call)
        change()
        return no_roles(call)  # type: ignore[arg-type]

    harness.facts.answer = answer
    assert isinstance(await harness.mediator.handle("read", {}), reply)
    assert len(gathered) == 2
    assert {record.policy_version for record in harness.recorder.records} == {"new"}


@pytest.mark.parametrize(("after", "reply"), [("allow", Answered), ("deny", Refused)])
async def test_an_open_question_is_settled_by_the_policy_that_takes_effect(
    after: Effect, reply: type
) -> None:
    harness = Harness(policy("escalate", "old"))
    harness.questions.ruling = Superseded()
    harness.questions.on_ask = takes(harness, after)
    assert isinstance(await harness.mediator.handle("read", {}), reply)
    assert len(harness.questions.asked) == 1
    last = harness.recorder.records[-1]
    assert (last.policy_version, last.rule, last.decided_by) == ("new", f"{after}-it", KERNEL)


async def test_a_call_during_which_the_policy_changes_is_made_once() -> None:
    harness = Harness(policy("allow", "old"))
    change = takes(harness, "deny")

    async def act(_call: object) -> ToolResult:
        change()
        return DONE

    harness.servers.act = act
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Answered)
    assert len(harness.servers.forwarded) == 1
    assert {record.policy_version for record in harness.recorder.records} == {"old"}


@dataclass
class Told:
    unused: list[EscalationId] = field(default_factory=list)

    async def ended(
        self, question: EscalationId, *, succeeded: bool | None
    ) -> tuple[tuple[str, Json], ...]:
        if succeeded is None:
            self.unused.append(question)
        return ()


async def test_an_approval_of_a_question_of_the_old_policy_is_not_used() -> None:
    told = Told()
    harness = Harness(policy("escalate", "old"), aftermath=told)
    harness.questions.ruling = Approved(by=HUMAN)
    harness.questions.on_ask = takes(harness, "escalate")
    assert isinstance(await harness.mediator.handle("read", {}), Answered)
    assert [one.policy_version for one in harness.questions.asked] == ["old", "new"]
    assert told.unused == [harness.questions.asked[0].id]


async def test_a_call_that_waited_for_its_turn_is_judged_again() -> None:
    harness = Harness(policy("allow", "old"))
    harness.facts.meanwhile = takes(harness, "deny")
    assert isinstance(await harness.mediator.handle("read", {}), Refused)
    assert harness.servers.forwarded == []


async def test_a_policy_that_never_rests_refuses_in_the_end() -> None:
    harness = Harness(policy("allow", "0"))
    versions = iter(range(1, 1000))

    def answer(call: object) -> Gathered:
        harness.in_force.policy = policy("allow", str(next(versions)))
        return no_roles(call)  # type: ignore[arg-type]

    harness.facts.answer = answer
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert harness.recorder.records[-1].rule == reply.ground.rule
    assert next(versions) < 50


async def test_a_candidate_is_recorded_where_it_differs_and_decides_nothing() -> None:
    harness = Harness(policy("allow", "v"))
    harness.in_force.candidate = policy("deny", "c")
    assert isinstance(await harness.mediator.handle("read", {}), Answered)
    told = dict(harness.recorder.records[-1].context)["shadow"]
    assert told == {"policy": "c", "decision": "deny", "rule": "deny-it"}
    harness.in_force.candidate = policy("allow", "c")
    await harness.mediator.handle("read", {"arguments": {"n": 2}})
    assert "shadow" not in dict(harness.recorder.records[-1].context)


class SlowFacts(FakeFacts):
    async def gather(self, call: object) -> Gathered:
        await anyio.lowlevel.checkpoint()
        return no_roles(call)  # type: ignore[arg-type]


async def test_under_load_each_call_is_decided_by_exactly_one_policy() -> None:
    """Smaller than `scripts/bench_reload.py`, which makes 10,000 calls through a process."""
    calls, changes = 2000, 100
    harness = Harness(policy("allow", "0"), facts=SlowFacts())
    replies: Counter[str] = Counter()

    async def client(number: int) -> None:
        for turn in range(calls // 20):
            params: dict[str, Json] = {"arguments": {"n": number, "turn": turn}}
            reply = await harness.mediator.handle("read", params)
            replies[type(reply).__name__] += 1

    async def change() -> None:
        for number in range(1, changes + 1):
            harness.in_force.policy = policy(("allow", "deny")[number % 2], str(number))
            for _ in range(3):
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(client, number)
        tasks.start_soon(change)
    assert replies.total() == calls
    last = {record.request_id: record for record in harness.recorder.records}
    assert len(last) == calls
    for record in last.values():
        wanted = ("allow-it", "deny-it")[int(record.policy_version) % 2]
        assert record.rule == wanted
    assert len({record.policy_version for record in last.values()}) > 10
