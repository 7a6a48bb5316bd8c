"""One call in progress: its arrival, its judgement, its outcome, and the audit record of both.

The judgement is the policy's decision and all further reasons for a review. The decision is never
edited: what settled an escalation stands beside it.

A settlement says it in the words of the original program where it has them, so that tools which
read its log can read this one.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.annotation import Capability
from ironcurtain_proxy.model.crossing import meta_of
from ironcurtain_proxy.model.decision import (
    CONTAINMENT,
    KERNEL,
    ClientDialog,
    Contained,
    Decider,
    Decision,
    Deny,
    Effect,
    Engine,
    Grants,
    Ground,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    Signers,
    in_record,
)
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Escalation,
    EscalationId,
    OriginReason,
    Ruling,
    Unreachable,
)
from ironcurtain_proxy.model.grant import Grant, GrantId, GrantPattern
from ironcurtain_proxy.model.operation import Operation, ProgressListener
from ironcurtain_proxy.model.reply import (
    Allowed,
    AuditRecord,
    EscalationResult,
    OwnField,
    PutBack,
    RefusedBy,
    ResultSummary,
)
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import Arguments, Json

# --- judgement


class Judgement(Struct, frozen=True, kw_only=True):
    """The policy's decision after the overlay, which can only make it more severe."""

    decision: Decision
    reasons: tuple[OriginReason, ...] = ()
    """The reasons for a review, the policy first; empty unless the call is escalated."""
    quorums: tuple[Quorum, ...] = ()
    """The persons who must sign an approval, where a rule says so."""
    capabilities: frozenset[Capability] = frozenset()
    """All capabilities that the call needs, whether or not the profile asks about them."""

    @property
    def asking(self) -> frozenset[Capability]:
        """The capabilities that the profile asks about."""
        return frozenset([name for reason in self.reasons for name in reason.capabilities])


# --- case


CLIENT: Final = "client"
"""The server name in records of calls of tools that a client has for itself."""
_NO_SERVERS: Final = frozenset({"ironcurtain", "unknown", CLIENT})
"""The server name in records of calls that involve no server: own tools and unknown tools."""


class Settlement(Struct, frozen=True, kw_only=True):
    """The end of an escalation: its effect, and who or what decided."""

    effect: Effect
    """`allow` if it was approved."""
    reason: str
    decided_by: Decider
    result: EscalationResult | None
    extra: tuple[tuple[str, Json], ...] = ()
    """Additional record fields, such as `("autoApproved", true)`."""


class CallEdit(Struct, frozen=True, kw_only=True):
    """The change that a person made to a call's arguments, and its approval as changed."""

    approved: Approved
    question: Escalation
    """What the person was shown; it holds the arguments and the digest of the agent's call."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that were changed."""
        return tuple(self.approved.changed or ())

    def covers(self, question: Escalation) -> bool:
        """Return whether the person was shown all that is asked about the changed call."""
        shown = _asked_in(self.question)
        return question.opening == self.question.opening and _asked_in(question) <= shown

    def as_json(self) -> dict[str, Json]:
        """Return the change for the record: what the agent wrote, and its call's digest."""
        given = self.question.arguments
        return {
            "by": in_record(self.approved.by),
            "escalationId": self.approved.question,
            "sha256": self.question.fingerprint,
            "instead of": {name: given[name] for name in self.names if name in given},
        }


def _asked_in(question: Escalation) -> set[tuple[object, ...]]:
    return {(one.origin, one.ground.rule, *one.capabilities) for one in question.reasons}


class Arrival(Struct, frozen=True, kw_only=True):
    """A call as it arrived, with the policy in force."""

    call: Operation
    session: str
    policy_version: str
    time: datetime
    """Aware, UTC."""
    started: float
    """Monotonic seconds."""
    run: GrantId | None = None
    """The composite run that the call is a step of."""


