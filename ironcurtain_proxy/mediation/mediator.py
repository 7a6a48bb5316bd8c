"""The life of one operation, from top to bottom: of a tool call, or of any other.

This module knows the order of the steps, and other modules carry them out. It is the only place
that asks the policy and that makes an `AuthorizedCall` (the policy enforcement point of XACML).

Each attempt to carry a call to its reply belongs to one policy, the one that was in force when its
facts were gathered. An attempt ends with `Superseded` where another policy came into force before
the call was sent: the call is judged again, by the new policy. A reviewer's answer to the question
of the old policy is not used. An attempt whose earlier approval ended before the call was sent
(`Lapsed`) asks a reviewer once, or is refused.
"""

from collections.abc import Awaitable, Mapping
from typing import Final

import anyio
from msgspec import Struct

from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.errors import AuditError, BusyError, DownstreamError, KernelError
from ironcurtain_proxy.grants.grant_settlement import Claim
from ironcurtain_proxy.mediation.containing import Containing
from ironcurtain_proxy.mediation.escalated import NO_CONSENT, Consent, EscalatedCalls, Lapsed
from ironcurtain_proxy.mediation.journal import UNKNOWN, Journal
from ironcurtain_proxy.mediation.judge import Judge
from ironcurtain_proxy.mediation.outcome import (
    Outcomes,
    authorized_by,
    refuse_judged,
    turn_down,
    unanswered,
)
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import (
    CHANGED,
    ENDED,
    NOT_RECORDED,
    Allow,
    Deny,
    Escalate,
    Ground,
)
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Approved,
    Declined,
    Edited,
    Escalation,
    Held,
    Ruling,
    Superseded,
)
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.operation import QUESTION_METHODS, Caller, ProgressListener
from ironcurtain_proxy.model.reply import Answered, Refused, RefusedBy, Reply
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Turn, World

_GONE: Final = "withdrawn before the server answered"

_MOST_AGAIN: Final = 16
"""The number of times that a call is judged again before it is refused."""


