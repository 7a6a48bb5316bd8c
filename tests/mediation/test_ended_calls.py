"""Whatever ends a call on its way: it is recorded, and who approved it is told."""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from ironcurtain_proxy.errors import (
    AuditError,
    BusyError,
    CallTimedOutError,
    ServerUnavailableError,
)
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import Declined, EscalationId
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.reply import Answered, AuditRecord, Failed, PutBack, Refused
from ironcurtain_proxy.model.request import Gathered
from ironcurtain_proxy.model.server import ToolResult
from tests.fakes import DONE, FakeRecorder, Harness
from tests.mediation.supervised_session import TOOLS, YES, Aftermath, call, grant, moved, supervised

pytestmark = pytest.mark.anyio


# --- the record of calls that were withdrawn -----------------------------------------------------


class Slow(FakeRecorder):
    """Writes a record at once, and says so only when it is too late."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = anyio.Event()

    async def record(self, record: AuditRecord) -> None:
        await super().record(record)
        if not self.writing.is_set():
            self.writing.set()
            await anyio.sleep_forever()


async def cancelled_when(made: Harness, happens: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, made)
        await happens.wait()
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("C-36")
async def test_a_call_that_is_withdrawn_while_its_intent_is_written_has_an_outcome() -> None:
    recorder = Slow()
    made = supervised(recorder=recorder)
    grant(made, "fs.write")
    await cancelled_when(made, recorder.writing)
    intent, outcome = made.recorder.records
    assert (intent.result, intent.request_id) == (None, outcome.request_id)
    assert outcome.result is not None
    assert (outcome.result.status, outcome.rule) == ("denied", "withdrawn")
    assert made.servers.forwarded == []


@pytest.mark.requirement("C-36")
async def test_a_call_that_is_withdrawn_before_its_server_listed_its_tools_is_recorded() -> None:
    made = supervised()
    made.tools.known = {}
    waits = anyio.Event()

    async def ready(exposed_name: str) -> str:
        waits.set()
        await anyio.sleep_forever()
        return ""

    made.tools.ready = ready  # type: ignore[method-assign]
    await cancelled_when(made, waits)
    (record,) = made.recorder.records
    assert (record.tool, record.rule, record.effect) == ("edit", "withdrawn", "deny")
    assert record.arguments == {"n": 0}


async def test_a_call_may_come_before_its_server_has_listed_its_tools() -> None:
    made = supervised()
    grant(made, "fs.write")
    made.tools.known = {}

    async def ready(exposed_name: str) -> str:
        made.tools.known = TOOLS
        return ""

    made.tools.ready = ready  # type: ignore[method-assign]
    assert isinstance(await call(made), Answered)
    assert {(record.server, record.tool) for record in made.recorder.records} == {TOOLS["edit"]}


async def test_a_defect_after_the_server_answered_leaves_no_intent_without_an_outcome() -> None:
    made = supervised()
    grant(made, "fs.write")

    def broken(_: ToolResult) -> None:
        raise RuntimeError("a secret of ours")

    made.recorder.summarize = broken  # type: ignore[method-assign, assignment]
    unknown = "the outcome of the call is not known"
    assert await call(made) == Failed(message=unknown, perhaps_done=True)
    assert [record.result is None for record in made.recorder.records] == [True, False]


# --- what a server left behind ------------------------------------------------------------------


HOOK = PutBack("a hook was removed", "/kept/hook")


class Watch:
    """Finds a hook once a call has reached its server."""

    def __init__(self) -> None:
        self.found: tuple[PutBack, ...] = ()

    def allowing(self, paths: Collection[str], *, by_person: bool) -> AbstractContextManager[None]:
        return nullcontext()

    async def look(self, *, is_last: bool) -> tuple[PutBack, ...]:
        await checkpoint()
        found, self.found = self.found, ()
        return found


def watched(ends: Exception | None) -> tuple[Harness, anyio.Event]:
    """A session whose server leaves a hook behind, and then fails or hangs."""
    made, watch, has_begun = supervised(), Watch(), anyio.Event()
    made.begin(replace(made.world, lookout=watch))
    grant(made, "fs.write")

    async def act(_: AuthorizedCall) -> ToolResult:
        watch.found = (HOOK,)
        has_begun.set()
        if ends is not None:
            raise ends
        await anyio.sleep_forever()
        return DONE

    made.servers.act = act
    return made, has_begun


async def test_what_a_server_left_behind_is_put_back_after_a_call_that_was_withdrawn() -> None:
    made, has_begun = watched(None)
    await cancelled_when(made, has_begun)
    outcome = made.recorder.records[-1]
    assert outcome.result is not None
    assert outcome.result.error == "withdrawn before the server answered"
    assert ("putBack", [HOOK.full]) in outcome.context


@pytest.mark.parametrize(
    ("ends", "perhaps_done"),
    [
        (CallTimedOutError("it did not answer"), True),
        (ServerUnavailableError("it does not run"), False),
        (RuntimeError("a defect"), True),
    ],
    ids=["no answer", "no server", "a defect"],
)
async def test_what_a_server_left_behind_is_put_back_after_a_call_that_failed(
    ends: Exception, *, perhaps_done: bool
) -> None:
    made, _ = watched(ends)
    reply = await call(made)
    assert isinstance(reply, Failed)
    assert (reply.perhaps_done, reply.put_back) == (perhaps_done, (HOOK,))
    outcome = made.recorder.records[-1]
    assert ("putBack", [HOOK.full]) in outcome.context
    assert outcome.result is not None
    assert "withdrawn" not in str(outcome.result.error)


# --- who approved is told ------------------------------------------------------------------------


def told(made: Harness) -> list[bool | None]:
    """Of the one question that was asked: how its call ended; None: it was not made."""
    (question,) = made.questions.asked
    assert isinstance(made.aftermath, Aftermath)
    assert {identifier for identifier, _ in made.aftermath.told} <= {question.id}
    return [succeeded for _, succeeded in made.aftermath.told]


async def test_who_approved_is_told_once_that_a_call_was_done() -> None:
    made = supervised()
    made.questions.ruling = YES
    assert isinstance(await call(made), Answered)
    assert told(made) == [True]


async def test_who_approved_is_told_by_the_question_that_was_answered() -> None:
    # An identical call was asked about first, and its question was shared.
    made, first = supervised(), EscalationId("first")
    made.questions.ruling = replace(YES, question=first)
    assert isinstance(await call(made), Answered)
    assert isinstance(made.aftermath, Aftermath)
    assert made.aftermath.told == [(first, True)]


async def test_who_did_not_approve_is_told_nothing() -> None:
    made = supervised()
    made.questions.ruling = Declined(by=HUMAN, kind="denied")
    assert isinstance(await call(made), Refused)
    assert told(made) == []


async def test_who_approved_is_told_that_the_call_had_changed() -> None:
    made = supervised()
    made.questions.ruling, made.questions.on_ask = YES, moved(made)
    assert isinstance(await call(made), Refused)
    assert told(made) == [None]


async def test_who_approved_is_told_that_another_approval_had_ended() -> None:
    made = supervised("escalate")
    identifier = grant(made, "fs.write")
    made.questions.ruling, made.questions.on_ask = YES, lambda: made.grants.revoke(identifier)
    assert isinstance(await call(made), Refused)
    assert told(made) == [None]


async def test_who_approved_is_told_that_the_repository_was_busy() -> None:
    def busy() -> None:
        raise BusyError("another call")

    made = supervised()
    made.questions.ruling, made.facts.meanwhile = YES, busy
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "busy"
    assert told(made) == [None]


async def test_who_approved_is_told_that_the_call_could_not_be_recorded() -> None:
    made = supervised(recorder=FakeRecorder(failing_from=0))
    made.questions.ruling = YES
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "audit"
    assert told(made) == [None]


async def test_who_approved_is_told_that_the_agent_gave_up_before_the_call_went() -> None:
    made = supervised()
    made.questions.ruling = YES
    looks = anyio.Event()

    async def hang(_: Operation) -> Gathered:
        looks.set()
        await anyio.sleep_forever()
        raise AssertionError

    made.questions.on_ask = lambda: setattr(made.facts, "gather", hang)
    await cancelled_when(made, looks)
    assert told(made) == [None]


async def test_who_approved_is_told_that_the_agent_gave_up_before_the_server_answered() -> None:
    made = supervised()
    made.questions.ruling = YES
    sent = anyio.Event()

    async def hang(_: AuthorizedCall) -> ToolResult:
        sent.set()
        await anyio.sleep_forever()
        return DONE

    made.servers.act = hang
    await cancelled_when(made, sent)
    assert told(made) == [False]


async def test_a_record_that_fails_in_another_way_is_a_refusal_and_who_approved_is_told() -> None:
    class Broken(FakeRecorder):
        async def record(self, record: AuditRecord) -> None:
            if record.result is None:
                raise AuditError("no space left on device")
            await super().record(record)

    made = supervised(recorder=Broken())
    made.questions.ruling = YES
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert reply.by == "audit"
    (record,) = made.recorder.records
    assert record.result is not None
    assert record.result.status == "denied"
    assert told(made) == [None]
