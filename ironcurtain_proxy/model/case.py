"""One call on its way: what is known of it so far, and the record it makes. Pure.

No I/O, no clock, no log: times are handed in. The policy's decision is never edited; what settled
an escalation stands beside it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ironcurtain_proxy.model.audit import AuditRecord, EscalationResult, PutBack, ResultSummary
from ironcurtain_proxy.model.call import ToolCall
from ironcurtain_proxy.model.crossing import meta_of
from ironcurtain_proxy.model.decision import Decision, Effect, Escalate, effect_of
from ironcurtain_proxy.model.escalation import EscalationId, OriginReason
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.json import Arguments, Json
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


@dataclass(slots=True, kw_only=True)
class Case:
    """What is known of one call."""

    call: ToolCall
    session: str
    policy_version: str
    arrived: datetime
    """Aware, UTC."""
    started: float
    """Monotonic seconds."""
    arguments: Arguments
    """As they came; once facts were made of them, as they would be sent."""
    decision: Decision
    reasons: tuple[OriginReason, ...] = ()
    """What asked for a review."""
    settlement: Settlement | None = None
    approved: tuple[OriginReason, ...] = ()
    """What a reviewer has approved of it; something approved before must cover the rest."""
    question: EscalationId | None = None
    """The question that was approved, if one was asked."""
    definition: str | None = None
    """SHA-256 of the tool's definition that was approved; None: nobody approved one now."""
    run: GrantId | None = None
    """The composite's run that the call is a step of."""
    roots: tuple[str, ...] = ()
    """Directories that the server must be told of for this call."""
    put_back: tuple[PutBack, ...] = ()
    """What was put back after it."""
    sent: bool = False
    """Whether its server was asked."""
    asked: str | None = None
    """What the server's answer asks for instead of answering; it is not passed on."""
    waited: float = 0.0
    """Seconds of its time that reviewers took."""
    notes: tuple[tuple[str, Json], ...] = ()
    """Further fields of the record that no settlement brings, such as who refused it."""
    recorded: bool = False
    """Whether how it ended has an entry: an intent alone is not enough."""

    @property
    def allowed(self) -> Allowed:
        """What lets it go; of a call that is forwarded."""
        by = "kernel" if self.settlement is None else self.settlement.decided_by
        return Allowed(self.decision.ground.rule, by)

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
        settlement = self.settlement
        escalated = isinstance(self.decision, Escalate)
        denied = result is not None and result.status == "denied"
        outcome: EscalationResult | None = "denied" if escalated and denied else None
        ground = self.decision.ground
        return AuditRecord(
            timestamp=self.arrived,
            request_id=self.call.request_id,
            session=self.session,
            client=client,
            server=self.call.server,
            tool=self.call.tool,
            arguments=self.arguments,
            effect=effect_of(self.decision) if settlement is None else settlement.effect,
            rule=ground.rule,
            reason=ground.reason if settlement is None else settlement.reason,
            decided_by="kernel" if settlement is None else settlement.decided_by,
            origins=tuple([reason.origin for reason in self.reasons]) if escalated else (),
            policy_version=self.policy_version,
            escalation_result=outcome if settlement is None else settlement.result,
            result=result,
            duration_ms=0
            if result is None or (denied and self.asked is None)
            else round(elapsed * 1000),
            sandboxed=None if not sandboxed and self.call.server in _NO_SERVERS else sandboxed,
            context=self._context(),
        )

    def _context(self) -> tuple[tuple[str, Json], ...]:
        extra = () if self.settlement is None else self.settlement.extra
        waited: Json = round(self.waited * 1000)
        told = (*extra, *self.notes, *((("waitedMs", waited),) if waited else ()))
        if self.reasons:
            told = (*told, ("stages", self._stages()))
        return (*told, *self._besides())

    def _besides(self) -> tuple[tuple[str, Json], ...]:
        """What crosses beside the arguments, what was kept back, asked for, or put back."""
        meta, withheld = meta_of(self.call.params), self.call.withheld
        fields: list[tuple[str, Json]] = [("meta", dict(meta))] if meta else []
        if withheld:
            fields.append(("withheld", list(withheld)))
        if self.asked is not None:
            fields.append(("asked", self.asked))
        if self.put_back:
            fields.append(("putBack", [one.full for one in self.put_back]))
        return tuple(fields)

    def _stages(self) -> list[Json]:
        """Who had a say about an escalated call, in order, and what each said."""
        origins = {reason.origin for reason in self.reasons}
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