class Mediator(Struct, frozen=True, kw_only=True):
    """Decides every call of one session and forwards the allowed ones."""

    world: World
    journal: Journal
    judge: Judge
    breaker: Breaker
    escalated: EscalatedCalls
    containing: Containing
    outcomes: Outcomes

    def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        run: GrantId | None = None,
        caller: Caller | None = None,
    ) -> Awaitable[Reply]:
        """Carry one `tools/call` from its arrival to its reply, as `ports.CallHandler` says.

        `run` is the run of the composite tool that the call is a step of.
        """
        found = self.world.tools.find(exposed_name)
        case = self.journal.open(exposed_name, params, found, run=run, caller=caller)
        if on_progress is not None:
            case.tell(on_progress)
        return self.journal.guard(case, self._find(case) if found is None else self._decide(case))

    def carry(self, case: Case) -> Awaitable[Reply]:
        """Carry an operation that is not a tool call from its opened record to its reply."""
        return self.journal.guard(case, self._decide(case))

    async def _find(self, case: Case) -> Reply:
        """Wait for a server that may have the tool and has not started yet."""
        why = await self.world.tools.ready(case.call.exposed_name)
        found = self.world.tools.find(case.call.exposed_name)
        if found is None:
            return await self.journal.refuse_unknown(case, why)
        case.locate(*found)
        return await self._decide(case)

    async def _decide(self, case: Case) -> Reply:
        """Carry a call to its reply by the first policy that stays in force until it is sent."""
        reply = await self._attempt(case)
        for _ in range(_MOST_AGAIN):
            if isinstance(reply, Answered) or not isinstance(reply, Superseded | Edited):
                return reply
            if isinstance(reply, Superseded):
                await self.journal.unused(case.question)
                case.start_over()
            else:
                await self.journal.unused(reply.question)
            reply = await self._attempt(case, is_first=False)
        if isinstance(reply, Superseded | Edited):
            case.overrule(CHANGED)
            return await self.journal.refuse(case, "policy", CHANGED)
        return reply

    async def _attempt(self, case: Case, *, is_first: bool = True) -> Reply | Superseded | Edited:
        """Carry a call to its reply by one policy."""
        # (1) Facts: the arguments are validated against the schema and resolved. All access to
        # disk, git and parsers that a decision needs happens here.
        call, version = case.call, self.judge.in_force.policy.version
        facts = await self.world.facts.gather(call)
        if self.judge.in_force.policy.version != version:
            return Superseded()
        # (2) Decision: the policy and the overlay are asked. Their answer is never edited.
        judged = self.judge.judge(call, facts)
        arguments = facts.arguments if isinstance(facts, Facts) else None
        case.judge(judged, arguments, version)
        if self.judge.in_force.candidate is not None:
            self.judge.shadow(case, facts, judged, self.judge.in_force.candidate)
        # (3) Repetition: a call repeated too often ends here, whatever the policy decided, so that
        # no reviewer is worn down.
        key = self.world.facts.canonical(call.server, call.tool, case.arguments)
        if is_first and self.breaker.trips(key, self.world.clock.monotonic()):
            ground = self.breaker.ground(call.server, call.tool)
            return await self.journal.refuse(case, "breaker", ground)
        if not isinstance(facts, Facts):
            return await refuse_judged(self.journal, case, "arguments", facts.ground)
        if isinstance(judged.decision, Deny):
            return await refuse_judged(self.journal, case, "policy", judged.decision.ground)
        try:
            reply = await self._enforce(case, facts, None)
            if isinstance(reply, Lapsed):
                reply = await self._refuse(case, "lapsed", ENDED)
            return reply
        finally:
            if not self.containing.is_idle:
                await self.containing.close_point(case)

    async def _ask_twice(self, case: Case, facts: Facts) -> Reply | Superseded | Lapsed | Edited:
        """Get a call approved, and forward it; again where what had settled it unasked has ended.

        While the call waited for its turn, earlier approvals or containment may have ended or been
        used up, so a reviewer is asked now.
        """
        reply = await self._escalate(case, facts)
        if not isinstance(reply, Lapsed) or case.question is not None or self._is_superseded(case):
            return reply
        return await self._escalate(case, facts)

    async def _escalate(self, case: Case, facts: Facts) -> Reply | Superseded | Lapsed | Edited:
        """Get a call approved, and forward it."""
        if not case.judged.reasons:
            raise KernelError("a call that nothing asks about came to be reviewed")
        # Where a rule demands signatures, nothing else settles the call.
        signed = bool(case.judged.quorums)
        contained = None if signed else await self.containing.consent(case, facts)
        consent = contained or await self._review(case, facts)
        if not isinstance(consent, Consent):
            return consent
        return await self._enforce(case, facts, consent)

    async def _review(self, case: Case, facts: Facts) -> Consent | Refused | Superseded | Edited:
        """Get the consent of a reviewer, or of earlier approvals."""
        # (4) Question: a reviewer is asked, unless containment or earlier approvals settle the
        # call. A call that no approval can let through its sandbox is refused without a question.
        host = self.containing.blocked_host(case)
        opening = self.containing.opening(case, facts, host)
        if isinstance(opening, str):
            return await self.journal.refuse(case, "policy", Ground("sandbox", opening))
        directories = await self.world.facts.directories(facts.request)
        roots = self.world.facts.roots(facts.request, directories)
        claim = self.escalated.claim(case, facts, opening)
        while left := claim.reasons if case.judged.quorums else self.escalated.left(claim):
            explanation = self.containing.explanation(case, facts, opening, host)
            explanation = (*explanation, *await self.escalated.named(facts), *case.said_of_edit())
            question = self.escalated.question(case, facts, claim, left, directories, explanation)
            ruling = case.use_edit(question) or await self._ask(case, question)
            if isinstance(ruling, Superseded | Edited):
                return ruling
            if not isinstance(ruling, Approved | AlreadyUsed):
                return await turn_down(self.journal, case, question, ruling)
            # (5) Second look: time has passed; call and tool must still be what was approved.
            same = await self._is_still(case, facts, claim)
            if not same or not self.containing.needs_the_same(case, facts, host, opening):
                return await self._refuse(case, "policy", CHANGED)
            if isinstance(ruling, Approved):
                self.escalated.accept(case, question, ruling, claim)
                return Consent(
                    claim=claim,
                    reasons=left,
                    roots=roots,
                    opening=self.containing.opening_seen(case, facts, opening, ruling.by),
                    revocable=ruling.revocable,
                )
            # An identical call used the approval. What that call remembered may cover this one.
        return Consent(claim=claim, roots=roots, opening=opening)

    async def _ask(
        self, case: Case, question: Escalation
    ) -> Ruling | Held | AlreadyUsed | Superseded | Edited:
        """Return a reviewer's answer, unless another policy came into force and nobody refused."""
        if self._is_superseded(case):
            return Superseded()
        ruling = await self.escalated.ask(case, question)
        if self._is_superseded(case) and not isinstance(ruling, Declined | Superseded):
            return Superseded()
        return ruling

    def _enforce(
        self, case: Case, facts: Facts, consent: Consent | None
    ) -> Awaitable[Reply | Superseded | Lapsed | Edited]:
        """Forward the call when its turn comes, if what allowed it still holds.

        `consent` is None until somebody has approved, who is asked here if the policy asks.
        """
        if consent is None and not isinstance(case.judged.decision, Allow):
            return self._ask_twice(case, facts)
        # (6) Turn: the target of a push depends on the repository's configuration at this moment,
        # so the call waits until no other call works there. The resources that it names may have
        # changed while it waited.
        turn = self.world.facts.undisturbed(facts)
        if turn is None:
            return self._enforce_now(case, facts, consent)
        return self._enforce_in(turn, case, facts, consent)

    async def _enforce_in(
        self, turn: Turn, case: Case, facts: Facts, consent: Consent | None
    ) -> Reply | Superseded | Lapsed:
        try:
            async with turn as waited:
                return await self._enforce_now(case, facts, consent, waited=waited)
        except BusyError as error:
            return await self.journal.refuse(case, "busy", Ground("repository-busy", str(error)))

    async def _enforce_now(
        self, case: Case, facts: Facts, consent: Consent | None, *, waited: bool = False
    ) -> Reply | Superseded | Lapsed:
        is_stale = facts.pushes or waited
        claim = consent.claim if consent is not None and consent.reasons else None
        is_in_doubt = is_stale or claim is not None
        if is_in_doubt and not await self._is_still(case, facts, claim, is_stale=is_stale):
            return await self._refuse(case, "policy", CHANGED)
        if self._is_superseded(case):
            return Superseded()
        # Grants and budgets are evaluated at this moment, after every wait.
        if consent is not None and not self.escalated.use(case, facts, consent):
            return Lapsed()
        consent = consent or NO_CONSENT
        if not await self.containing.prepare(case, facts, must_have_point=consent.revocable):
            return Lapsed()
        return await self._forward(case, facts, consent)

    async def _is_still(
        self, case: Case, facts: Facts, claim: Claim | None, *, is_stale: bool = True
    ) -> bool:
        """Return whether a call, its tool and the policy are still what the answer was about.

        Args:
            case: the call.
            facts: those that it was judged by.
            claim: what a reviewer approved; None if nobody was asked.
            is_stale: whether what the call names may have changed since.
        """
        if is_stale and not await self.judge.is_still(case.call, facts, case.judged):
            return False
        is_defined = claim is None or self.escalated.is_as_defined(claim)
        return is_defined and not self._is_superseded(case)

    def _is_superseded(self, case: Case) -> bool:
        """Return whether another policy came into force since the call was judged."""
        return self.judge.in_force.policy.version != case.policy_version

    async def _refuse(self, case: Case, by: RefusedBy, ground: Ground) -> Refused | Superseded:
        """Refuse a call that is not as it was judged, unless another policy is in force."""
        if self._is_superseded(case):
            return Superseded()
        return await self.journal.refuse(case, by, ground)

    async def _forward(self, case: Case, facts: Facts, consent: Consent) -> Reply:
        decision, settlement = case.decision, case.settlement
        settled = settlement is not None and settlement.effect == "allow"
        if not (isinstance(decision, Allow) or (isinstance(decision, Escalate) and settled)):
            raise KernelError("a call that was not allowed came to be forwarded")
        opening = self.containing.record_opening(case, facts, consent.opening)
        # (7) Intent: without an intent record, nothing is forwarded.
        try:
            await self.journal.intend(case)
        except AuditError:
            return await self.journal.refuse(case, "audit", NOT_RECORDED)
        authorized = authorized_by(case, facts.request)
        # (8) Forwarding: the server is asked, or the agent's client by the server. From here on
        # every ending has an outcome record.
        case.send()
        try:
            asks_client = authorized.method in QUESTION_METHODS
            end = self.world.asked_client() if asks_client else self.world.servers
            sent = end.forward(authorized, case.on_progress, roots=consent.roots, opening=opening)
            result = await self.containing.forward(case, facts, sent)
        except DownstreamError as error:
            return await unanswered(self.journal, case, error)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.journal.fail(case, UNKNOWN if isinstance(error, Exception) else _GONE)
            raise
        if result.refused_host and (result.has_failed or not isinstance(decision, Allow)):
            # What the policy allows may have reached out beside its work, and succeeded.
            self.containing.note_attempt(case, result.refused_host)
        if self.containing.can_be_repeated(case, facts, result):
            server, tool = authorized.server, authorized.tool
            self.breaker.forgive(self.world.facts.canonical(server, tool, case.arguments))
        # (9) Outcome: it is recorded before the agent sees the answer. An answer that carries a
        # question is withheld, as a request from a server is refused.
        return await self.outcomes.reply(case, authorized, result)