class Case(Struct, kw_only=True, eq=False):
    """A call in progress: its arrival, and its outcome so far.

    Only the methods write the fields. What was judged is never replaced by what happened later:
    that stands beside it.
    """

    arrival: Arrival
    call: Operation
    """The call as it arrived, with its server once one has the tool, or as a person changed it."""
    judged: Judgement
    """The judgement; before there is one, the default decision."""
    arguments: Arguments
    """The arguments as they arrived; once facts were gathered, as they would be sent."""
    fingerprint: str = ""
    """SHA-256 over server, tool and arguments, or empty until `World.fingerprint` needs it."""
    settlement: Settlement | None = None
    policy_version: str = ""
    """The policy that judged the call, or empty if none has."""
    question: EscalationId | None = None
    edited: CallEdit | None = None
    edit_is_used: bool = False
    """Whether the approval that came with the change was used."""
    overruled: Deny | None = None
    """A decision that replaces the judgement: a defect, or the agent's withdrawal."""
    waited: float = 0.0
    """Seconds that reviewers took."""
    sent: bool = False
    """Whether its server was asked."""
    put_back: tuple[PutBack, ...] = ()
    """Files that were restored after the call."""
    held: bool = False
    """Whether a sandbox holds the local parts of the call's command, and the timeline can take back
    what they do. Parts that leave the sandbox still need an approval."""
    notes: tuple[tuple[str, Json], ...] = ()
    """Additional record fields that no settlement brings, such as who refused the call."""
    on_progress: ProgressListener | None = None
    recorded: bool = False
    """Whether the end of the call has a record. An intent alone does not count."""
    intent: AuditRecord | None = None
    intended: tuple[object, ...] = ()
    """What `intent` was made of."""

    @property
    def decision(self) -> Decision:
        """The decision in force: the judgement, unless something overruled it."""
        return self.overruled or self.judged.decision

    @property
    def allowed(self) -> Allowed:
        """The reason that allowed a forwarded call, in the words of the record."""
        by = KERNEL if self.settlement is None else self.settlement.decided_by
        changed = () if self.edited is None else self.edited.names
        return Allowed((self.overruled or self.judged.decision).ground.rule, by, changed)

    def locate(self, server: str, tool: str) -> None:
        """Note that a server with the tool has started."""
        self.call = replace(self.call, server=server, tool=tool)

    def judge(
        self, judged: Judgement, arguments: Arguments | None = None, policy_version: str = ""
    ) -> None:
        """Note the judgement, and the arguments in the spelling that was judged."""
        self.judged, self.policy_version = judged, policy_version
        if arguments is not None:
            self.arguments, self.fingerprint = arguments, ""

    def identify(self, fingerprint: str) -> None:
        """Note the digest that identifies equal calls."""
        self.fingerprint = fingerprint

    def approve(self, question: EscalationId) -> None:
        """Note that a reviewer approved the call; the reviewer is told how it ends."""
        self.question = question

    def settle(self, settlement: Settlement) -> None:
        """Note that the escalation was settled."""
        self.settlement = settlement

    def start_over(self) -> None:
        """Note that the call is judged again, by another policy."""
        self.settlement = self.question = None
        if self.edited is not None:
            # The change answered the question of another policy.
            self.edited = None
            self.call = replace(self.call, arguments=self.arrival.call.arguments)

    def edit(self, approved: Approved, question: Escalation) -> None:
        """Put the arguments that a person changed into the call, which is then judged anew.

        Nobody is told how it ends: the engine knows the agent's call alone.
        """
        self.question = None
        arguments = {**question.arguments, **(approved.changed or {})}
        self.call = replace(self.call, arguments=arguments)
        self.arguments, self.fingerprint = arguments, ""
        known = replace(approved, question=approved.question or question.id)
        self.edited, self.edit_is_used = CallEdit(approved=known, question=question), False

    def said_of_edit(self) -> tuple[tuple[str, str], ...]:
        """Return the line of a question that names the arguments which a person changed."""
        names = () if self.edited is None else self.edited.names
        return (("Changed by a reviewer", ", ".join(names)),) if names else ()

    def use_edit(self, question: Escalation) -> Approved | None:
        """Return the approval that came with a change, once, if it covers this question."""
        edit = self.edited
        if edit is None or self.edit_is_used:
            return None
        self.edit_is_used = True
        if self.judged.quorums or not edit.covers(question):
            return None
        return replace(edit.approved, changed=None, remember=None)

    def unsettle(self) -> None:
        """Note that the settlement no longer holds."""
        self.settlement = None

    def overrule(self, ground: Ground) -> None:
        """Replace all earlier judgements and approvals by this decision."""
        self.overruled, self.settlement = Deny(ground), None

    def tell(self, on_progress: ProgressListener) -> None:
        """Note who hears of its progress, and that it is alive while a reviewer is awaited."""
        self.on_progress = on_progress

    def send(self) -> None:
        """Note that the server is asked now."""
        self.sent = True

    def wait(self, seconds: float) -> None:
        """Add the seconds that a reviewer took."""
        self.waited += seconds

    def was_not_asked(self) -> None:
        """Note that no reviewer could be reached: the time until then is no reviewer's."""
        self.waited = 0.0

    def clean(self, put_back: tuple[PutBack, ...]) -> None:
        """Note the files that were restored after the call."""
        self.put_back = put_back

    def hold(self, *, held: bool) -> None:
        """Note whether the sandbox holds the local parts of the call's command."""
        self.held = held

    def note(self, *fields: tuple[str, Json]) -> None:
        """Add a field to the record."""
        self.notes += fields

    def note_instead(self, name: str, value: Json) -> None:
        """Set a field of the record, replacing any earlier value of it."""
        self.notes = (*[one for one in self.notes if one[0] != name], (name, value))

    def record(
        self, result: ResultSummary | None, *, elapsed: float, sandboxed: bool, client: str = ""
    ) -> AuditRecord:
        """Return the audit record of the call; without a result it is an intent.

        Args:
            result: how the call ended.
            elapsed: seconds since it arrived.
            sandboxed: whether its server's process is confined; left out where there is none.
            client: the program that the agent is.
        """
        self.recorded = result is not None
        told = (self.settlement, self.overruled, self.put_back, self.notes, self.waited)
        stated = (self.judged, told, sandboxed, client)
        if result is None:
            record = self._record(None, 0, sandboxed=sandboxed, client=client)
            self.intent, self.intended = record, stated
            return record
        duration, intent = round(elapsed * 1000), self.intent
        if intent is None or result.status == "denied" or result.asked or stated != self.intended:
            return self._record(result, duration, sandboxed=sandboxed, client=client)
        # Nearly every call: its outcome says what its intent said, and the result.
        return replace(intent, result=result, duration_ms=duration)

    def _record(
        self, result: ResultSummary | None, duration: int, *, sandboxed: bool, client: str
    ) -> AuditRecord:
        arrival, call = self.arrival, self.call
        decision, settlement = self.overruled or self.judged.decision, self.settlement
        escalated = decision.effect == "escalate"
        denied = result is not None and result.status == "denied"
        asked = None if result is None else result.asked
        ground = decision.ground
        outcome: EscalationResult | None
        by: Decider
        if settlement is None:
            effect, reason, by = decision.effect, ground.reason, KERNEL
            outcome = "denied" if escalated and denied else None
        else:
            effect, reason, by = settlement.effect, settlement.reason, settlement.decided_by
            outcome = settlement.result
        return AuditRecord(
            timestamp=arrival.time,
            request_id=call.request_id,
            session=arrival.session,
            client=client,
            server=call.server,
            tool=call.tool,
            arguments=self.arguments,
            effect=effect,
            rule=ground.rule,
            reason=reason,
            decided_by=by,
            origins=tuple([one.origin for one in self.judged.reasons]) if escalated else (),
            policy_version=self.policy_version or arrival.policy_version,
            escalation_result=outcome,
            result=result,
            duration_ms=0 if denied and asked is None else duration,
            sandboxed=None if not sandboxed and call.server in _NO_SERVERS else sandboxed,
            context=self._context(asked),
        )

    def _context(self, asked: str | None) -> tuple[tuple[str, Json], ...]:
        told = self.notes
        if self.settlement is not None:
            told = (*self.settlement.extra, *told)
        if self.waited and (waited := round(self.waited * 1000)):
            told = (*told, OwnField("waitedMs", waited))
        if self.judged.reasons:
            told = (*told, ("stages", self._stages()))
        if self.edited is not None:
            told = (*told, ("edited", self.edited.as_json()))
        if asked is not None or self.put_back or self.call.withheld or "_meta" in self.call.params:
            told = (*told, *self._besides(asked))
        return told

    def _besides(self, asked: str | None) -> tuple[tuple[str, Json], ...]:
        """Record fields on params forwarded and withheld, answers that ask, restored files."""
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
        """Return each party that decided on an escalated call, in order, with its decision."""
        origins = {reason.origin for reason in self.judged.reasons}
        stages: list[Json] = [f"kernel:{'escalate' if 'policy' in origins else 'allow'}"]
        if origins - {"policy"}:
            stages.append("overlay:escalate")
        settlement = self.settlement
        by_grant = settlement is not None and isinstance(settlement.decided_by, Grants)
        stages.append("grants:approve" if by_grant else "grants:open")
        engine = None if settlement is None else dict(settlement.extra).get("engine")
        if isinstance(engine, dict):
            stages.append(f"engine:{engine.get('action')}")
        if settlement is not None and not by_grant and settlement.result is not None:
            stages.append(f"{in_record(settlement.decided_by)}:{settlement.result}")
        return stages


