"""The life of one tool call, top to bottom (PEP).

Knows the order of the steps and nothing of how any of them is done. The policy is asked here and
nowhere else; an `AuthorizedCall` is made here and nowhere else.
"""

import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Final, assert_never

import anyio

from ironcurtain_proxy.approval.judging import NamedTool, Overlay
from ironcurtain_proxy.approval.settlements import besides, by_grants, by_reviewer
from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.errors import (
    AuditError,
    BusyError,
    DownstreamError,
    KernelError,
)
from ironcurtain_proxy.grants.book import GrantBook
from ironcurtain_proxy.grants.budget import BudgetBook
from ironcurtain_proxy.grants.claims import Approvals, Claim
from ironcurtain_proxy.grants.grant_settlement import Remembering, without
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.mediation.containing import Containing
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.judge import judge
from ironcurtain_proxy.mediation.question import Frame, Posed, question_about
from ironcurtain_proxy.mediation.refusals import turn_down, unanswered, withhold
from ironcurtain_proxy.model.asking import question_in
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.call import ToolCall
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, Ground
from ironcurtain_proxy.model.escalation import Approved, Escalation, OriginReason, Taken
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.grounds import (
    CHANGED,
    DEFECT,
    ENDED,
    NOT_RECORDED,
    OWN_TOOL,
    WITHDRAWN,
)
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.progress import pulse
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, Reply
from ironcurtain_proxy.model.request import Facts, Gathered, Unresolvable
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.ports import ProgressListener, World

_log = logging.getLogger(__name__)

_UNKNOWN: Final = "the outcome of the call is not known"
_GONE: Final = "withdrawn by the agent before the server answered"


