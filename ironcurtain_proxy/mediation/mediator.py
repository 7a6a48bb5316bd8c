"""The life of one operation, from top to bottom: of a tool call, or of any other.

This module knows the order of the steps, and other modules carry them out. It is the only place
that asks the policy and that makes an `AuthorizedCall` (the policy enforcement point of XACML).
"""

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final, assert_never

import anyio
from msgspec import Struct

from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.errors import AuditError, BusyError, DownstreamError, KernelError
from ironcurtain_proxy.mediation.containing import Containing
from ironcurtain_proxy.mediation.escalated import Consent, EscalatedCalls
from ironcurtain_proxy.mediation.journal import UNKNOWN, Journal
from ironcurtain_proxy.mediation.judge import Judge
from ironcurtain_proxy.mediation.outcome import Outcomes
from ironcurtain_proxy.mediation.policy_changes import PolicyChanges
from ironcurtain_proxy.mediation.refusals import unanswered
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.caller import Caller
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, Ground
from ironcurtain_proxy.model.escalation import AlreadyUsed, Approved
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.grounds import CHANGED, ENDED, NOT_RECORDED
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.reply import Refused, Reply
from ironcurtain_proxy.model.request import Facts, Unresolvable
from ironcurtain_proxy.ports import ProgressListener, World

_GONE: Final = "withdrawn before the server answered"


