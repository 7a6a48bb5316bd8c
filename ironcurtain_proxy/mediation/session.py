"""Joins the parts that mediate the calls of one session; plans of calls.

A plan is several calls announced together, asked about once, and bounded by a budget. It is judged
without effects: facts are gathered for each of its calls, and each is decided as if it were made.
One denial refuses the plan. All reasons to ask become one question; an approval opens a budget for
this run, and the policy still judges every call when it is made.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.approval.capabilities import described
from ironcurtain_proxy.decision.authorizer import is_always_denied
from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.grants.book import Budget, BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.mediation.containing import Containing, opening_of
from ironcurtain_proxy.mediation.escalated import EscalatedCalls, SignedAnswers
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.judge import Attempts, Judge, Overlay
from ironcurtain_proxy.mediation.mediator import Mediator
from ironcurtain_proxy.mediation.outcome import Outcomes, Results, turn_down
from ironcurtain_proxy.mediation.question import Frame
from ironcurtain_proxy.model.annotation import CAPABILITIES, Capability, ToolAnnotation
from ironcurtain_proxy.model.case import Case, Judgement, by_reviewer
from ironcurtain_proxy.model.decision import CHANGED, Deny, Escalate, Ground
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Approved,
    Escalation,
    OriginReason,
    Superseded,
    and_more,
)
from ironcurtain_proxy.model.grant import OPENS, GrantId, SandboxOpening
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.model.reply import Refused
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered, Unresolvable, lasting
from ironcurtain_proxy.model.values import Arguments, Json, RealPath
from ironcurtain_proxy.ports import Pins, World

# --- plans


SERVER: Final = "ironcurtain"
"""The server name in the records of the proxy's own tools."""

MAX_CALLS: Final = 100
"""The largest number of calls in a plan: a person has to read it."""

RUN_LASTS: Final = timedelta(minutes=10)
"""The time after which a run ends by itself."""


class PlannedCall(Struct, frozen=True):
    """One call of a plan."""

    exposed_name: str
    arguments: Arguments


class _Step(Struct, frozen=True):
    """A call of a plan, judged."""

    call: Operation
    gathered: Gathered
    judged: Judgement


def _lasting(gathered: Gathered) -> Gathered:
    return lasting(gathered) if isinstance(gathered, Facts) else gathered


class Opened(Struct, frozen=True):
    """The result of an approved plan, or of one that needs no question: its run may begin."""

    budget: Budget
    asked_later: tuple[str, ...]
    """Calls that the budget does not cover, with the reason. They are asked about when they are
    made."""


