"""Plans, with the world in memory: looked at without effects, asked about once."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.approval.capabilities import AUTONOMOUS, SUPERVISED, Profile
from ironcurtain_proxy.approval.overlay import InterceptorConfig, OverlayRules
from ironcurtain_proxy.mediation.judge import Overlay
from ironcurtain_proxy.mediation.session import MAX_CALLS, Opened, PlannedCall, read_calls
from ironcurtain_proxy.model.annotation import ToolDeclaration
from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT, Grants
from ironcurtain_proxy.model.escalation import Approved, Declined, EscalationId, Held, Unreachable
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused, RefusedBy
from ironcurtain_proxy.model.values import Json
from tests.fakes import FakeTools, Harness, no_roles

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("D-23")]

TOOLS = {name: ("files", name) for name in ("read", "edit", "remove", "push")}
NEEDS = {"read": "fs.read", "edit": "fs.write", "remove": "fs.delete", "push": "net.egress"}


def harness(profile: Profile = SUPERVISED, *, then: str = "allow", denied: str = "") -> Harness:
    rules = (
        Rule(name="never", effect="deny", reason="not that", tools=frozenset({denied})),
        Rule(name="all", effect="escalate" if then == "escalate" else "allow", reason="so"),
    )
    overlay = Overlay(
        rules=OverlayRules(
            interceptor=InterceptorConfig(approval_policy="none"),
            profile=profile,
            isolation="isolated",
        ),
        declarations={
            tool: ToolDeclaration(tool_id=tool, capabilities=(needs,))
            for tool, needs in NEEDS.items()
        },
    )
    policy = Policy(rules=rules, version="v1")
    return Harness(policy, tools=FakeTools(known=TOOLS), overlay=overlay)


def calls(*names: str) -> list[PlannedCall]:
    return [PlannedCall(name, {"n": number}) for number, name in enumerate(names)]


async def open_plan(made: Harness, *names: str) -> Opened | Refused:
    case = made.announced()
    return await made.planner.open(case, calls(*names))


@pytest.mark.requirement("D-24", "D-25")
async def test_a_plan_is_one_question_over_the_union_of_what_its_calls_need() -> None:
    made = harness()
    made.questions.ruling = Approved(by=HUMAN)
    opened = await open_plan(made, "read", "edit", "push", "edit")
    assert isinstance(opened, Opened)
    (question,) = made.questions.asked
    assert question.reasons[0].capabilities == ("fs.write", "net.egress")
    assert opened.budget.capabilities == {"fs.write", "net.egress"}
    assert opened.budget.calls[("files", "edit")] == 2
    assert made.servers.forwarded == []
    assert made.recorder.records == []


async def test_a_plan_that_needs_no_approval_asks_nobody() -> None:
    made = harness()
    assert isinstance(await open_plan(made, "read", "read"), Opened)
    assert made.questions.asked == []


async def test_a_plan_for_what_was_approved_before_asks_nobody() -> None:
    made = harness()
    made.questions.ruling = Approved(by=HUMAN)
    await made.mediator.handle("edit", {"arguments": {}})
    assert isinstance(await open_plan(made, "edit"), Opened)
    assert len(made.questions.asked) == 1


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (harness(denied="edit"), "step 2, edit: not that"),
        (harness(AUTONOMOUS), "step 3, push: The profile autonomous forbids"),
        (harness(denied="unrelated"), "step 4, missing: Unknown tool: missing"),
    ],
    ids=["by the policy", "by the profile", "as unknown"],
)
@pytest.mark.requirement("X-1")
async def test_one_step_that_is_denied_refuses_the_plan_and_nobody_is_asked(
    made: Harness, words: str
) -> None:
    refused = await open_plan(made, "read", "edit", "push", "missing")
    assert isinstance(refused, Refused)
    assert refused.by == "policy"
    assert refused.ground.reason.startswith(words)
    assert made.questions.asked == []
    assert made.recorder.records[-1].effect == "deny"


@pytest.mark.parametrize(
    ("ruling", "by"),
    [
        (Declined(by=HUMAN, kind="denied"), "declined"),
        (Declined(by=TIMEOUT, kind="expired"), "expired"),
        (Unreachable(), "no-reviewer"),
        (Held(EscalationId("7")), "held"),
    ],
    ids=["denied", "expired", "unreachable", "held"],
)
async def test_a_plan_that_is_not_approved_opens_nothing(
    ruling: Declined | Unreachable | Held, by: RefusedBy
) -> None:
    made = harness()
    made.questions.ruling = ruling
    refused = await open_plan(made, "edit")
    assert isinstance(refused, Refused)
    assert refused.by == by
    edit = await made.mediator.handle("edit", {"arguments": {"n": 0}})
    assert isinstance(edit, Refused)


@pytest.mark.requirement("X-11")
async def test_a_plan_whose_step_changed_while_it_was_asked_about_is_refused() -> None:
    made = harness()
    made.questions.ruling = Approved(by=HUMAN)

    def change() -> None:
        made.facts.answer = lambda call: replace(no_roles(call), pushes=True)

    made.questions.on_ask = change
    refused = await open_plan(made, "edit")
    assert isinstance(refused, Refused)
    assert refused.ground.rule == "changed-meanwhile"


@pytest.mark.requirement("D-26", "D-27", "D-28")
async def test_calls_of_a_plan_go_unasked_until_the_budget_is_spent_and_still_pass_the_policy() -> (
    None
):
    made = harness()
    made.questions.ruling = Approved(by=HUMAN)
    await open_plan(made, "edit", "edit")
    made.questions.ruling = Unreachable()
    for _ in range(2):
        assert isinstance(await made.mediator.handle("edit", {"arguments": {}}), Answered)
    assert isinstance(await made.mediator.handle("edit", {"arguments": {}}), Refused)
    assert len(made.servers.forwarded) == 2
    assert isinstance(made.recorder.records[0].decided_by, Grants)


async def test_what_the_policy_escalates_is_asked_about_in_spite_of_the_budget() -> None:
    made = harness(then="escalate")
    made.questions.ruling = Approved(by=HUMAN)
    opened = await open_plan(made, "edit")
    assert isinstance(opened, Opened)
    assert opened.asked_later == ("step 1, edit: so",)
    await made.mediator.handle("edit", {"arguments": {}})
    assert [reason.origin for reason in made.questions.asked[-1].reasons] == ["policy"]


async def test_a_plan_within_a_plan_takes_its_part_and_beyond_it_asks() -> None:
    made = harness()
    made.questions.ruling = Approved(by=HUMAN)
    outer = await open_plan(made, "edit", "edit")
    assert isinstance(outer, Opened)
    planner = made.planner
    case = made.announced()
    inner = await planner.open(case, calls("edit"), parent=outer.budget)
    assert isinstance(inner, Opened)
    assert len(made.questions.asked) == 1
    assert outer.budget.calls[("files", "edit")] == 1
    case = made.announced()
    await planner.open(case, calls("edit", "push"), parent=outer.budget)
    assert len(made.questions.asked) == 2


async def test_a_run_that_was_taken_back_meanwhile_pays_for_no_plan_within_it() -> None:
    made = harness()
    made.questions.ruling = Approved(by=HUMAN)
    outer = await open_plan(made, "edit", "edit")
    assert isinstance(outer, Opened)
    made.budgets.clear()
    made.questions.ruling = Unreachable()
    case = made.announced()
    inner = await made.planner.open(case, calls("edit"), parent=outer.budget)
    assert isinstance(inner, Refused)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"calls": []},
        {"calls": {}},
        {"calls": ["read"]},
        {"calls": [{"arguments": {}}]},
        {"calls": [{"name": "read", "arguments": []}]},
        {"calls": [{"name": "read"}] * (MAX_CALLS + 1)},
    ],
)
async def test_what_is_no_list_of_calls_is_told_in_a_sentence(given: Mapping[str, Json]) -> None:
    assert isinstance(read_calls(given), str)


async def test_a_call_without_arguments_may_be_announced() -> None:
    assert read_calls({"calls": [{"name": "read"}]}) == [PlannedCall("read", {})]


async def test_the_result_of_a_planned_call_is_the_server_s() -> None:
    made = harness()
    reply = await made.mediator.handle("read", {})
    assert isinstance(reply, Answered)
    assert reply.result.result == {"content": [{"type": "text", "text": "done"}]}
