"""What a call that was looked at twice, or asked about twice, comes to."""

from collections.abc import Iterator
from typing import Literal

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import PathCondition
from ironcurtain_proxy.model.decision import HUMAN, KERNEL
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Approved,
    Declined,
    Held,
    Ruling,
    Superseded,
    Unreachable,
)
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, Facts, PathValue
from ironcurtain_proxy.model.values import RealPath
from tests.fakes import Harness, no_roles
from tests.mediation.test_mediator import policy, writes

pytestmark = pytest.mark.anyio


def within(effect: Literal["allow", "escalate"], place: str, role: ArgumentRole) -> Rule:
    condition = PathCondition(roles=frozenset({role}), within=RealPath.from_text(place))
    return Rule(name=f"{effect}-{place}", effect=effect, reason="so", paths=condition)


OUTSIDE = Policy(
    rules=(
        within("allow", "/in", "read-path"),
        within("allow", "/in", "write-path"),
        within("escalate", "/out", "read-path"),
        within("escalate", "/out", "write-path"),
    ),
    version="v1",
)


def copies(call: Operation) -> Facts:
    def fact(name: str, role: ArgumentRole) -> ArgumentFact:
        place = str(call.arguments[name])
        return ArgumentFact(name, (role,), (PathValue(place, RealPath.from_text(place)),))

    request = AccessRequest(
        server="files",
        tool="read",
        annotated=True,
        has_arguments=True,
        arguments=(fact("source", "read-path"), fact("target", "write-path")),
    )
    return Facts(request=request, arguments=call.arguments)


async def copy(harness: Harness, source: str, target: str) -> None:
    await harness.mediator.handle("read", {"arguments": {"source": source, "target": target}})


async def test_a_push_that_leads_where_it_led_goes_out() -> None:
    harness = Harness(policy("allow"))
    harness.facts.answer = lambda call: replace(no_roles(call), pushes=True)
    assert isinstance(await harness.mediator.handle("read", {}), Answered)
    harness.facts.waited = True
    assert isinstance(await harness.mediator.handle("read", {}), Answered)
    assert len(harness.servers.forwarded) == 2


async def test_a_remembered_approval_is_about_what_was_asked_and_about_nothing_else() -> None:
    harness = Harness(OUTSIDE)
    harness.facts.answer = copies
    harness.questions.ruling = Approved(by=HUMAN, remember=0)
    await copy(harness, "/in/a", "/out/a")
    assert len(harness.questions.asked) == 1
    harness.questions.ruling = Declined(by=HUMAN, kind="denied")
    # What the policy allows by itself nobody asked about.
    await copy(harness, "/in/deep/b", "/out/b")
    assert len(harness.servers.forwarded) == 2
    assert len(harness.questions.asked) == 1
    await copy(harness, "/out/a", "/out/c")
    assert len(harness.servers.forwarded) == 2
    assert len(harness.questions.asked) == 2


@pytest.mark.parametrize("then", [Approved(by=HUMAN), Declined(by=HUMAN, kind="denied")])
async def test_a_call_whose_approval_another_used_asks_for_itself(then: Ruling) -> None:
    harness = Harness(policy("escalate"))
    answers: Iterator[Ruling | Held | AlreadyUsed | Superseded] = iter(
        [AlreadyUsed(), AlreadyUsed(), then]
    )
    harness.questions.on_ask = lambda: setattr(harness.questions, "ruling", next(answers))
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Answered if isinstance(then, Approved) else Refused)
    assert len(harness.questions.asked) == 3
    assert len(harness.servers.forwarded) == isinstance(then, Approved)
    assert harness.recorder.records[-1].decided_by == HUMAN


async def test_what_an_approval_no_longer_covers_is_recorded_as_nobodys_approval() -> None:
    harness = Harness(policy("escalate"))
    harness.facts.answer = writes
    harness.questions.ruling = Approved(by=HUMAN, remember=0)
    await harness.mediator.handle("read", {"arguments": {"path": "/out/a"}})
    (remembered,) = harness.grants.list()
    harness.questions.ruling = Unreachable()
    harness.facts.meanwhile = lambda: harness.grants.revoke(remembered.grant.id)
    reply = await harness.mediator.handle("read", {"arguments": {"path": "/out/b"}})
    assert isinstance(reply, Refused)
    last = harness.recorder.records[-1]
    assert (last.decided_by, last.effect, last.escalation_result) == (KERNEL, "escalate", "denied")
    assert len(harness.servers.forwarded) == 1


async def test_a_name_of_any_length_is_not_sent_back_as_a_whole() -> None:
    reply = await Harness(policy("allow")).mediator.handle("x" * 100_000, {})
    assert isinstance(reply, Refused)
    assert reply.ground.reason == f"Unknown tool: {'x' * 200}"


async def test_the_record_says_how_long_a_reviewer_took() -> None:
    harness = Harness(policy("escalate"))
    harness.questions.on_ask = lambda: setattr(
        harness.clock, "seconds", harness.clock.seconds + 1.5
    )
    harness.questions.ruling = Approved(by=HUMAN)
    await harness.mediator.handle("read", {})
    intent, outcome = harness.recorder.records
    assert dict(intent.context)["waitedMs"] == dict(outcome.context)["waitedMs"] == 1500
