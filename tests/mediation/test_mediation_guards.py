"""The last guards of a call's way: what is denied reaches no server, whoever says that it may."""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.mediation.escalated import Consent
from ironcurtain_proxy.mediation.session import Opened
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.case import Judgement, Settlement
from ironcurtain_proxy.model.decision import (
    HUMAN,
    KERNEL,
    Allow,
    Decision,
    Deny,
    Effect,
    Escalate,
    Ground,
)
from ironcurtain_proxy.model.escalation import Approved, Unreachable
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Allowed, Answered, AuditRecord, Refused, Withheld
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, Facts, TextValue
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import RealPath
from tests.fakes import DONE, FakeRecorder, FakeServers, Harness, no_roles
from tests.mediation.test_mediator import writes
from tests.mediation.test_plans import harness, open_plan

pytestmark = pytest.mark.anyio

GROUND = Ground("it", "said so")


def policy(effect: Effect) -> Policy:
    return Policy(rules=(Rule(name="it", effect=effect, reason="said so"),), version="v1")


@pytest.mark.requirement("D-28", "X-9")
async def test_a_step_of_an_approved_plan_that_the_policy_denies_is_denied() -> None:
    made = harness(denied="remove")
    made.questions.ruling = Approved(by=HUMAN)
    opened = await open_plan(made, "read")
    assert isinstance(opened, Opened)
    refused = await made.mediator.handle("remove", {"arguments": {}}, run=opened.budget.id)
    assert isinstance(refused, Refused)
    assert refused.by == "policy"
    assert made.servers.forwarded == []
    assert made.recorder.records[-1].effect == "deny"


@pytest.mark.requirement("D-28", "X-9")
async def test_a_step_of_an_approved_plan_that_the_policy_escalates_is_asked_about() -> None:
    made = harness(then="escalate")
    made.questions.ruling = Approved(by=HUMAN)
    opened = await open_plan(made, "edit")
    assert isinstance(opened, Opened)
    before = len(made.questions.asked)
    step = await made.mediator.handle("edit", {"arguments": {}}, run=opened.budget.id)
    assert isinstance(step, Answered)
    assert len(made.questions.asked) == before + 1


@pytest.mark.requirement("D-28", "X-9")
async def test_a_tool_that_is_no_step_of_a_plan_is_not_paid_for_by_it() -> None:
    made = harness()
    made.questions.ruling = Approved(by=HUMAN)
    opened = await open_plan(made, "read")
    assert isinstance(opened, Opened)
    before = len(made.questions.asked)
    await made.mediator.handle("push", {"arguments": {}}, run=opened.budget.id)
    assert len(made.questions.asked) == before + 1


@pytest.mark.parametrize(
    ("decision", "settled"),
    [
        (Deny(GROUND), None),
        (Deny(GROUND), "allow"),
        (Escalate(GROUND), None),
        (Escalate(GROUND), "deny"),
        (Escalate(GROUND), "escalate"),
    ],
)
async def test_what_was_not_allowed_is_never_forwarded(
    decision: Decision, settled: Effect | None
) -> None:
    """Not even by a defect of the steps before."""
    made = Harness(policy("allow"))
    case = made.arrived()
    case.judge(Judgement(decision=decision))
    if settled is not None:
        case.settle(Settlement(effect=settled, reason="so", decided_by=HUMAN, result="approved"))
    with pytest.raises(KernelError):
        await made.mediator._forward(case, no_roles(case.call), Consent())
    assert made.servers.forwarded == []
    assert made.recorder.records == []


@dataclass
class SlowRecorder(FakeRecorder):
    """Writes as a disk does: whoever waits for it may be cancelled meanwhile."""

    async def record(self, record: AuditRecord) -> None:
        await anyio.lowlevel.checkpoint()
        await super().record(record)


@pytest.mark.requirement("C-36")
async def test_a_call_withdrawn_while_a_person_thinks_is_recorded_by_a_slow_disk() -> None:
    made = Harness(policy("escalate"), recorder=SlowRecorder())
    with anyio.CancelScope() as scope:
        made.questions.on_ask = scope.cancel
        made.questions.ruling = Approved(by=HUMAN)
        await made.mediator.handle("read", {})
    assert scope.cancelled_caught
    assert made.servers.forwarded == []
    [record] = made.recorder.records
    assert record.effect == "deny"
    assert record.result is not None


@pytest.mark.requirement("C-36")
async def test_a_call_withdrawn_while_its_server_works_is_recorded_by_a_slow_disk() -> None:
    made = Harness(policy("allow"), recorder=SlowRecorder())
    with anyio.CancelScope() as scope:

        async def work(call: AuthorizedCall) -> ToolResult:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

        made.servers.act = work
        await made.mediator.handle("read", {})
    assert scope.cancelled_caught
    _, outcome = made.recorder.records
    assert outcome.result is not None
    assert outcome.result.status == "error"


