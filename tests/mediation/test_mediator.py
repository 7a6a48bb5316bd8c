"""A call through all steps, with the world in memory."""

from collections.abc import Callable, Mapping

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.decision import (
    AUTO_APPROVER,
    HUMAN,
    KERNEL,
    TIMEOUT,
    Effect,
    Grants,
    Ground,
)
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    EscalationId,
    Held,
    Ruling,
    Unreachable,
)
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Allowed, Answered, Failed, Refused
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    Facts,
    Gathered,
    PathValue,
    Unresolvable,
)
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, RealPath
from tests.examples import examples
from tests.fakes import DONE, FakeRecorder, FakeTools, Harness, no_roles

pytestmark = pytest.mark.anyio


async def read(harness: Harness) -> None:
    await harness.mediator.handle("read", {})


EMPTY = Policy(rules=())


def policy(effect: Effect) -> Policy:
    return Policy(rules=(Rule(name="it", effect=effect, reason="said so"),), version="v1")


@pytest.mark.requirement("C-4", "C-36")
async def test_an_allowed_call_is_recorded_forwarded_and_recorded_again() -> None:
    harness = Harness(policy("allow"))
    reply = await harness.mediator.handle("read", {"name": "read", "arguments": {"a": 1}})
    assert reply == Answered(result=DONE, allowed=Allowed("it", KERNEL))
    intent, outcome = harness.recorder.records
    assert intent.result is None
    assert outcome.result is not None
    assert outcome.result.status == "success"
    assert intent.request_id == outcome.request_id
    assert (outcome.effect, outcome.rule, outcome.policy_version) == ("allow", "it", "v1")


async def test_what_was_judged_is_what_is_sent_and_recorded() -> None:
    harness = Harness(policy("allow"))
    await harness.mediator.handle(
        "read", {"name": "read", "arguments": {"a": 1}, "_meta": {"baggage": "x=1", "x": 1}}
    )
    (call,) = harness.servers.forwarded
    assert call.arguments == {"a": 1, "judged": True}
    assert call.params["_meta"] == {"baggage": "x=1"}
    assert harness.recorder.records[0].arguments == {"a": 1, "judged": True}


async def test_the_server_tells_of_progress_whoever_called() -> None:
    async def hear(told: Mapping[str, Json]) -> None:
        raise AssertionError(told)

    harness = Harness(policy("allow"))
    await harness.mediator.handle("read", {}, hear)
    await harness.mediator.handle("read", {})
    assert harness.servers.listeners == [hear, None]


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
    harness.clock.tick = 0.01
    reply = await harness.mediator.handle("read", {})
    assert reply == Refused(by="no-reviewer", ground=Ground("it", "said so"))
    assert harness.servers.forwarded == []
    (record,) = harness.recorder.records
    assert (record.effect, record.escalation_result) == ("escalate", "denied")
    assert record.origins == ("policy",)
    assert record.decided_by == KERNEL
    assert "waitedMs" not in dict(record.context), "whatever the clock says: nobody was asked"


@pytest.mark.requirement("C-21")
async def test_a_tool_that_nobody_offers_is_denied() -> None:
    harness = Harness(policy("allow"))
    reply = await harness.mediator.handle("other", {})
    assert isinstance(reply, Refused)
    assert reply.by == "unknown-tool"
    assert harness.recorder.records[0].rule == "unknown-tool"


async def test_a_tool_of_a_server_that_has_not_started_is_not_said_to_be_unknown() -> None:
    harness = Harness(policy("allow"))

    async def ready(exposed_name: str) -> str:
        return 'The server "fs" is still starting: call again in a few seconds.'

    harness.tools.ready = ready  # type: ignore[method-assign]
    reply = await harness.mediator.handle("other", {})
    assert isinstance(reply, Refused)
    assert reply.by == "busy"
    assert reply.ground == Ground("server-not-started", await ready("other"))
    (record,) = harness.recorder.records
    assert (record.effect, record.rule) == ("deny", "server-not-started")


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
    unrecorded = Answered(result=DONE, recorded=False, allowed=Allowed("it", KERNEL))
    assert await harness.mediator.handle("read", {}) == unrecorded
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
    allowed = Allowed("it", KERNEL)
    assert reply == Failed(message='server "files" is not running', allowed=allowed)
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
        tasks.start_soon(read, harness)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert len(harness.recorder.records) == 2
    outcome = harness.recorder.records[1].result
    assert outcome is not None
    assert outcome.status == "error"