class Planner(Struct, frozen=True, kw_only=True):
    """Judges the plans of one session and opens their budgets."""

    world: World
    journal: Journal
    judge: Judge
    breaker: Breaker
    approvals: Approvals
    frame: Frame
    signed: SignedAnswers

    async def open(
        self,
        case: Case,
        calls: Sequence[PlannedCall],
        *,
        parent: Budget | None = None,
        private: bool = False,
    ) -> Opened | Refused:
        """Decide a plan, ask about it if needed, and open its budget. Only a refusal is recorded.

        Args:
            case: the call that announced it, of a tool of the proxy's own.
            calls: in the order in which they will be made.
            parent: the run that it is a part of.
            private: whether only calls that name the run may use it.
        """
        key = self.world.facts.canonical(SERVER, case.call.tool, case.call.arguments)
        if self.breaker.trips(key, self.world.clock.monotonic()):
            ground = self.breaker.ground(SERVER, case.call.tool)
            return await self.journal.refuse(case, "breaker", ground)
        steps = [await self._look_at(planned) for planned in calls]
        for number, step in enumerate(steps, 1):
            if isinstance(step.judged.decision, Deny):
                return await self._refuse_step(case, number, step)
        asking = frozenset([name for step in steps for name in step.judged.asking])
        wanted = Counter([(step.call.server, step.call.tool) for step in steps])
        parent = self._still_open(parent)
        inner = parent is not None and parent.holds(wanted, asking)
        if not inner and self._granted(asking):
            # A session grant settles the call when it is made, if the grant still holds then: a
            # budget of its own would outlive the grant's revocation.
            asking = frozenset()
        elif not inner:
            refused = await self._ask(case, steps, asking)
            if refused is not None:
                return refused
        now = self.world.clock.steady()
        expires = now + RUN_LASTS
        budget = Budget(
            id=GrantId(self.world.ids.new()),
            capabilities=asking,
            calls=wanted,
            expires=expires if parent is None else min(expires, parent.expires),
            opened=parent.opened if inner and parent is not None else self._opened(steps),
            private=private,
            parent=parent if inner else None,
        )
        if not self.approvals.budgets.open(budget):
            ground = Ground("too-many-runs", "too many runs are open: end those that are done")
            return await self.journal.refuse(case, "policy", ground)
        return Opened(budget, _asked_later(steps))

    def _still_open(self, run: Budget | None) -> Budget | None:
        """Return the outer run; None if it ended or was revoked while the steps were judged."""
        now = self.world.clock.steady()
        return None if run is None else self.approvals.budgets.get(run.id, now)

    async def _look_at(self, planned: PlannedCall) -> _Step:
        found = self.world.tools.find(planned.exposed_name)
        server, tool = found or ("unknown", planned.exposed_name)
        call = Operation(
            request_id=self.world.ids.new(),
            exposed_name=planned.exposed_name,
            server=server,
            tool=tool,
            arguments=planned.arguments,
            params={"name": planned.exposed_name, "arguments": dict(planned.arguments)},
        )
        if found is None:
            ground = Ground("unknown-tool", f"Unknown tool: {planned.exposed_name[:200]}")
            return _Step(call, Unresolvable(ground=ground), Judgement(decision=Deny(ground)))
        return _Step(call, *await self.judge.examine(call))

    def _granted(self, asking: frozenset[Capability]) -> bool:
        """Return whether session grants cover all of the plan, so that no question remains."""
        now, grants = self.world.clock.steady(), self.approvals.grants
        return all(grants.find_capability(name, now) is not None for name in asking)

    async def _refuse_step(self, case: Case, number: int, step: _Step) -> Refused:
        ground = step.judged.decision.ground
        named = Ground(ground.rule, f"step {number}, {step.call.exposed_name}: {ground.reason}")
        case.judge(Judgement(decision=Deny(named)))
        return await self.journal.refuse(case, "policy", named)

    async def _ask(
        self, case: Case, steps: Sequence[_Step], asking: frozenset[Capability]
    ) -> Refused | None:
        """Ask the plan's question, or None if it was approved."""
        while True:
            question = self._question(case, steps, asking)
            case.judge(Judgement(decision=Escalate(question.ground), reasons=question.reasons))
            ruling = await self.signed.ask(self.world.questions, question)
            if isinstance(ruling, Superseded):
                return await self.journal.refuse(case, "policy", CHANGED)
            if not isinstance(ruling, Approved | AlreadyUsed):
                return await turn_down(self.journal, case, question, ruling)
            for step in steps:
                if not await self.judge.is_still(step.call, step.gathered, step.judged):
                    return await self.journal.refuse(case, "policy", CHANGED)
            if isinstance(ruling, Approved):
                case.settle(by_reviewer(ruling, question.id))
                return None
            # The same plan was asked for twice, and the other one used the approval.

    def _question(
        self, case: Case, steps: Sequence[_Step], asking: frozenset[Capability]
    ) -> Escalation:
        names = tuple(sorted(asking))
        ground = Ground(
            f"capability:{','.join(names)}",
            f"A plan of {len(steps)} calls needs: {', '.join([described(n) for n in names])}. An "
            "approval is for this run alone, and for as many calls of each of these tools; what "
            "they name may differ, and the policy decides each",
        )
        world, frame = self.world, self.frame
        now = world.clock.steady()
        return Escalation(
            id=world.ids.new_escalation(),
            session=frame.session,
            server=SERVER,
            tool=case.call.tool,
            exposed_name=case.call.exposed_name,
            arguments={"calls": [_shown(step) for step in steps]},
            request=AccessRequest(
                server=SERVER,
                tool=case.call.tool,
                annotated=False,
                has_arguments=True,
                arguments=(),
            ),
            ground=ground,
            reasons=(OriginReason(origin="capability", ground=ground, capabilities=names),),
            told=(f"Runs {len(steps)} calls, which may {_listed(names)}.",),
            context=_context(steps, self._opened(steps)),
            opening=self._opened(steps),
            for_people=True,
            fingerprint=world.fingerprint(case),
            # The resources that the calls name are part of the question: see
            # `review.open_questions`.
            definition=world.facts.fingerprint(
                case.call, {"steps": [repr((_lasting(s.gathered), s.judged)) for s in steps]}
            ),
            policy_version=frame.policy.version,
            created=now,
            deadline=now + frame.patience,
        )

    def _opened(self, steps: Sequence[_Step]) -> SandboxOpening:
        """Return all that the calls of a plan need beyond their sandboxes, as its question says."""
        found = [
            opening_of(self.world.servers, step.call.server, step.gathered)
            for step in steps
            if isinstance(step.gathered, Facts)
        ]
        needed = [one for one in found if isinstance(one, SandboxOpening)]
        return SandboxOpening(
            hosts=tuple(dict.fromkeys([host for one in needed for host in one.hosts])),
            paths=tuple(dict.fromkeys([path for one in needed for path in one.paths])),
            reads=tuple(dict.fromkeys([path for one in needed for path in one.reads])),
        )


def _listed(names: Sequence[Capability]) -> str:
    said = [CAPABILITIES.get(name, name) for name in names]
    return and_more(said[:2] if len(said) < _FEW else [*said[:1], f"{len(said) - 1} other things"])


_FEW: Final = 3


def _asked_later(steps: Sequence[_Step]) -> tuple[str, ...]:
    return tuple(
        f"step {number}, {step.call.exposed_name}: {reason.ground.reason}"
        for number, step in enumerate(steps, 1)
        for reason in step.judged.reasons
        if reason.origin != "capability" or not reason.capabilities
    )