@pytest.mark.parametrize(
    ("result", "told"), [(DONE, 1), (ToolResult(result={"isError": True, "content": []}), 0)]
)
async def test_only_a_call_that_succeeded_counts_as_done(result: ToolResult, told: int) -> None:
    """A clone that failed makes no directory a repository."""
    made = Harness(policy("allow"))

    async def answer(call: AuthorizedCall) -> ToolResult:
        return result

    made.servers.act = answer
    await made.mediator.handle("read", {})
    assert len(made.facts.succeeded_calls) == told


@pytest.mark.parametrize("role", ["none", "email-body", "branch-name"])
async def test_a_rule_for_paths_allows_no_call_without_a_path(role: str) -> None:
    rule = Rule(name="it", effect="allow", reason="so", roles=frozenset({"read-path"}))
    made = Harness(Policy(rules=(rule,), version="v1"))

    def opaque(call: Operation) -> Facts:
        facts = no_roles(call)
        fact = ArgumentFact("text", (role,), (TextValue("x"),))  # type: ignore[arg-type]
        request = AccessRequest(
            server="files", tool="read", annotated=True, has_arguments=True, arguments=(fact,)
        )
        return Facts(request=request, arguments=facts.arguments)

    made.facts.answer = opaque
    refused = await made.mediator.handle("read", {"arguments": {"text": "x"}})
    assert isinstance(refused, Refused)
    assert made.servers.forwarded == []


async def test_an_allowed_call_needs_no_settlement_to_be_forwarded() -> None:
    made = Harness(policy("allow"))
    case = made.arrived()
    case.judge(Judgement(decision=Allow(GROUND)))
    reply = await made.mediator._forward(case, no_roles(case.call), Consent())
    assert reply == Answered(result=DONE, allowed=Allowed(GROUND.rule, KERNEL))


async def test_an_approval_of_a_tool_that_changed_meanwhile_is_not_remembered() -> None:
    made = Harness(policy("escalate"))
    made.facts.answer = writes
    made.questions.ruling = Approved(by=HUMAN, remember=0)
    made.questions.on_ask = lambda: setattr(made.tools, "digest", "d2")
    refused = await made.mediator.handle("read", {"arguments": {"path": "/out/a"}})
    assert isinstance(refused, Refused)
    made.tools.digest = "d1"
    made.questions.on_ask, made.questions.ruling = lambda: None, Unreachable()
    refused = await made.mediator.handle("read", {"arguments": {"path": "/out/a"}})
    assert isinstance(refused, Refused)
    assert len(made.questions.asked) == 2


async def test_nobody_is_asked_about_what_the_sandbox_keeps_from_the_server() -> None:
    made = Harness(policy("escalate"), servers=Confined())
    made.questions.ruling = Approved(by=HUMAN)
    refused = await made.mediator.handle("read", {})
    assert isinstance(refused, Refused)
    assert refused.ground == Ground("sandbox", "it lies outside")
    assert (made.questions.asked, made.servers.forwarded) == ([], [])


class Confined(FakeServers):
    """A server whose sandbox lets it reach nothing."""

    def opening(
        self,
        server: str,
        request: AccessRequest,
        hosts: Sequence[str] = (),
        paths: Sequence[RealPath] = (),
        programs: Sequence[str] = (),
    ) -> str:
        return "it lies outside"


async def test_an_answer_that_asks_for_something_is_withheld_and_recorded_as_denied() -> None:
    made = Harness(policy("allow"))

    async def ask(call: AuthorizedCall) -> ToolResult:
        return ToolResult(result={"resultType": "input_required", "content": []})

    made.servers.act = ask
    reply = await made.mediator.handle("read", {})
    assert isinstance(reply, Withheld)
    assert reply.recorded
    assert made.recorder.records[-1].result is not None
    assert made.recorder.records[-1].result.status == "denied"
    assert made.facts.succeeded_calls == []


async def test_a_call_of_a_tool_of_the_proxy_s_own_is_answered_and_recorded() -> None:
    made = Harness(policy("deny"))
    reply = await made.journal.answer(made.announced(), DONE)
    assert reply == Answered(result=DONE, recorded=True)
    assert [record.effect for record in made.recorder.records] == ["allow"]


async def test_a_call_that_nothing_asks_about_is_never_reviewed() -> None:
    """Not even by a defect of the steps before: a reviewer would approve what has no reason."""
    made = Harness(policy("allow"))
    case = made.arrived()
    case.judge(Judgement(decision=Allow(GROUND)))
    with pytest.raises(KernelError):
        await made.mediator._escalate(case, no_roles(case.call))
