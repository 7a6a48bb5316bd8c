"""The audit records of calls: opened on arrival, written when a call is forwarded and ends."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.errors import AuditError
from ironcurtain_proxy.model.case import Arrival, Case, Judgement
from ironcurtain_proxy.model.crossing import OF_CALLS, divide, operation_of
from ironcurtain_proxy.model.decision import DEFECT, WITHDRAWN, Allow, Decision, Deny, Ground
from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.operation import Caller, Operation, ParsedRequest
from ironcurtain_proxy.model.policy import PolicyInForce
from ironcurtain_proxy.model.reply import (
    Answered,
    AuditRecord,
    Failed,
    NotTaken,
    OwnField,
    Refused,
    RefusedBy,
    Reply,
    ResultSummary,
)
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Clock, IdSource, OutcomeListener, Recorder

_log = logging.getLogger(__name__)

Tell: TypeAlias = Callable[[], Awaitable[None]]
"""Notifies the people behind the session. Its exceptions are logged, and the call stays refused."""


class Unattended(Struct):
    """Notifies the people behind the session, once, that no reviewer answers its questions."""

    tell: Tell | None = None
    """Tells that nobody reviews, or None if nobody can be told, as when embedded in another
    program."""
    _was_told: bool = False

    async def found(self) -> None:
        """Note that a call was refused because no reviewer could be asked."""
        if self.tell is None or self._was_told:
            return
        self._was_told = True
        try:
            await self.tell()
        except Exception:  # noqa: BLE001  a courtesy: the call is refused and recorded already
            _log.exception("the agent could not be told that nobody is reviewing")


_UNJUDGED: Final = Judgement(decision=Deny(DEFECT))
"""The decision on a call to a known tool until it is judged."""

MOST_NAMED: Final = 50
"""The largest number of paths that a question or a record names."""
_MOST_KINDS: Final = 20

UNKNOWN: Final = "the outcome of the call is not known"


def listed(notes: Sequence[NotTaken], say: Callable[[NotTaken], str] = str) -> Iterator[str]:
    """Yield what a question or a record names, and how many others there are of each kind."""
    yield from map(say, notes[:MOST_NAMED])
    kinds = Counter([one.why.partition("; ")[0] for one in notes[MOST_NAMED:]]).most_common()
    yield from [f"{count:,} more ({why})" for why, count in kinds[:_MOST_KINDS]]
    if others := sum([count for _, count in kinds[_MOST_KINDS:]]):
        yield f"{others:,} more of other kinds"


class ClientName(Struct):
    """The connected client. Its name is known only after its `initialize` request."""

    name: str = ""
    """The client's own name for itself. No decision depends on it."""