def _shown(step: _Step) -> Json:
    judged = step.gathered.arguments if isinstance(step.gathered, Facts) else step.call.arguments
    return {"tool": f"{step.call.server}/{step.call.tool}", "arguments": dict(judged)}


def _context(steps: Sequence[_Step], opened: SandboxOpening) -> tuple[tuple[str, str], ...]:
    later, shown = _asked_later(steps), opened.shown()
    said = [("Asked about separately", "; ".join(later))] if later else []
    return (*said, *([(OPENS, ", ".join(shown))] if shown else []))


def read_calls(arguments: Mapping[str, Json]) -> list[PlannedCall] | str:
    """Parse the calls of a plan as announced by an agent; a text says what is invalid."""
    given = arguments.get("calls")
    if not isinstance(given, list) or not given:
        return 'Argument "calls" must be a list of calls, each with name and arguments.'
    if len(given) > MAX_CALLS:
        return f"A plan has at most {MAX_CALLS} calls."
    calls: list[PlannedCall] = []
    for number, one in enumerate(given, 1):
        name = one.get("name") if isinstance(one, dict) else None
        inner = one.get("arguments", {}) if isinstance(one, dict) else None
        if not isinstance(name, str) or not isinstance(inner, dict):
            return f"Call {number} needs a name (string) and arguments (object)."
        calls.append(PlannedCall(name, inner))
    return calls


# --- session


class SessionSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings for all calls of a session."""

    session: str
    policy: Policy
    candidate: Policy | None = None
    """A policy that is judged beside it and recorded, or None if none is."""
    overlay: Overlay = field(default_factory=Overlay)
    patience: timedelta = timedelta(seconds=300)
    """The time that a reviewer has to answer."""
    home: RealPath | None = None
    """The user's home directory. It is never remembered as a whole."""
    grant_ttl: timedelta | None = None
    """The time for which a remembered approval holds; None: as long as the session."""
    grant_ending: str = "until this session ends"
    """The words for that end where there is no `grant_ttl`."""
    named_meta: frozenset[str] = frozenset()
    """Keys of `_meta` that are forwarded to servers besides the standard ones."""
    results: Results = field(default_factory=Results)
    """The changes of servers' answers."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The hosts of servers that are reached over HTTP, by server."""
    edits: bool = True
    """Whether a person may change arguments; a client that makes its own calls keeps its own."""


class Session(Struct, frozen=True, kw_only=True):
    """The mediation of one agent's session."""

    journal: Journal
    judge: Judge
    mediator: Mediator
    planner: Planner
    in_force: PolicyInForce
    pins: Pins

    def hides(self, server: str, tool: str, annotation: ToolAnnotation | None) -> bool:
        """Return whether a tool is not listed, because the policy can only deny its calls."""
        return is_always_denied(server, tool, annotation, self.in_force.policy)

    @classmethod
    def begin(
        cls,
        world: World,
        terms: SessionSettings,
        *,
        approvals: Approvals | None = None,
        breaker: Breaker | None = None,
        signed: SignedAnswers | None = None,
    ) -> "Session":
        """Join the parts. Nothing is started.

        Args:
            world: the ports.
            terms: the operator's settings.
            approvals: earlier approvals, or None if there is none.
            breaker: stops repeated calls; None: the default threshold.
            signed: decides about signed answers, or None if nobody may sign.
        """
        approvals = approvals or Approvals(GrantBook(), BudgetBook())
        breaker = breaker or Breaker()
        signed = signed or SignedAnswers(clock=world.clock)
        in_force = PolicyInForce(policy=terms.policy, candidate=terms.candidate)
        journal = Journal(
            recorder=world.recorder,
            clock=world.clock,
            ids=world.ids,
            session=terms.session,
            in_force=in_force,
            is_sandboxed=world.servers.is_sandboxed,
            aftermath=world.aftermath,
            named_meta=terms.named_meta,
            hosts=terms.hosts,
        )
        attempts = Attempts()
        judge = Judge(
            tools=world.tools,
            facts=world.facts,
            in_force=in_force,
            overlay=terms.overlay,
            attempts=attempts,
        )
        frame = Frame(
            session=terms.session,
            in_force=in_force,
            home=terms.home,
            patience=terms.patience,
            ending=terms.grant_ending if terms.grant_ttl is None else "",
            edits=terms.edits,
        )
        escalated = EscalatedCalls(
            world=world, approvals=approvals, frame=frame, signed=signed, grant_ttl=terms.grant_ttl
        )
        return cls(
            in_force=in_force,
            pins=world.pins,
            journal=journal,
            judge=judge,
            mediator=Mediator(
                world=world,
                journal=journal,
                judge=judge,
                breaker=breaker,
                escalated=escalated,
                containing=Containing(world=world, in_force=in_force, attempts=attempts),
                outcomes=Outcomes(world=world, journal=journal, judge=judge, results=terms.results),
            ),
            planner=Planner(
                world=world,
                journal=journal,
                judge=judge,
                breaker=breaker,
                approvals=approvals,
                frame=frame,
                signed=signed,
            ),
        )
