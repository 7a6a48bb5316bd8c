"""What was approved pays for a call when it goes, and for nothing that does not go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from ironcurtain_proxy.model.decision import HUMAN, Grants
from ironcurtain_proxy.model.escalation import Approved, Declined, EscalationId, Held, Unreachable
from ironcurtain_proxy.model.reply import Answered, Refused, Reply
from ironcurtain_proxy.model.request import Facts
from tests.mediation.supervised_session import YES, call, grant, moved, plan, supervised, uses

pytestmark = pytest.mark.anyio

HELD = Held(EscalationId("00000000-0000-4000-8000-00000000000a"))


# --- a plan's budget -----------------------------------------------------------------------------


@pytest.mark.requirement("D-25", "D-26")
async def test_a_budget_does_not_pay_for_what_a_grant_covers() -> None:
    made = supervised()
    opened = await plan(made, "edit")
    identifier = grant(made, "fs.write")
    assert isinstance(await call(made), Answered)
    assert opened.budget.calls[("files", "edit")] == 1
    assert uses(made, identifier) == 1


@pytest.mark.requirement("D-25")
async def test_a_budget_pays_for_what_the_grants_leave_open() -> None:
    made = supervised()
    opened = await plan(made, "mirror")
    grant(made, "fs.write")
    made.questions.ruling = Unreachable()
    assert isinstance(await call(made, "mirror"), Answered)
    assert isinstance(await call(made, "mirror"), Refused)
    assert made.recorder.records[0].decided_by == Grants(("g-fs.write", opened.budget.id))


@pytest.mark.requirement("D-25", "D-27")
async def test_a_held_call_is_paid_for_once_however_often_it_is_made() -> None:
    made = supervised("escalate")
    opened = await plan(made, "edit")
    made.questions.ruling = HELD
    for _ in range(3):
        assert isinstance(await call(made), Refused)
    assert [r.origin for r in made.questions.asked[-1].reasons] == ["policy"]
    assert opened.budget.calls[("files", "edit")] == 1
    made.questions.ruling = YES
    assert isinstance(await call(made), Answered)
    assert opened.budget.calls[("files", "edit")] == 0


@pytest.mark.parametrize("ruling", [Declined(by=HUMAN, kind="denied"), Unreachable()])
async def test_a_call_that_is_refused_uses_nothing_up(ruling: Declined | Unreachable) -> None:
    made = supervised("escalate")
    opened = await plan(made, "mirror")
    identifier = grant(made, "fs.write")
    made.questions.ruling = ruling
    assert isinstance(await call(made, "mirror"), Refused)
    assert opened.budget.calls[("files", "mirror")] == 1
    assert uses(made, identifier) == 0


async def test_a_call_that_changed_while_it_waited_for_its_repository_uses_nothing_up() -> None:
    made = supervised()
    opened = await plan(made, "edit")
    made.facts.waited, made.facts.meanwhile = True, moved(made)
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.ground.rule == "changed-meanwhile"
    assert opened.budget.calls[("files", "edit")] == 1


@pytest.mark.parametrize("ruling", [YES, Unreachable()])
async def test_two_calls_that_wait_together_are_not_both_paid_for_by_a_budget_for_one(
    ruling: Approved | Unreachable,
) -> None:
    made = supervised()
    await plan(made, "edit")
    made.questions.ruling = ruling
    both = anyio.Event()
    waiting: list[object] = []

    @asynccontextmanager
    async def together(facts: Facts) -> AsyncIterator[bool]:
        waiting.append(facts)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        yield False

    made.facts.undisturbed = together  # type: ignore[method-assign]
    replies: list[Reply] = []

    async def one(number: int) -> None:
        replies.append(await call(made, number=number))

    async with anyio.create_task_group() as tasks:
        for number in range(2):
            tasks.start_soon(one, number)
    # The one that came too late is asked about, once.
    (asked,) = made.questions.asked
    assert [r.origin for r in asked.reasons] == ["capability"]
    refused = [reply.by for reply in replies if isinstance(reply, Refused)]
    assert refused == ([] if ruling == YES else ["no-reviewer"])
    assert len(made.servers.forwarded) == 2 - len(refused)


# --- what was approved before, beside a question -------------------------------------------------


@pytest.mark.requirement("D-31", "X-12")
async def test_a_grant_that_is_revoked_while_a_reviewer_thinks_does_not_count() -> None:
    made = supervised("escalate")
    identifier = grant(made, "fs.write")
    made.questions.ruling, made.questions.on_ask = YES, lambda: made.grants.revoke(identifier)
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "lapsed"
    assert made.servers.forwarded == []
    result = made.recorder.records[-1].result
    assert result is not None
    assert result.status == "denied"
    # The next call is asked about in full.
    assert isinstance(await call(made), Answered)
    assert [r.origin for r in made.questions.asked[-1].reasons] == ["policy", "capability"]


@pytest.mark.requirement("E-36", "X-12")
async def test_a_grant_that_expires_while_a_reviewer_thinks_does_not_count() -> None:
    made = supervised("escalate")
    grant(made, "fs.write", minutes=1)
    made.questions.ruling = YES
    made.questions.on_ask = lambda: setattr(made.clock, "seconds", 61.0)
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "lapsed"
    assert made.servers.forwarded == []


async def test_a_grant_that_still_holds_counts_beside_a_question_and_is_used_once() -> None:
    made = supervised("escalate")
    identifier = grant(made, "fs.write")
    made.questions.ruling = YES
    assert isinstance(await call(made), Answered)
    assert uses(made, identifier) == 1
    # The record names both.
    assert made.recorder.records[0].decided_by == HUMAN
    assert ("grants", identifier) in made.recorder.records[0].context


@pytest.mark.requirement("X-5")
async def test_the_record_of_a_call_that_a_reviewer_and_a_plan_settled_together_names_both() -> (
    None
):
    made = supervised("escalate")
    opened = await plan(made, "edit")
    assert isinstance(await call(made), Answered)
    assert ("grants", opened.budget.id) in made.recorder.records[0].context
    assert isinstance(await call(made, number=1), Answered)
    assert "grants" not in dict(made.recorder.records[2].context)


async def test_a_run_that_is_taken_back_while_a_reviewer_thinks_pays_for_nothing() -> None:
    made = supervised("escalate")
    await plan(made, "edit")
    made.questions.on_ask = made.budgets.clear
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "lapsed"


async def test_a_grant_that_is_revoked_while_a_call_waits_for_its_repository_does_not_count() -> (
    None
):
    made = supervised()
    identifier = grant(made, "fs.write")
    made.facts.meanwhile = lambda: made.grants.revoke(identifier)
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "no-reviewer"
    assert made.servers.forwarded == []
    assert len(made.questions.asked) == len(made.recorder.records) == 1


async def test_grants_that_end_again_and_again_do_not_keep_a_call_for_ever() -> None:
    made = supervised()
    identifier = grant(made, "fs.write")
    turns: list[bool] = []

    @asynccontextmanager
    async def fickle(facts: Facts) -> AsyncIterator[bool]:
        turns.append(made.grants.revoke(identifier))
        yield False
        grant(made, "fs.write")

    made.facts.undisturbed = fickle  # type: ignore[method-assign]
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "lapsed"
    assert turns == [True, True]
    assert made.servers.forwarded == []


@pytest.mark.requirement("X-8")
async def test_a_tool_that_is_redefined_while_its_approved_call_waits_for_its_turn_is_refused() -> (
    None
):
    made = supervised("escalate")
    made.questions.ruling = YES
    made.facts.meanwhile = lambda: setattr(made.tools, "digest", "d2")
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.ground.rule == "changed-meanwhile"
    assert made.servers.forwarded == []


@pytest.mark.requirement("D-29")
async def test_a_question_names_only_the_capabilities_that_are_missing() -> None:
    made = supervised()
    grant(made, "fs.write")
    made.questions.ruling = YES
    assert isinstance(await call(made, "mirror"), Answered)
    (question,) = made.questions.asked
    (reason,) = question.reasons
    assert reason.capabilities == ("net.egress",)
    assert "net.egress" in question.ground.reason
    assert "fs.write" not in question.ground.reason
    assert question.ground.rule == "capability:net.egress"
    # The record says all that the call needs.
    assert made.recorder.records[0].rule == "capability:fs.write,net.egress"
    assert len(made.grants) == 2
