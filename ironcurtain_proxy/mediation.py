"""The life of one tool call, top to bottom (PEP).

Knows the order of the steps and nothing of how any of them is done. The policy is asked here and
nowhere else; an `AuthorizedCall` is made here and nowhere else.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, assert_never

import anyio

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.errors import AuditError, BusyError, DownstreamError, KernelError
from ironcurtain_proxy.model.audit import AuditRecord, ResultSummary
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.call import ToolCall
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Escalate, Ground, effect_of
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, RefusedBy, Reply
from ironcurtain_proxy.model.request import Facts, Unresolvable
from ironcurtain_proxy.ports import (
    Clock,
    FactGatherer,
    IdSource,
    ProgressListener,
    Recorder,
    Servers,
    ToolFinder,
)

_log = logging.getLogger(__name__)

CHANGED: Final = Ground("changed-meanwhile", "what it names changed while waiting")
"""What was judged a moment ago is not what is there now (R-30)."""

NOT_RECORDED: Final = Ground(
    "audit-unavailable", "the call cannot be recorded, so it is not carried out"
)

DEFECT: Final = Ground("internal-error", "the call could not be judged, so it is not carried out")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ports, joined by `wiring`."""

    tools: ToolFinder
    facts: FactGatherer
    servers: Servers
    recorder: Recorder
    clock: Clock
    ids: IdSource


@dataclass(slots=True, kw_only=True)
class _Case:
    """What is known of one call so far, for its record."""

    call: ToolCall
    arrived: datetime
    started: float
    """Monotonic seconds."""
    arguments: Arguments
    decision: Decision