class Mediator(Struct, frozen=True, kw_only=True):
    """Decides every call of one session and forwards the allowed ones."""

    world: World
    journal: Journal
    judge: Judge
    breaker: Breaker
    escalated: EscalatedCalls
    containing: Containing
    changes: PolicyChanges
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
        life = self._find if found is None else self._decide
        return self.journal.guard(case, life(case, on_progress))

    def carry(self, case: Case, on_progress: ProgressListener | None = None) -> Awaitable[Reply]:
        """Carry an operation that is not a tool call from its opened record to its reply."""
        return self.journal.guard(case, self._decide(case, on_progress))

    async def _find(self, case: Case, on_progress: ProgressListener | None) -> Reply:
        """Wait for a server that may have the tool and has not started yet."""
        why = await self.world.tools.ready(case.call.exposed_name)
        found = self.world.tools.find(case.call.exposed_name)
        if found is None:
            return await self.journal.refuse_unknown(case, why)
        case.locate(*found)
        return await self._decide(case, on_progress)

    def _decide(self, case: Case, on_progress: ProgressListener | None) -> Awaitable[Reply]:
        return self.changes.settle(case, partial(self._attempt, case, on_progress))

    async def _attempt(
        self,
        case: Case,
        on_progress: ProgressListener | None,
        is_again: bool,  # noqa: FBT001
    ) -> Reply | None:
        """Carry a call to its reply by one policy. None: another one came into force."""
        # (1) Facts: the arguments are validated against the schema and resolved. All access to
        # disk, git and parsers that a decision needs happens here.
        call, version = case.call, self.judge.in_force.version
        facts = await self.world.facts.gather(call)
        if self.judge.has_changed(version):
            return None
        # (2) Decision: the policy and the overlay are asked. Their answer is never edited.
        judged = self.judge.judge(call, facts)
        arguments = facts.arguments if isinstance(facts, Facts) else None
        case.judge(judged, arguments, version)
        if (otherwise := self.judge.shadow(call, facts, judged)) is not None:
            case.note_instead("shadow", otherwise)
        # (3) Repetition: a call repeated too often ends here, whatever the policy decided, so that
        # no reviewer is worn down.
        key = self.world.facts.canonical(call, case.arguments)
        if not is_again and self.breaker.trips(key, self.world.clock.monotonic()):
            ground = self.breaker.ground(call.server, call.tool)
            return await self.journal.refuse(case, "breaker", ground)
        if isinstance(facts, Unresolvable):
            return await self.journal.refuse(case, "arguments", facts.ground)
        match judged.decision:
            case Deny(ground=ground):
                return await self.journal.refuse(case, "policy", ground)
            case Allow() | Escalate():
                try:
                    return await self._carry_out(case, facts, on_progress)
                finally:
                    if not self.containing.is_idle:
                        await self.containing.settle(case)
            case _:
                assert_never(judged.decision)

    async def _carry_out(
        self, case: Case, facts: Facts, on_progress: ProgressListener | None
    ) -> Reply | None:
        if isinstance(case.decision, Allow):
            reply = await self._enforce(case, facts, None, on_progress)
        else:
            reply = await self._escalate(case, facts, on_progress)
            if reply is None and case.question is None and not self.changes.affect(case):
                # No reviewer was asked, because of earlier approvals or containment. While the call
                # waited for its turn these ended or were used up, so a reviewer is asked now.
                reply = await self._escalate(case, facts, on_progress)
        if reply is None and self.changes.affect(case):
            return None
        return reply or await self.journal.refuse(case, "lapsed", ENDED)

    async def _escalate(
        self, case: Case, facts: Facts, on_progress: ProgressListener | None
    ) -> Reply | None:
        """Get a call approved, and forward it. None: an earlier approval ended, or the policy."""
        contained = await self.containing.consent(case, facts)
        consent = contained or await self._review(case, facts, on_progress)
        if consent is None or isinstance(consent, Refused):
            return consent
        return await self._enforce(case, facts, consent, on_progress)

    async def _review(
        self, case: Case, facts: Facts, on_progress: ProgressListener | None
    ) -> Consent | Refused | None:
        """Get a reviewer's consent. None: another policy came into force."""
        if not case.judged.reasons:
            raise KernelError("a call that nothing asks about came to be reviewed")
        # (4) Question: a reviewer is asked, unless containment or earlier approvals settle the
        # call. A call that no approval can let through its sandbox is refused without a question.
        tried = self.containing.tried(case)
        opening = self.containing.opening(case, facts, tried)
        if isinstance(opening, str):
            return await self.journal.refuse(case, "policy", Ground("sandbox", opening))
        directories = await self.world.facts.directories(facts.request)
        roots = self.world.facts.roots(facts.request, directories)
        claim = self.escalated.claim(case, facts, opening)
        while left := self.escalated.left(claim):
            told = self.containing.told(case, facts, opening, tried)
            question = self.escalated.question(case, facts, claim, left, directories, told)
            ruling = await self.changes.answer(case, question, on_progress)
            if not isinstance(ruling, Approved | AlreadyUsed):
                return await self.changes.turn_down(case, question, ruling)
            if isinstance(ruling, Approved):
                case.approve(ruling.question or question.id)
            # (5) Second look: time has passed; call and tool must still be what was approved.
            same = await self.judge.examine(case.call) == (facts, case.judged)
            same = same and self.containing.is_still(case, facts, tried, opening)
            same = same and not self.changes.affect(case)
            if not same or self.escalated.claim(case, facts, opening) != claim:
                return await self.changes.refuse(case)
            if isinstance(ruling, Approved):
                self.escalated.accept(case, question, ruling, claim)
                return Consent(
                    reasons=left,
                    definition=claim.call.definition,
                    roots=roots,
                    opening=self.containing.seen(case, facts, opening, ruling.by),
                    revocable=ruling.revocable,
                )
            # An identical call used the approval. What that call remembered may cover this one.
        return Consent(roots=roots, opening=opening)

    async def _enforce(
        self,
        case: Case,
        facts: Facts,
        consent: Consent | None,
        on_progress: ProgressListener | None,
    ) -> Reply | None:
        """Forward the call when its turn comes. None: its consent no longer holds."""
        try:
            async with self.world.facts.undisturbed(facts) as waited:
                # (6) Turn: the target of a push depends on the repository's configuration at this
                # moment, so the call waits until no other call works there. The resources that it
                # names may have changed while it waited.
                stale = facts.pushes or waited
                is_other = stale and await self.world.facts.gather(case.call) != facts
                if is_other or self.changes.affect(case):
                    return await self.changes.refuse(case)
                if consent is not None:
                    claim = self.escalated.rest(case, facts, consent)
                    if consent.definition not in {None, claim.call.definition}:
                        return await self.journal.refuse(case, "policy", CHANGED)
                    # Grants and budgets are evaluated at this moment, after every wait.
                    if not self.escalated.use(case, claim):
                        return None
                must_have_point = consent is not None and consent.revocable
                if not await self.containing.before(case, facts, must_have_point=must_have_point):
                    return None
                return await self._forward(case, facts, consent or Consent(), on_progress)
        except BusyError as error:
            return await self.journal.refuse(case, "busy", Ground("repository-busy", str(error)))

    async def _forward(
        self,
        case: Case,
        facts: Facts,
        consent: Consent,
        on_progress: ProgressListener | None,
    ) -> Reply:
        decision, settlement = case.decision, case.settlement
        settled = settlement is not None and settlement.effect == "allow"
        if isinstance(decision, Deny) or (isinstance(decision, Escalate) and not settled):
            raise KernelError("a call that was not allowed came to be forwarded")
        opening = self.containing.opened(case, facts, consent.opening)
        # (7) Intent: without an intent record, nothing is forwarded.
        try:
            await self.journal.intend(case)
        except AuditError:
            return await self.journal.refuse(case, "audit", NOT_RECORDED)
        authorized = AuthorizedCall.of(case.call, case.arguments, facts.request)
        # (8) Forwarding: the server is asked, or the agent's client by the server. From here on
        # every ending has an outcome record.
        case.send()
        try:
            end = self.world.end_of(authorized.method)
            sent = end.forward(authorized, on_progress, roots=consent.roots, opening=opening)
            result = await self.containing.watch(case, facts, sent)
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
            self.breaker.forgive(self.world.facts.canonical(case.call, case.arguments))
        # (9) Outcome: it is recorded before the agent sees the answer. An answer that carries a
        # question is withheld, as a request from a server is refused.
        return await self.outcomes.reply(case, authorized, result)
