"""A call through all steps, with the world in memory."""

from dataclasses import replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.call import ToolCall
from ironcurtain_proxy.model.decision import Effect, Ground
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Failed, Refused
from ironcurtain_proxy.model.request import Facts, Gathered, Unresolvable
from ironcurtain_proxy.model.server import ToolResult
from tests.fakes import DONE, FakeRecorder, FakeTools, Harness, no_roles

pytestmark = pytest.mark.anyio

EMPTY = Policy(rules=())


def policy(effect: Effect) -> Policy:
    return Policy(rules=(Rule(name="it", effect=effect, reason="said so"),), version="v1")


@pytest.mark.requirement("C-4", "C-36")
async def test_an_allowed_call_is_recorded_forwarded_and_recorded_again() -> None:
    harness = Harness(policy("allow"))
    reply = await harness.mediator.handle("read", {"name": "read", "arguments": {"a": 1}})
    assert reply == Answered(result=DONE)
    intent, outcome = harness.recorder.records
    assert intent.result is None
    assert outcome.result is not None
    assert outcome.result.status == "success"
    assert intent.request_id == outcome.request_id
    assert (outcome.effect, outcome.rule, outcome.policy_version) == ("allow", "it", "v1")


async def test_what_was_judged_is_what_is_sent_and_recorded() -> None:
    harness = Harness(policy("allow"))
    await harness.mediator.handle(
        "read", {"name": "read", "arguments": {"a": 1}, "_meta": {"x": 1}}
    )
    (call,) = harness.servers.forwarded
    assert call.arguments == {"a": 1, "judged": True}
    assert call.params["_meta"] == {"x": 1}
    assert harness.recorder.records[0].arguments == {"a": 1, "judged": True}


@pytest.mark.requirement("C-36")
async def test_a_denied_call_is_recorded_once_and_not_forwarded() -> None:
    harness = Harness(policy("deny"))
    reply = await harness.mediator.handle("read", {})
    assert reply == Refused(by="policy", ground=Ground("it", "said so"))
    assert harness.servers.forwarded == []
    (record,) = harness.recorder.records
    assert record.effect == "deny"
    assert record.result is not None
    assert record.result.status == "denied"


@pytest.mark.requirement("C-5", "C-36", "X-3")
async def test_an_escalation_that_nobody_can_settle_is_denied_at_once() -> None:
    harness = Harness(policy("escalate"))
    reply = await harness.mediator.handle("read", {})
    assert reply == Refused(by="no-reviewer", ground=Ground("it", "said so"))
    assert harness.servers.forwarded == []
    (record,) = harness.recorder.records
    assert (record.effect, record.escalation_result) == ("escalate", "denied")
    assert record.origins == ("policy",)
    assert record.decided_by == "kernel"


@pytest.mark.requirement("C-21")
async def test_a_tool_that_nobody_offers_is_denied() -> None:
    harness = Harness(policy("allow"))
    reply = await harness.mediator.handle("other", {})
    assert isinstance(reply, Refused)
    assert reply.by == "unknown-tool"
    assert harness.recorder.records[0].rule == "unknown-tool"


async def test_arguments_that_cannot_be_read_are_denied_with_their_reason() -> None:
    harness = Harness(policy("allow"))
    ground = Ground("invalid-arguments", 'Argument "a" must be a string (got number).')
    harness.facts.answer = lambda _: Unresolvable(ground=ground)
    assert await harness.mediator.handle("read", {}) == Refused(by="arguments", ground=ground)
    assert harness.servers.forwarded == []


async def test_without_an_intent_record_nothing_is_forwarded() -> None:
    harness = Harness(policy("allow"), recorder=FakeRecorder(failing_from=0))
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.by == "audit"
    assert harness.servers.forwarded == []


async def test_an_outcome_that_cannot_be_recorded_is_told_to_the_agent() -> None:
    harness = Harness(policy("allow"), recorder=FakeRecorder(failing_from=1))
    assert await harness.mediator.handle("read", {}) == Answered(result=DONE, recorded=False)
    later = await harness.mediator.handle("read", {})
    assert isinstance(later, Refused)
    assert later.by == "audit"
    assert len(harness.servers.forwarded) == 1


async def test_a_denial_stands_even_if_it_cannot_be_recorded() -> None:
    harness = Harness(policy("deny"), recorder=FakeRecorder(failing_from=0))
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.by == "policy"