async def test_a_defect_in_gathering_denies() -> None:
    def broken(_: Operation) -> Gathered:
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


def naming(
    role: ArgumentRole, effect: ToolEffect | None, server: str = "it"
) -> Callable[[Operation], Facts]:
    """Facts of calls that name one thing."""

    def found(call: Operation) -> Facts:
        facts = no_roles(call)
        fact = ArgumentFact(name="a", roles=(role,), values=())
        request = replace(facts.request, arguments=(fact,), effect=effect, server=server)
        return replace(facts, request=request)

    return found


@pytest.mark.parametrize(
    ("role", "effect", "server", "may_poll"),
    [
        ("read-path", None, "git", True),
        ("none", "reads", "it", True),
        ("github-repo", "reads", "it", True),
        ("read-path", None, "it", False),
        ("none", None, "git", False),
        ("fetch-url", "reads", "it", False),
        ("command", "reads", "it", False),
        ("write-path", None, "git", False),
        ("read-path", "sends", "git", False),
    ],
)
async def test_the_breaker_lets_an_agent_look_again_and_again_and_do_nothing_so_often(
    role: ArgumentRole, effect: ToolEffect | None, server: str, may_poll: bool
) -> None:
    harness = Harness(policy("allow"))
    harness.facts.answer = naming(role, effect, server)
    replies = [await harness.mediator.handle("read", {}) for _ in range(30)]
    assert all(isinstance(reply, Answered) for reply in replies) is may_poll

    async def fail(_: AuthorizedCall) -> ToolResult:
        return ToolResult(result={"content": [], "isError": True})

    harness.servers.act = fail
    failing: dict[str, Json] = {"arguments": {"b": 1}}
    replies = [await harness.mediator.handle("read", failing) for _ in range(30)]
    assert isinstance(replies[-1], Refused), "a read that fails is stopped"


@pytest.mark.requirement("X-11")
async def test_a_push_whose_target_changed_before_it_left_is_refused() -> None:
    answers = iter([1, 2])

    def moving(call: Operation) -> Facts:
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

    def moving(call: Operation) -> Facts:
        return replace(no_roles(call), arguments={"target": next(answers)})

    harness = Harness(policy("allow"))
    harness.facts.answer, harness.facts.waited = moving, True
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.ground.rule == "changed-meanwhile"


async def test_a_call_that_is_withdrawn_while_it_is_looked_at_is_recorded() -> None:
    started = anyio.Event()
    harness = Harness(policy("allow"))

    async def hang(_: Operation) -> Gathered:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    harness.facts.gather = hang  # type: ignore[method-assign, assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, harness)
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


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(("allow", "escalate", "deny")), st.booleans(), st.integers(0, 2))
def test_only_an_allowed_known_recorded_call_is_ever_forwarded(
    effect: Effect, known: bool, failing_from: int
) -> None:
    harness = Harness(
        policy(effect),
        tools=FakeTools() if known else FakeTools(known={}),
        recorder=FakeRecorder(failing_from=failing_from),
    )
    anyio.run(harness.mediator.handle, "read", {})
    assert bool(harness.servers.forwarded) == (effect == "allow" and known and failing_from > 0)


RULINGS: tuple[Ruling | Held, ...] = (
    Approved(by=HUMAN),
    Approved(by=AUTO_APPROVER, reasoning="asked for"),
    Approved(by=HUMAN, remember=0),
    Declined(by=HUMAN, kind="denied"),
    Declined(by=TIMEOUT, kind="expired"),
    Declined(by=HUMAN, kind="invalid"),
    Unreachable(),
    Held(EscalationId("00000000-0000-4000-8000-000000000000")),
)


@pytest.mark.requirement("X-1", "X-5", "X-6", "A-12", "A-18", "C-31")
@pytest.mark.parametrize("ruling", RULINGS, ids=repr)
@pytest.mark.parametrize("effect", ["allow", "escalate", "deny"])
async def test_only_an_escalation_is_asked_about_and_only_an_approval_lets_it_go(
    effect: Effect, ruling: Ruling | Held
) -> None:
    harness = Harness(policy(effect))
    harness.questions.ruling = ruling
    await harness.mediator.handle("read", {"arguments": {"a": 1}})
    approved = effect == "escalate" and isinstance(ruling, Approved)
    assert bool(harness.questions.asked) == (effect == "escalate")
    assert bool(harness.servers.forwarded) == (effect == "allow" or approved)
    assert len(harness.recorder.records) == (2 if harness.servers.forwarded else 1)


