"""One call on its way: what arrived, what came of it, and the record that makes.

The policy's decision is never edited: what settled an escalation stands beside it.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from ironcurtain_proxy.model.audit import (
    AuditRecord,
    EscalationResult,
    OwnField,
    PutBack,
    ResultSummary,
)
from ironcurtain_proxy.model.call import ToolCall
from ironcurtain_proxy.model.crossing import meta_of
from ironcurtain_proxy.model.decision import Decision, Deny, Effect, Escalate, Ground, effect_of
from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.reply import Allowed

_NO_SERVERS: Final = frozenset({"ironcurtain", "unknown"})
"""Whose name a record has that involves no server: the proxy's own tools, and unknown ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What became of an escalation."""

    effect: Effect
    """`allow` if it was approved."""
    reason: str
    decided_by: str
    result: EscalationResult | None
    extra: tuple[tuple[str, Json], ...] = ()
    """Further fields of the record, such as `("autoApproved", true)`."""


class Arrival(NamedTuple):
    """A call as it arrived, and under which policy."""

    call: ToolCall
    session: str
    policy_version: str
    time: datetime
    """Aware, UTC."""
    started: float
    """Monotonic seconds."""
    run: GrantId | None = None
    """The composite's run that the call is a step of."""


@dataclass(slots=True, kw_only=True)
class Case:
    """A call on its way: what arrived, and what came of it so far.

    Only the methods write the fields. What was judged is never replaced by what happened later:
    that stands beside it.
    """

    arrival: Arrival
    call: ToolCall
    """The call that arrived, with the server that has its tool once there is one."""
    judged: Judged
    """The judgement; before there is one, the answer that holds without it."""
    arguments: Arguments
    """As they came; once facts were made of them, as they would be sent."""
    settlement: Settlement | None = None
    """What became of the escalation."""
    question: EscalationId | None = None
    """The question that was approved, if one was asked."""
    overruled: Deny | None = None
    """What ends the call whatever was judged: a defect, or that the agent withdrew it."""
    waited: float = 0.0
    """Seconds of its time that reviewers took."""
    sent: bool = False
    """Whether its server was asked."""
    put_back: tuple[PutBack, ...] = ()
    """What was put back after it."""
    notes: tuple[tuple[str, Json], ...] = ()
    """Further fields of the record that no settlement brings, such as who refused it."""
    recorded: bool = False
    """Whether how it ended has an entry: an intent alone is not enough."""

    @property
    def decision(self) -> Decision:
        """What holds: the judgement, unless something overruled it."""
        return self.overruled or self.judged.decision

    @property
    def allowed(self) -> Allowed:
        """What lets it go; of a call that is forwarded."""
        by = "kernel" if self.settlement is None else self.settlement.decided_by
        return Allowed(self.decision.ground.rule, by)

    def locate(self, server: str, tool: str) -> None:
        """A server has started that has the tool."""
        self.call = replace(self.call, server=server, tool=tool)

    def judge(self, judged: Judged, arguments: Arguments | None = None) -> None:
        """The call was judged; `arguments`: as the judgement was made of them."""
        self.judged = judged
        if arguments is not None:
            self.arguments = arguments

    def approve(self, question: EscalationId) -> None:
        """A reviewer approved the call: who did is told how it ends, whatever comes now."""
        self.question = question

    def settle(self, settlement: Settlement) -> None:
        """The escalation was settled."""
        self.settlement = settlement

    def unsettle(self) -> None:
        """What settled the escalation does not hold any more."""
        self.settlement = None

    def overrule(self, ground: Ground) -> None:
        """Nothing that was judged or approved counts any more."""
        self.overruled, self.settlement = Deny(ground), None

    def send(self) -> None:
        """Its server is asked now."""
        self.sent = True

    def wait(self, seconds: float) -> None:
        """A reviewer took so long."""
        self.waited += seconds

    def clean(self, put_back: tuple[PutBack, ...]) -> None:
        """What it left behind was put back."""
        self.put_back = put_back

    def note(self, *fields: tuple[str, Json]) -> None:
        """The record says this besides."""
        self.notes += fields

    def note_instead(self, name: str, value: Json) -> None:
        """The record says this besides, and nothing else under this name."""
        self.notes = (*[one for one in self.notes if one[0] != name], (name, value))

    def record(
        self, result: ResultSummary | None, *, elapsed: float, sandboxed: bool, client: str = ""
    ) -> AuditRecord:
        """The entry for the audit log; without a result it is an intent.

        Args:
            result: how the call ended.
            elapsed: seconds since it arrived.
            sandboxed: whether its server's process is confined; left out where there is none.
            client: the program that the agent is.
        """
        self.recorded = result is not None
        arrival, decision, settlement = self.arrival, self.decision, self.settlement
        call = self.call
        escalated = isinstance(decision, Escalate)
        denied = result is not None and result.status == "denied"
        outcome: EscalationResult | None = "denied" if escalated and denied else None
        ground = decision.ground
        return AuditRecord(
            timestamp=arrival.time,
            request_id=call.request_id,
            session=arrival.session,
            client=client,
            server=call.server,
            tool=call.tool,
            arguments=self.arguments,
            effect=effect_of(decision) if settlement is None else settlement.effect,
            rule=ground.rule,
            reason=ground.reason if settlement is None else settlement.reason,
            decided_by="kernel" if settlement is None else settlement.decided_by,
            origins=tuple([one.origin for one in self.judged.reasons]) if escalated else (),
            policy_version=arrival.policy_version,
            escalation_result=outcome if settlement is None else settlement.result,
            result=result,
            duration_ms=0
            if result is None or (denied and result.asked is None)
            else round(elapsed * 1000),
            sandboxed=None if not sandboxed and call.server in _NO_SERVERS else sandboxed,
            context=self._context(None if result is None else result.asked),
        )

    def _context(self, asked: str | None) -> tuple[tuple[str, Json], ...]:
        extra = () if self.settlement is None else self.settlement.extra
        waited = round(self.waited * 1000)
        told = (*extra, *self.notes, *((OwnField("waitedMs", waited),) if waited else ()))
        if self.judged.reasons:
            told = (*told, ("stages", self._stages()))
        return (*told, *self._besides(asked))

    def _besides(self, asked: str | None) -> tuple[tuple[str, Json], ...]:
        """What crosses beside the arguments, what was kept back, asked for, or put back."""
        meta, withheld = meta_of(self.call.params), self.call.withheld
        fields: list[tuple[str, Json]] = [("meta", dict(meta))] if meta else []
        if withheld:
            fields.append(("withheld", list(withheld)))
        if asked is not None:
            fields.append(("asked", asked))
        if self.put_back:
            fields.append(("putBack", [one.full for one in self.put_back]))
        return tuple(fields)

    def _stages(self) -> list[Json]:
        """Who had a say about an escalated call, in order, and what each said."""
        origins = {reason.origin for reason in self.judged.reasons}
        stages: list[Json] = [f"kernel:{'escalate' if 'policy' in origins else 'allow'}"]
        if origins - {"policy"}:
            stages.append("overlay:escalate")
        settlement = self.settlement
        by_grant = settlement is not None and settlement.decided_by.startswith("grant:")
        stages.append("grants:approve" if by_grant else "grants:open")
        engine = None if settlement is None else dict(settlement.extra).get("engine")
        if isinstance(engine, dict):
            stages.append(f"engine:{engine.get('action')}")
        if settlement is not None and not by_grant and settlement.result is not None:
            stages.append(f"{settlement.decided_by}:{settlement.result}")
        return stages