class Journal(Struct, frozen=True, kw_only=True):
    """The audit records of one session's calls."""

    recorder: Recorder
    clock: Clock
    ids: IdSource
    session: str
    in_force: PolicyInForce
    is_sandboxed: Callable[[str], bool]
    """Tells whether the process that serves a server now is confined."""
    aftermath: OutcomeListener | None = None
    named_meta: frozenset[str] = frozenset()
    """The keys of `_meta` that the operator forwards to servers."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The hosts of servers that are reached over HTTP, by server."""
    client: ClientName = field(default_factory=ClientName)
    unattended: Unattended = field(default_factory=Unattended)

    def open(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        found: tuple[str, str] | None,
        *,
        decision: Decision | None = None,
        run: GrantId | None = None,
        caller: Caller | None = None,
    ) -> Case:
        """Open the record of a call.

        Args:
            exposed_name: the tool's name as the agent used it.
            params: the raw `params`; `arguments`, if there, is an object.
            found: the server and the tool of that name, or None if no tool has it.
            decision: the decision until the call is judged, or None if it is a denial.
            run: the run of the composite tool that the call is a step of.
            caller: see `Operation.caller`.
        """
        given = params.get("arguments")
        sent, withheld = params, tuple[str, ...]()
        if not params.keys() <= OF_CALLS:
            crossing = divide(params, self.named_meta)
            sent, withheld = crossing.params, crossing.withheld
        server, tool = found if found is not None else ("unknown", exposed_name)
        call = Operation(
            request_id=self.ids.new(),
            exposed_name=exposed_name,
            server=server,
            tool=tool,
            arguments=given if isinstance(given, dict) else {},
            params=sent,
            withheld=withheld,
            caller=caller,
        )
        judged = _UNJUDGED
        if decision is not None:
            judged = Judgement(decision=decision)
        elif found is None:
            ground = Ground("unknown-tool", f"Unknown tool: {exposed_name[:200]}")
            judged = Judgement(decision=Deny(ground))
        return self._case(call, judged, run)

    def open_operation(self, asked: ParsedRequest, caller: Caller | None = None) -> Case:
        """Open the record of an operation other than a tool call."""
        operation = operation_of(asked, self.ids.new(), self.named_meta, caller)
        return self._case(operation, _UNJUDGED, None)

    def _case(self, call: Operation, judged: Judgement, run: GrantId | None) -> Case:
        return Case(
            arrival=Arrival(
                call=call,
                session=self.session,
                policy_version=self.in_force.policy.version,
                time=self.clock.now(),
                started=self.clock.monotonic(),
                run=run,
            ),
            call=call,
            judged=judged,
            arguments=call.arguments,
        )

    async def guard(self, case: Case, life: Awaitable[Reply]) -> Reply:
        """Return the reply to a call. A defect or a withdrawal becomes a recorded refusal."""
        try:
            return await life
        except Exception:  # noqa: BLE001  what could not be judged is refused, here and nowhere else
            _log.exception("call %s could not be handled", case.call.request_id)
            if case.sent:
                # The call may have been carried out; a reply that denies it would have it repeated.
                recorded = case.recorded or await self.fail(case, UNKNOWN)
                return Failed(
                    message=UNKNOWN, perhaps_done=True, recorded=recorded, put_back=case.put_back
                )
            case.overrule(DEFECT)
            return await self.refuse(case, "kernel", DEFECT)
        except BaseException:
            # Cancelled: a call that the agent withdraws is recorded all the same.
            if not case.recorded:
                case.overrule(WITHDRAWN)
                with anyio.CancelScope(shield=True):
                    await self.refuse(case, "kernel", WITHDRAWN)
            raise

    async def answer(self, case: Case, result: ToolResult) -> Answered:
        """Record that one of the proxy's own tools answered; no server was asked."""
        summary = self.recorder.summarize(result)
        return Answered(result=result, recorded=await self.write(case, summary))

    def intend(self, case: Case) -> Awaitable[None]:
        """Record that a call is about to be forwarded.

        Raises:
            AuditError: it could not be written: the call must not be forwarded.
        """
        return self.recorder.record(self._record(case, None))

    async def write(self, case: Case, result: ResultSummary) -> bool:
        """Record how a call ended. Return False if the record could not be written."""
        try:
            await self.recorder.record(self._record(case, result))
        except AuditError as error:
            if case.sent:
                _log.error("call %s was made, and %s", case.call.request_id, error)
            return False
        return True

    def end(self, case: Case, summary: ResultSummary) -> Awaitable[bool]:
        """Record how a call ended, whether it succeeded or failed, with its approver's notes.

        Returns: False: the record could not be written.
        """
        if self.aftermath is None or case.question is None:
            return self.write(case, summary)
        return self._end_of_asked(case, self.aftermath, case.question, summary)

    async def _end_of_asked(
        self, case: Case, aftermath: OutcomeListener, question: EscalationId, summary: ResultSummary
    ) -> bool:
        # Neither a withdrawal by the agent nor a failing note may leave the call without its
        # outcome.
        with anyio.CancelScope(shield=True):
            await self._note(case, aftermath, question, summary)
            written = await self.write(case, summary)
        return written  # noqa: RET504  mypy takes the scope for one that may swallow errors

    async def _note(
        self, case: Case, aftermath: OutcomeListener, question: EscalationId, summary: ResultSummary
    ) -> None:
        try:
            succeeded = summary.status == "success" if case.sent else None
            notes = await aftermath.ended(question, succeeded=succeeded)
        except Exception:  # noqa: BLE001  the record of the call is worth more
            _log.exception("the effects of call %s could not be noted", case.call.request_id)
            return
        if case.settlement is not None:
            case.settle(replace(case.settlement, extra=(*case.settlement.extra, *notes)))

    async def unused(self, question: EscalationId | None) -> None:
        """Tell whoever approved a question, if one was asked, that no call used the approval."""
        if self.aftermath is not None and question is not None:
            try:
                await self.aftermath.ended(question, succeeded=None)
            except Exception:  # noqa: BLE001  a note; the call is worth more
                _log.exception("it could not be noted that nobody took the approval %s", question)

    async def note_own(self, what: str, ground: Ground, about: Mapping[str, Json]) -> bool:
        """Record what the proxy did by itself, as a call of its own. False: not written.

        Args:
            what: stands for the tool, such as `policy_change`.
            ground: the reason.
            about: stands for the arguments.
        """
        params: dict[str, Json] = {"name": what, "arguments": dict(about)}
        case = self.open(what, params, ("ironcurtain", what), decision=Allow(ground))
        return await self.write(case, ResultSummary(status="success"))

    async def fail(self, case: Case, error: str) -> bool:
        """Record that a forwarded call brought no answer."""
        return await self.end(case, ResultSummary(status="error", error=error))

    async def refuse(self, case: Case, by: RefusedBy, ground: Ground, note: str = "") -> Refused:
        """Record that a call was not forwarded.

        It stays refused if the record cannot be written.
        """
        case.note(OwnField("refusedBy", by))
        if ground.rule != case.decision.ground.rule:
            # The text for the agent, where it differs from the policy's.
            case.note(("refusalRule", ground.rule))
        await self.end(case, ResultSummary(status="denied", error=ground.reason))
        return Refused(by=by, ground=ground, note=note)

    async def refuse_unknown(self, case: Case, why: str) -> Refused:
        """Record a call of a tool that is not there.

        Where `why` says that its server has not started, nobody knows whether the tool exists.
        """
        if not why:
            return await self.refuse(case, "unknown-tool", case.decision.ground)
        ground = Ground("server-not-started", why)
        case.overrule(ground)
        return await self.refuse(case, "busy", ground)

    def _record(self, case: Case, result: ResultSummary | None) -> AuditRecord:
        caller = case.call.caller
        record = case.record(
            result,
            elapsed=self.clock.monotonic() - case.arrival.started,
            sandboxed=self.is_sandboxed(case.call.server),
            client=self.client.name if caller is None else caller.name,
        )
        host = self.hosts.get(case.call.server) if self.hosts else None
        if host is None:
            return record
        return replace(record, context=(*record.context, OwnField("serverHost", host)))