# --- settlements in the words of the record

EscalationState: TypeAlias = Literal["open", "approved", "used", "lapsed", "refused", "withdrawn"]
"""The state of a question."""

TRANSITIONS: Final[Mapping[EscalationState, frozenset[EscalationState]]] = MappingProxyType(
    {
        "open": frozenset({"approved", "refused", "withdrawn"}),
        "approved": frozenset({"used", "lapsed"}),
        "used": frozenset(),
        "lapsed": frozenset(),
        "refused": frozenset(),
        "withdrawn": frozenset(),
    }
)
"""What may follow a state. An approval is used once: no state leads back to `approved`."""


def advance(state: EscalationState, following: EscalationState) -> EscalationState:
    """Return the next state, checked against the table.

    Raises:
        KernelError: it may not follow.
    """
    if following not in TRANSITIONS[state]:
        raise KernelError(f"an escalation that is {state} cannot become {following}")
    return following


def state_after(ruling: Ruling) -> EscalationState:
    """Return the state of an open question after its ruling."""
    match ruling:
        case Approved():
            return "approved"
        case Declined(kind="withdrawn"):
            return "withdrawn"
        case Declined() | Unreachable():
            return "refused"
        case _:
            assert_never(ruling)


_DeclinedKind: TypeAlias = Literal["denied", "expired", "invalid", "withdrawn", "limit"]