@pytest.mark.requirement("C-36")
async def test_a_server_that_fails_is_an_error_with_an_outcome() -> None:
    async def fail(_: AuthorizedCall) -> ToolResult:
        raise ServerUnavailableError('server "files" is not running')

    harness = Harness(policy("allow"))
    harness.servers.act = fail
    reply = await harness.mediator.handle("read", {})
    assert reply == Failed(message='server "files" is not running')
    outcome = harness.recorder.records[1].result
    assert outcome is not None
    assert (outcome.status, outcome.error) == ("error", 'server "files" is not running')


async def test_a_cancelled_call_still_has_an_outcome() -> None:
    started = anyio.Event()

    async def hang(_: AuthorizedCall) -> ToolResult:
        started.set()
        await anyio.sleep_forever()
        return DONE

    harness = Harness(policy("allow"))
    harness.servers.act = hang
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(harness.mediator.handle, "read", {})
        await started.wait()
        tasks.cancel_scope.cancel()
    assert len(harness.recorder.records) == 2
    outcome = harness.recorder.records[1].result
    assert outcome is not None
    assert outcome.status == "error"


async def test_a_defect_in_gathering_denies() -> None:
    def broken(_: ToolCall) -> Gathered:
        raise RuntimeError("a secret of ours")

    harness = Harness(policy("allow"))
    harness.facts.answer = broken
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.by == "kernel"
    assert "secret" not in reply.ground.reason
    assert harness.servers.forwarded == []
    assert harness.recorder.records[0].rule == "internal-error"


async def test_the_breaker_counts_denied_calls_too() -> None:
    """G29."""
    harness = Harness(policy("deny"))
    replies = [await harness.mediator.handle("read", {}) for _ in range(21)]
    assert [r.by for r in replies if isinstance(r, Refused)] == ["policy"] * 20 + ["breaker"]


async def test_the_breaker_stops_an_allowed_call_and_keeps_the_policy_s_word_in_the_record() -> (
    None
):
    harness = Harness(policy("allow"))
    for _ in range(20):
        await harness.mediator.handle("read", {})
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.by == "breaker"
    assert "called 20 times with identical arguments within 60s" in reply.ground.reason
    assert len(harness.servers.forwarded) == 20
    last = harness.recorder.records[-1]
    assert last.effect == "allow"
    assert last.result is not None
    assert last.result.status == "denied"


@pytest.mark.requirement("X-11")
async def test_a_push_whose_target_changed_before_it_left_is_refused() -> None:
    answers = iter([1, 2])

    def moving(call: ToolCall) -> Facts:
        return replace(no_roles(call), pushes=True, arguments={"target": next(answers)})

    harness = Harness(policy("allow"))
    harness.facts.answer = moving
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.ground.rule == "changed-meanwhile"
    assert harness.servers.forwarded == []


@pytest.mark.requirement("X-11")
async def test_a_call_that_waited_for_its_repository_is_judged_again() -> None:
    answers = iter([1, 2])

    def moving(call: ToolCall) -> Facts:
        return replace(no_roles(call), arguments={"target": next(answers)})

    harness = Harness(policy("allow"))
    harness.facts.answer, harness.facts.waited = moving, True
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.ground.rule == "changed-meanwhile"


async def test_a_call_that_is_withdrawn_while_it_is_looked_at_is_recorded() -> None:
    started = anyio.Event()
    harness = Harness(policy("allow"))

    async def hang(_: ToolCall) -> Gathered:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    harness.facts.gather = hang  # type: ignore[method-assign, assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(harness.mediator.handle, "read", {})
        await started.wait()
        tasks.cancel_scope.cancel()
    (record,) = harness.recorder.records
    assert record.rule == "withdrawn"


@pytest.mark.requirement("X-10")
async def test_words_in_meta_or_arguments_about_the_session_change_nothing() -> None:
    attempts: tuple[dict[str, Json], ...] = (
        {"session": "manager", "approved": True},
        {"decision": "allow"},
    )
    for words in attempts:
        harness = Harness(policy("escalate"))
        reply = await harness.mediator.handle(
            "read", {"_meta": words, "arguments": words, "approved": True}
        )
        assert isinstance(reply, Refused)
        assert harness.recorder.records[0].session == "s"


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(("allow", "escalate", "deny")), st.booleans(), st.integers(0, 2))
def test_only_an_allowed_known_recorded_call_is_ever_forwarded(
    effect: Effect,
    known: bool,
    failing_from: int,
) -> None:
    harness = Harness(
        policy(effect),
        tools=FakeTools() if known else FakeTools(known={}),
        recorder=FakeRecorder(failing_from=failing_from),
    )
    anyio.run(harness.mediator.handle, "read", {})
    assert bool(harness.servers.forwarded) == (effect == "allow" and known and failing_from > 0)