@pytest.mark.requirement("A-21", "A-33", "A-53", "A-89")
async def test_an_auto_approval_is_marked_as_one() -> None:
    harness = Harness(policy("escalate"))
    harness.questions.ruling = Approved(by=AUTO_APPROVER, reasoning="the user asked for it")
    await harness.mediator.handle("read", {})
    record = harness.recorder.records[-1]
    assert (record.effect, record.rule) == ("allow", "it")
    assert record.reason == "Auto-approved: the user asked for it"
    assert record.decided_by == AUTO_APPROVER
    assert dict(record.context) == {
        "autoApproved": True,
        "escalationId": harness.questions.asked[0].id,
        "stages": ["kernel:escalate", "grants:open", "auto-approver:approved"],
    }


@pytest.mark.requirement("X-11")
async def test_an_approval_of_what_is_no_longer_there_forwards_nothing() -> None:
    harness = Harness(policy("escalate"))
    harness.questions.ruling = Approved(by=HUMAN)
    harness.questions.on_ask = lambda: setattr(
        harness.facts, "answer", lambda call: replace(no_roles(call), arguments={"other": 1})
    )
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert reply.ground.rule == "changed-meanwhile"
    assert harness.servers.forwarded == []


@pytest.mark.requirement("X-11")
async def test_an_approval_under_a_policy_that_denies_by_now_forwards_nothing() -> None:
    harness = Harness(policy("escalate"))
    harness.questions.ruling = Approved(by=HUMAN)
    denying = policy("deny")
    harness.questions.on_ask = lambda: setattr(harness.in_force, "policy", denying)
    await harness.mediator.handle("read", {})
    assert harness.servers.forwarded == []


def writes(call: Operation) -> Facts:
    place = str(call.arguments.get("path", "/out/a"))
    value = PathValue(place, RealPath.from_text(place))
    request = AccessRequest(
        server="files",
        tool="read",
        annotated=True,
        has_arguments=True,
        arguments=(ArgumentFact("path", ("write-path",), (value,)),),
    )
    return Facts(request=request, arguments=call.arguments)


@pytest.mark.requirement("X-12")
async def test_a_remembered_approval_spares_the_question_until_it_is_revoked() -> None:
    harness = Harness(policy("escalate"))
    harness.facts.answer = writes
    harness.questions.ruling = Approved(by=HUMAN, remember=0)
    await harness.mediator.handle("read", {"arguments": {"path": "/out/a"}})
    harness.questions.ruling = Declined(by=HUMAN, kind="denied")
    await harness.mediator.handle("read", {"arguments": {"path": "/out/b"}})
    assert len(harness.questions.asked) == 1
    assert len(harness.servers.forwarded) == 2
    (remembered,) = harness.grants.list()
    assert remembered.uses == 1
    assert harness.recorder.records[-1].decided_by == Grants((remembered.grant.id,))
    harness.grants.revoke(remembered.grant.id)
    await harness.mediator.handle("read", {"arguments": {"path": "/out/c"}})
    assert len(harness.questions.asked) == 2


@pytest.mark.requirement("X-11")
async def test_a_tool_that_was_redefined_while_a_reviewer_thought_is_not_called() -> None:
    harness = Harness(policy("escalate"))
    harness.questions.ruling = Approved(by=HUMAN)
    harness.questions.on_ask = lambda: setattr(harness.tools, "digest", "d2")
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert harness.servers.forwarded == []


async def test_a_grant_is_void_when_the_tool_s_definition_changes() -> None:
    harness = Harness(policy("escalate"))
    harness.facts.answer = writes
    harness.questions.ruling = Approved(by=HUMAN, remember=0)
    await harness.mediator.handle("read", {"arguments": {"path": "/out/a"}})
    harness.tools.digest = "d2"
    harness.questions.ruling = Unreachable()
    reply = await harness.mediator.handle("read", {"arguments": {"path": "/out/b"}})
    assert isinstance(reply, Refused)


async def test_a_held_call_tells_its_number() -> None:
    harness = Harness(policy("escalate"))
    harness.questions.ruling = Held(EscalationId("00000000-0000-4000-8000-00000000000a"))
    reply = await harness.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert (reply.by, reply.note) == ("held", "00000000-0000-4000-8000-00000000000a")