DECLINED: Final[Mapping[_DeclinedKind, str]] = MappingProxyType(
    {
        "denied": "Denied by human during escalation",
        "expired": "No answer within the time for escalations",
        "invalid": "The answer was not acceptable",
        "withdrawn": "Withdrawn before it was answered",
        "limit": "Not asked",
    }
)
LEFT_TO_CLIENT: Final = "Left to the client's user: "
"""The beginning of the reason where the client's own dialog asks."""


def by_grants(grants: Sequence[Grant], run: GrantId | None = None) -> Settlement:
    """Settled by remembered approvals or by the approved plan that the call belongs to."""
    said = [grant.pattern.description for grant in grants]
    ids = [grant.id for grant in grants]
    patterns = [grant.id for grant in grants if isinstance(grant.pattern, GrantPattern)]
    extra: list[tuple[str, Json]] = []
    if patterns:
        extra += [("whitelistApproved", True), ("whitelistPatternId", patterns[0])]
    if run is not None:
        said.append("it is part of an approved plan")
        ids.append(run)
        extra.append(("run", run))
    return Settlement(
        effect="allow",
        reason=f"Whitelist-approved: {'; '.join(said)}",
        decided_by=Grants(tuple(ids)),
        result="approved",
        extra=tuple(extra),
    )