@dataclass(slots=True, kw_only=True)
class Mediator:
    """Decides every call of one session and forwards those that may go."""

    world: World
    policy: Policy
    session: str
    breaker: Breaker = field(default_factory=Breaker)
    grants: GrantBook = field(default_factory=GrantBook)
    overlay: Overlay = field(default_factory=Overlay)
    budgets: BudgetBook = field(default_factory=BudgetBook)
    patience: timedelta = timedelta(seconds=300)
    """How long a reviewer has."""
    home: RealPath | None = None
    """The user's home directory: never remembered as a whole."""
    grant_ttl: timedelta | None = None
    """How long what is remembered holds; None: as long as the session."""
    named_meta: frozenset[str] = frozenset()
    """Keys of `_meta` that reach servers besides the standard ones."""
    approvals: Approvals = field(init=False)
    frame: Frame = field(init=False)
    journal: Journal = field(init=False)
    containing: Containing = field(init=False)

    def __post_init__(self) -> None:
        self.approvals = Approvals(self.grants, self.budgets)
        self.containing = Containing(world=self.world, policy=self.policy)
        self.frame = Frame(
            session=self.session,
            policy=self.policy,
            home=self.home,
            patience=self.patience,
            ending="until this session ends" if self.grant_ttl is None else "",
        )
        self.journal = Journal(
            recorder=self.world.recorder,
            clock=self.world.clock,
            ids=self.world.ids,
            session=self.session,
            policy_version=self.policy.version,
            is_sandboxed=self.world.servers.is_sandboxed,
            aftermath=self.world.aftermath,
            named_meta=self.named_meta,
        )

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        run: GrantId | None = None,
    ) -> Reply:
        """Carry one `tools/call` from its arrival to its reply.

        Args:
            exposed_name: the tool's name as the agent used it.
            params: the raw `params`; `arguments`, if there, is an object.
            on_progress: gets the progress notifications of the server, and signs of life while a
                reviewer is awaited.
            run: the run of the composite tool that the call is a step of.
        """
        found = self.world.tools.find(exposed_name)
        case = self.journal.open(exposed_name, params, found)
        case.run = run
        later = self._decide if found is not None else self._find
        return await self.guarded(case, later(case, on_progress))

    async def guarded(self, case: Case, deciding: Awaitable[Reply]) -> Reply:
        """The reply to a call; a defect of ours or a withdrawal is a refusal, and recorded."""
        try:
            return await deciding
        except Exception:  # noqa: BLE001  what could not be judged is refused, here and nowhere else
            _log.exception("call %s could not be handled", case.call.request_id)
            if case.sent:
                # It may have been carried out: to say otherwise would have it done twice.
                recorded = case.recorded or await self.journal.fail(case, _UNKNOWN)
                return Failed(
                    message=_UNKNOWN, perhaps_done=True, recorded=recorded, put_back=case.put_back
                )
            case.decision = Deny(DEFECT)
            case.settlement = None
            return await self.journal.refuse(case, "kernel", DEFECT)
        except BaseException:
            # Cancelled: what an agent asked for and then withdrew is recorded all the same.
            if not case.recorded:
                case.decision, case.settlement = Deny(WITHDRAWN), None
                with anyio.CancelScope(shield=True):
                    await self.journal.refuse(case, "kernel", WITHDRAWN)
            raise

    async def answer(
        self, exposed_name: str, params: Mapping[str, Json], result: ToolResult
    ) -> Reply:
        """Record a call to a tool of the proxy's own, which reaches no server."""
        case = self.journal.open(exposed_name, params, ("ironcurtain", exposed_name))
        case.decision = OWN_TOOL
        return Answered(
            result=result,
            recorded=await self.journal.write(case, self.world.recorder.summarize(result)),
        )

    async def examine(self, call: ToolCall) -> tuple[Gathered, Judged]:
        """What would be decided of a call now. Nothing is carried out, asked or recorded."""
        gathered = await self.world.facts.gather(call)
        return gathered, self._judge(call, gathered)

    async def _find(self, case: Case, on_progress: ProgressListener | None) -> Reply:
        """Wait for the server that may have the tool: a call may come before it has started."""
        await self.world.tools.ready(case.call.exposed_name)
        found = self.world.tools.find(case.call.exposed_name)
        if found is None:
            return await self.journal.refuse(case, "unknown-tool", case.decision.ground)
        case.call = replace(case.call, server=found[0], tool=found[1])
        return await self._decide(case, on_progress)

    async def _decide(self, case: Case, on_progress: ProgressListener | None) -> Reply:
        # (1) The call is turned into facts: all disk, git and parsing that a decision needs.
        # (2) The policy is asked, and what the operator wants to be asked about besides. The answer
        # is never edited, only acted on.
        gathered, judged = await self.examine(case.call)
        case.decision, case.reasons = judged.decision, judged.reasons
        if isinstance(gathered, Facts):
            case.arguments = gathered.arguments
        # (3) The same call again and again ends here, whatever the policy says of it: before a
        # reviewer could be asked, so that nobody is worn down by repetition.
        key = self.world.facts.fingerprint(case.call, case.arguments)
        if self.breaker.trips(key, self.world.clock.monotonic()):
            return await self.journal.refuse(
                case, "breaker", self.breaker.ground(case.call.server, case.call.tool)
            )
        if isinstance(gathered, Unresolvable):
            return await self.journal.refuse(case, "arguments", gathered.ground)
        match case.decision:
            case Deny(ground=ground):
                return await self.journal.refuse(case, "policy", ground)
            case Allow() | Escalate():
                try:
                    return await self._carry_out(case, gathered, judged, on_progress)
                finally:
                    await self.containing.settle(case)
            case _:
                assert_never(case.decision)

    async def _carry_out(
        self, case: Case, facts: Facts, judged: Judged, on_progress: ProgressListener | None
    ) -> Reply:
        """Have a call approved where that is needed, and make it."""
        for _ in range(2):
            refused: Refused | None = None
            asked = isinstance(case.decision, Escalate)
            if asked and not await self.containing.settles(case, facts, judged):
                # (4) Only an escalation can be approved; no one is asked about a denial, nor about
                # what the sandbox holds and the timeline can take back.
                refused = await self._out_of_reach(case, facts) or await self._review(
                    case, facts, judged, on_progress
                )
            reply = refused or await self._enforce(case, facts, on_progress)
            if reply is not None:
                return reply
            if case.question is not None:
                break
            # Nobody was asked, since grants or a budget covered it; while it waited for its turn
            # they ended, or others used them up. So somebody is asked now.
        return await self.journal.refuse(case, "lapsed", ENDED)

    def _judge(self, call: ToolCall, gathered: Gathered) -> Judged:
        def tool() -> NamedTool:
            names = self.world.tools.names(call.server, call.tool)
            return NamedTool(call.server, call.tool, names)

        return judge(gathered, self.policy, self.overlay, tool)

    async def _out_of_reach(self, case: Case, facts: Facts) -> Refused | None:
        """Nobody is asked about what no approval opens in the server's sandbox."""
        opening = self.containing.opening(case, facts)
        if not isinstance(opening, str):
            return None
        return await self.journal.refuse(case, "policy", Ground("sandbox", opening))

    async def _review(
        self,
        case: Case,
        facts: Facts,
        judged: Judged,
        on_progress: ProgressListener | None,
    ) -> Refused | None:
        """Settle an escalation. None: it was approved, and may go."""
        if not judged.reasons:
            raise KernelError("a call that nothing asks about came to be reviewed")
        directories = await self.world.facts.directories(facts.request)
        case.roots = self.world.facts.roots(facts.request, directories)
        while True:
            claim = self._claim(case, facts)
            left = self.approvals.look(claim, self.world.clock.steady()).open
            if not left:
                return None
            question = self._question(case, facts, claim, left, directories)
            asked = self.world.clock.monotonic()
            ruling = await self.world.desk.settle(question, pulse(case.call.params, on_progress))
            case.waited += self.world.clock.monotonic() - asked
            if not isinstance(ruling, Approved | Taken):
                return await turn_down(self.journal, case, question, ruling)
            if isinstance(ruling, Approved):
                case.question = ruling.question or question.id
            # (5) A wait lies behind us: what was approved must be what is there now, the tool's
            # definition included.
            same = await self.examine(case.call) == (facts, judged)
            if not same or self._claim(case, facts) != claim:
                return await self.journal.refuse(case, "policy", CHANGED)
            if isinstance(ruling, Approved):
                now = self.world.clock.steady()
                how = Remembering(new_id=self.world.ids.new, now=now, ttl=self.grant_ttl)
                self.approvals.remember(question, ruling, claim.call, how)
                case.settlement, case.approved = by_reviewer(ruling, question.id), left
                case.definition = claim.call.definition
                return None
            # Another call like it used the approval; what that left behind may cover this one.

    def _question(
        self,
        case: Case,
        facts: Facts,
        claim: Claim,
        left: tuple[OriginReason, ...],
        directories: frozenset[RealPath] | None,
    ) -> Escalation:
        return question_about(
            Posed(
                id=self.world.ids.new_escalation(),
                now=self.world.clock.steady(),
                call=case.call,
                facts=facts,
                asked=claim.call,
                reasons=left,
                fingerprint=self.world.facts.fingerprint(case.call, facts.arguments),
                directories=directories,
                sandboxed=self.world.servers.is_sandboxed(case.call.server),
                besides=self.containing.told(case),
            ),
            self.frame,
        )

    def _claim(self, case: Case, facts: Facts) -> Claim:
        """What asks about a call and was not approved yet, of the tool as it is now."""
        decision = case.decision
        return Claim(
            call=EscalatedCall(
                server=case.call.server,
                tool=case.call.tool,
                definition=self.world.tools.definition(case.call.server, case.call.tool),
                request=facts.request,
                arguments=facts.arguments,
                roles=decision.roles if isinstance(decision, Escalate) else (),
            ),
            reasons=without(case.reasons, case.approved),
            run=case.run,
        )

    def _settle(self, case: Case, claim: Claim) -> bool:
        """Use what was approved before. False: it does not cover what no reviewer approved now."""
        cover = self.approvals.use(claim, self.world.clock.steady())
        if not cover.open and case.settlement is not None:
            case.settlement = besides(case.settlement, cover.grants, cover.run)
        elif not cover.open:
            case.settlement = by_grants(cover.grants, cover.run)
        return not cover.open

    async def _enforce(
        self, case: Case, facts: Facts, on_progress: ProgressListener | None
    ) -> Reply | None:
        """Carry a call out when its turn has come. None: what it rested on does not hold by now."""
        try:
            async with self.world.facts.undisturbed(facts) as waited:
                # (6) A push goes where the repository's configuration says at this moment, and
                # another call may just have rewritten it; and while this call waited for its
                # turn, another may have changed what it names: the facts must still be the same.
                stale = facts.pushes or waited
                if stale and await self.world.facts.gather(case.call) != facts:
                    return await self.journal.refuse(case, "policy", CHANGED)
                if isinstance(case.decision, Escalate):
                    claim = self._claim(case, facts)
                    if case.definition not in {None, claim.call.definition}:
                        return await self.journal.refuse(case, "policy", CHANGED)
                    # Grants and budgets count as they are at this moment, after every wait.
                    if not self._settle(case, claim):
                        return None
                if not await self.containing.before(case, facts):
                    return None
                return await self._forward(case, facts, on_progress)
        except BusyError as error:
            return await self.journal.refuse(case, "busy", Ground("repository-busy", str(error)))

    async def _forward(
        self, case: Case, facts: Facts, on_progress: ProgressListener | None
    ) -> Reply:
        settled = case.settlement is not None and case.settlement.effect == "allow"
        if isinstance(case.decision, Deny) or (isinstance(case.decision, Escalate) and not settled):
            raise KernelError("a call that was not allowed came to be forwarded")
        opening = self.containing.approved(case, facts)
        # (7) INVARIANT: no intent record, no forwarding.
        try:
            await self.journal.intend(case)
        except AuditError:
            return await self.journal.refuse(case, "audit", NOT_RECORDED)
        call = AuthorizedCall(
            request_id=case.call.request_id,
            server=case.call.server,
            tool=case.call.tool,
            arguments=case.arguments,
            params=case.call.params,
            request=facts.request,
        )
        # (8) The server is asked. Whatever happens now has an outcome line.
        case.sent = True
        try:
            send = partial(self.world.servers.forward, call, on_progress, roots=case.roots)
            result = await self.containing.watch(case, partial(send, opening=opening))
        except DownstreamError as error:
            recorded = await self.journal.fail(case, str(error))
            return unanswered(case, error, recorded=recorded)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.journal.fail(case, _UNKNOWN if isinstance(error, Exception) else _GONE)
            raise
        summary = self.world.recorder.summarize(result)
        # (9) What a server may not ask by a request it may not ask by an answer either.
        if (asked := question_in(result)) is not None:
            return await withhold(self.journal, case, summary, asked)
        if summary.status == "success":
            self.world.facts.succeeded(call)
        recorded = await self.journal.end(case, summary)
        allowed = case.allowed
        return Answered(result=result, recorded=recorded, put_back=case.put_back, allowed=allowed)
