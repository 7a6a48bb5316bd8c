"""Escalated calls: earlier approvals that settle them, the question, and the consent given.

A `Consent` is valid from the question until the call is forwarded. Meanwhile grants may end, and
the tool may change.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from msgspec import Struct, structs

from ironcurtain_proxy.approval.settlements import besides, by_grants, by_reviewer
from ironcurtain_proxy.decision.authorizer import goes_by_name
from ironcurtain_proxy.grants.grant_settlement import Approvals, Claim, NewGrantTerms, reasons_left
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.mediation.question import (
    Frame,
    QuestionInput,
    question_about,
    said_of_targets,
)
from ironcurtain_proxy.mediation.signatures import SignedAnswers
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import Escalate
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Approved,
    Edited,
    Escalation,
    Held,
    OriginReason,
    Ruling,
    Superseded,
)
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import QUESTION_METHODS
from ironcurtain_proxy.model.request import Facts, lasting
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.ports import ProgressListener, World


class Consent(Struct, frozen=True, kw_only=True):
    """The consent behind an escalated call: a reviewer's approval, earlier approvals, or both."""

    claim: Claim | None = None
    """The call as it was approved; None if containment settled it, which asks nobody."""
    reasons: tuple[OriginReason, ...] = ()
    """The reasons that a reviewer approved; earlier approvals must cover the rest."""
    roots: tuple[str, ...] = ()
    """Directories that the server must be told about for this call."""
    opening: SandboxOpening | None = None
    """The access beyond the sandbox that was approved."""
    revocable: bool = False
    """The consent holds only if the call can be undone."""


class Lapsed(Struct, frozen=True):
    """An approval that the call rests on ended, or was used up, before the call was sent."""


class EscalatedCalls(Struct, frozen=True, kw_only=True):
    """The escalated calls of one session, with the approvals they can use."""

    world: World
    approvals: Approvals
    frame: Frame
    signed: SignedAnswers
    grant_ttl: timedelta | None = None
    """The time for which a remembered approval holds; None: as long as the session."""

    def claim(self, case: Case, facts: Facts, opening: SandboxOpening | None) -> Claim:
        """Return a call with all that an approval of it has to cover, made once for each attempt.

        Args:
            case: the call.
            facts: of the call.
            opening: the access beyond the sandbox that an approval has to name.
        """
        call, decision = case.call, case.decision
        return Claim(
            call=EscalatedCall(
                server=call.server,
                tool=call.tool,
                definition=self.world.tools.definition(call.server, call.tool),
                request=lasting(facts).request,
                arguments=facts.arguments,
                roles=decision.roles if isinstance(decision, Escalate) else (),
                command=facts.command,
                place=facts.place,
                held=case.held,
                opening=opening,
                goes_by_name=goes_by_name(facts.request, self.frame.in_force.policy),
            ),
            reasons=case.judged.reasons,
            run=case.arrival.run,
        )

    def is_as_defined(self, claim: Claim) -> bool:
        """Return whether the tool has the definition that a claim was made for."""
        call = claim.call
        return self.world.tools.definition(call.server, call.tool) == call.definition

    def left(self, claim: Claim) -> tuple[OriginReason, ...]:
        """Return the reasons that no earlier approval covers now and a reviewer must see.

        Uses no budget.
        """
        return self.approvals.look(claim, self.world.clock.steady()).open

    def question(
        self,
        case: Case,
        facts: Facts,
        claim: Claim,
        left: tuple[OriginReason, ...],
        directories: frozenset[RealPath] | None,
        besides: tuple[tuple[str, str], ...] = (),
    ) -> Escalation:
        """Return the question for a reviewer, with `besides` as additional explanation."""
        world = self.world
        return question_about(
            QuestionInput(
                id=world.ids.new_escalation(),
                now=world.clock.steady(),
                call=case.call,
                facts=lasting(facts),
                asked=claim.call,
                reasons=left,
                fingerprint=world.fingerprint(case),
                directories=directories,
                sandboxed=world.servers.is_sandboxed(case.call.server),
                besides=besides,
            ),
            self.frame,
        )

    async def named(self, facts: Facts) -> tuple[tuple[str, str], ...]:
        """Return the line of a question that says who named the targets of its call."""
        targets = facts.request.targets
        if not targets and self.world.origins is not None:
            targets = await self.world.origins.targets(facts.request)
        return said_of_targets(targets, self.world.clock.now())

    async def ask(
        self, case: Case, question: Escalation, on_progress: ProgressListener | None
    ) -> Ruling | Held | AlreadyUsed | Superseded | Edited:
        """Return the answer to a question; the case gets the time that it took."""
        asked = self.world.clock.monotonic()
        # A server that asks something works on the call that its question belongs to.
        is_sent = case.call.method in QUESTION_METHODS
        with self.world.waiting(case.call.caller, is_sent=is_sent):
            on_wait = pulse(case.call.params, on_progress)
            ruling = await self.signed.ask(
                self.world.questions, question, case.judged.quorums, on_wait
            )
        case.wait(self.world.clock.monotonic() - asked)
        if not isinstance(ruling, Approved):
            return ruling
        case.approve(ruling.question or question.id)
        if ruling.changed is None:
            return ruling
        case.edit(ruling, question)
        return Edited(ruling.question or question.id)

    def accept(self, case: Case, question: Escalation, approved: Approved, claim: Claim) -> None:
        """Accept an approval; the grants that it creates hold from now on."""
        now = self.world.clock.steady()
        how = NewGrantTerms(new_id=self.world.ids.new, now=now, ttl=self.grant_ttl)
        self.approvals.remember(question, approved, claim.call, how)
        case.settle(by_reviewer(approved, question.id))

    def use(self, case: Case, facts: Facts, consent: Consent) -> bool:
        """Use earlier approvals for what a consent leaves to them.

        Return False, and use nothing, if they no longer cover all of it.
        """
        claim = consent.claim or self.claim(case, facts, None)
        if not self.is_as_defined(claim):
            return False
        # What a reviewer was shown, earlier approvals need not name as well.
        call = replace(claim.call, opening=None) if consent.reasons else claim.call
        left = reasons_left(claim.reasons, consent.reasons)
        cover = self.approvals.use(
            structs.replace(claim, call=call, reasons=left), self.world.clock.steady()
        )
        if cover.open:
            return False
        if case.settlement is None:
            case.settle(by_grants(cover.grants, cover.run))
        else:
            case.settle(besides(case.settlement, cover.grants, cover.run))
        return True


def sign_of_life(token: Json, seconds: float) -> Mapping[str, Json]:
    """Return the `params` of a progress notification of a call that waits for its approval.

    Progress values must grow, and those of the server begin at 0 or 1, so that these stay close
    to zero.
    """
    return {
        "progressToken": token,
        "progress": seconds / 1e9,
        "message": f"waiting for approval ({seconds:.0f} s)",
    }


def pulse(
    params: Mapping[str, Json], tell: Callable[[Mapping[str, Json]], Awaitable[None]] | None
) -> Callable[[float], Awaitable[None]] | None:
    """Return a function that reports a call's waiting seconds; None if the client asked for none.

    Args:
        params: the call's, with the client's token in `_meta`.
        tell: sends a progress notification.
    """
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if tell is None or token is None:
        return None
    return lambda seconds: tell(sign_of_life(token, seconds))