def besides(
    settlement: Settlement, grants: Sequence[Grant], run: GrantId | None = None
) -> Settlement:
    """Settled by a reviewer for one part, and by remembered approvals or a plan for the rest."""
    ids = [*[grant.id for grant in grants], *([] if run is None else [run])]
    if not ids:
        return settlement
    return replace(settlement, extra=(*settlement.extra, ("grants", "+".join(ids))))


def by_containment() -> Settlement:
    """Settled by containment: the sandbox confines the call, and the timeline can undo it."""
    return Settlement(
        effect="allow",
        reason="Contained: it stays in the sandbox and can be taken back",
        decided_by=CONTAINMENT,
        result="approved",
    )


def by_reviewer(approved: Approved, question: EscalationId) -> Settlement:
    """Return the settlement by an approval; one that no person gave is marked in the record."""
    by = approved.by
    marked: tuple[tuple[str, Json], ...] = (("autoApproved", True),) if by.is_automatic else ()
    told = (
        *marked,
        _escalation(approved.question or question),
        *([("note", approved.note)] if approved.note else ()),
        *_kind(by),
        *approved.details,
    )
    if by.sight != "question":
        word = LEFT_TO_CLIENT if isinstance(by, ClientDialog) else "Auto-approved: "
        reason = f"{word}{approved.reasoning}"
    else:
        reason = f"Approved by {_whom(by)} during escalation"
        if approved.reasoning and approved.reasoning != approved.note:
            told = (*told, ("reasoning", approved.reasoning))
    return Settlement(effect="allow", reason=reason, decided_by=by, result="approved", extra=told)


def by_refusal(declined: Declined, question: EscalationId) -> Settlement:
    """Settled by a refusal, or by the lack of a valid answer in time."""
    words = DECLINED[declined.kind]
    if declined.kind == "denied":
        words = words.replace("human", _whom(declined.by))
    reason = f"{words}: {declined.reason}" if declined.reason else words
    return Settlement(
        effect="deny",
        reason=reason,
        decided_by=declined.by,
        result="denied",
        extra=(
            _escalation(declined.question or question),
            *([("note", declined.note)] if declined.note else ()),
            *_kind(declined.by),
            *declined.details,
        ),
    )


def _kind(decider: Decider) -> tuple[tuple[str, Json], ...]:
    """Return the record field with the kind of a reviewer that is a program."""
    if isinstance(decider, Program) and decider.kind != "named":
        return (("reviewerKind", decider.kind),)
    return ()


def _whom(by: Decider) -> str:
    """Return `human` for a person, in the original's word; otherwise the decider's name."""
    match by:
        case Person():
            return "human"
        case Program(name=name, kind="model"):
            return f'model "{name}"'
        case Program(name=name):
            return f'reviewer "{name}"'
        case ProxyItself():
            return "the proxy"
        case Nobody():
            return "nobody"
        case Signers() | LlmApprover() | Engine() | Grants() | Contained() | ClientDialog():
            return in_record(by)
        case _:
            assert_never(by)


def refused_by(declined: Declined) -> RefusedBy:
    """Return the party that refused the call, for the reply to the agent."""
    match declined.kind:
        case "expired" | "limit":
            return declined.kind
        case "denied" | "invalid" | "withdrawn":
            return "declined"
        case _:
            assert_never(declined.kind)


def held(ground: Ground, question: EscalationId) -> Settlement:
    """Return the outcome of a call that is held: not settled, and the agent may repeat the call."""
    return Settlement(
        effect="escalate",
        reason=ground.reason,
        decided_by=KERNEL,
        result=None,
        extra=(_escalation(question),),
    )


def _escalation(question: EscalationId) -> tuple[str, Json]:
    """Return the record field with the escalation's id."""
    return OwnField("escalationId", question)