@dataclass(slots=True, kw_only=True)
class Mediator:
    """Decides every call of one session and forwards those that may go."""

    world: World
    policy: Policy
    session: str
    breaker: Breaker = field(default_factory=Breaker)

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
    ) -> Reply:
        """Carry one `tools/call` from its arrival to its reply.

        Args:
            exposed_name: the tool's name as the agent used it.
            params: the raw `params`; `arguments`, if there, is an object.
            on_progress: gets the progress notifications of the server.
        """
        arrived = self.world.clock.now()
        given = params.get("arguments")
        found = self.world.tools.find(exposed_name)
        server, tool = found if found is not None else ("unknown", exposed_name)
        call = ToolCall(
            request_id=self.world.ids.new(),
            exposed_name=exposed_name,
            server=server,
            tool=tool,
            arguments=given if isinstance(given, dict) else {},
            params=params,
        )
        unknown = Deny(Ground("unknown-tool", f"Unknown tool: {exposed_name}"))
        case = _Case(
            call=call,
            arrived=arrived,
            started=self.world.clock.monotonic(),
            arguments=call.arguments,
            decision=unknown,
        )
        try:
            if found is None:
                return await self._refuse(case, "unknown-tool", unknown.ground)
            return await self._decide(case, on_progress)
        except Exception:  # noqa: BLE001  what could not be judged is refused, here and nowhere else
            _log.exception("call %s could not be handled", call.request_id)
            case.decision = Deny(DEFECT)
            return await self._refuse(case, "kernel", DEFECT)

    async def _decide(self, case: _Case, on_progress: ProgressListener | None) -> Reply:
        # (1) The call is turned into facts: all disk, git and parsing that a decision needs.
        gathered = await self.world.facts.gather(case.call)
        # (2) The policy is asked. Its answer is never edited, only acted on.
        match gathered:
            case Unresolvable(ground=ground):
                case.decision = Deny(ground)
            case Facts(request=request, arguments=arguments):
                case.arguments = arguments
                case.decision = authorize(request, self.policy)
            case _:
                assert_never(gathered)
        # (3) The same call again and again ends here, whatever the policy says of it: before a
        # reviewer could be asked, so that nobody is worn down by repetition (G29).
        key = self.world.facts.fingerprint(case.call, case.arguments)
        if self.breaker.trips(key, self.world.clock.monotonic()):
            return await self._refuse(case, "breaker", self._tripped(case.call))
        match case.decision:
            case Deny(ground=ground):
                by: RefusedBy = "policy" if isinstance(gathered, Facts) else "arguments"
                return await self._refuse(case, by, ground)
            case Escalate(ground=ground):
                # (4) Single-shot: there is nobody who could approve.
                return await self._refuse(case, "no-reviewer", ground)
            case Allow():
                return await self._enforce(case, gathered, on_progress)
            case _:
                assert_never(case.decision)

    async def _enforce(
        self, case: _Case, facts: Facts | Unresolvable, on_progress: ProgressListener | None
    ) -> Reply:
        if isinstance(facts, Unresolvable):
            raise KernelError("a call without facts was allowed")
        try:
            async with self.world.facts.undisturbed(facts):
                # (5) A push goes where the repository's configuration says at this moment, and
                # another call may just have rewritten it (G8): the facts must still be the same.
                if facts.pushes and await self.world.facts.gather(case.call) != facts:
                    return await self._refuse(case, "policy", CHANGED)
                return await self._forward(case, on_progress)
        except BusyError as error:
            return await self._refuse(case, "busy", Ground("repository-busy", str(error)))

    async def _forward(self, case: _Case, on_progress: ProgressListener | None) -> Reply:
        # (6) INVARIANT: no intent record, no forwarding.
        try:
            await self.world.recorder.record(self._record(case, None))
        except AuditError:
            return Refused(by="audit", ground=NOT_RECORDED)
        call = AuthorizedCall(
            request_id=case.call.request_id,
            server=case.call.server,
            tool=case.call.tool,
            arguments=case.arguments,
            params=case.call.params,
        )
        # (7) The server is asked. Whatever happens now has an outcome line.
        try:
            result = await self.world.servers.forward(call, on_progress)
        except DownstreamError as error:
            return Failed(message=str(error), recorded=await self._close(case, str(error)))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._close(case, "withdrawn by the agent before the server answered")
            raise
        summary = self.world.recorder.summarize(result)
        if summary.status == "success":
            self.world.facts.succeeded(call)
        return Answered(result=result, recorded=await self._write(self._record(case, summary)))

    async def _close(self, case: _Case, error: str) -> bool:
        return await self._write(self._record(case, ResultSummary(status="error", error=error)))

    async def _refuse(self, case: _Case, by: RefusedBy, ground: Ground) -> Refused:
        # A refusal stands whether or not it could be written down.
        summary = ResultSummary(status="denied", error=ground.reason)
        await self._write(self._record(case, summary))
        return Refused(by=by, ground=ground)

    async def _write(self, record: AuditRecord) -> bool:
        try:
            await self.world.recorder.record(record)
        except AuditError as error:
            _log.error("call %s is not recorded: %s", record.request_id, error)
            return False
        return True

    def _record(self, case: _Case, result: ResultSummary | None) -> AuditRecord:
        decision, call = case.decision, case.call
        escalated = isinstance(decision, Escalate)
        denied = result is not None and result.status == "denied"
        elapsed = self.world.clock.monotonic() - case.started
        return AuditRecord(
            timestamp=case.arrived,
            request_id=call.request_id,
            session=self.session,
            server=call.server,
            tool=call.tool,
            arguments=case.arguments,
            effect=effect_of(decision),
            rule=decision.ground.rule,
            reason=decision.ground.reason,
            decided_by="kernel",
            origins=("policy",) if escalated else (),
            policy_version=self.policy.version,
            escalation_result="denied" if escalated and denied else None,
            result=result,
            duration_ms=0 if result is None or denied else round(elapsed * 1000),
            sandboxed=self.world.servers.is_sandboxed(call.server),
        )

    def _tripped(self, call: ToolCall) -> Ground:
        return Ground(
            "circuit-breaker",
            f"Tool '{call.server}__{call.tool}' called {self.breaker.threshold} times with "
            f"identical arguments within {self.breaker.window:g}s window. "
            "Try a different approach.",
        )
