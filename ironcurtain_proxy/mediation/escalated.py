"""Escalated calls: earlier approvals that settle them, the question, and the consent given.

A `Consent` is valid from the question until the call is forwarded. Meanwhile grants may end, and
the tool may change.
"""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from ironcurtain_proxy.approval.settlements import besides, by_grants, by_reviewer
from ironcurtain_proxy.decision.prior_consent import goes_by_name
from ironcurtain_proxy.grants.claims import Approvals, Claim
from ironcurtain_proxy.grants.grant_settlement import NewGrantTerms, reasons_left
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.mediation.question import Frame, QuestionInput, question_about
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import Escalate
from ironcurtain_proxy.model.escalation import Approved, Escalation, OriginReason
from ironcurtain_proxy.model.opening import SandboxOpening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.ports import Clock, FactGatherer, IdSource, Servers, ToolFinder


class Consent(Struct, frozen=True, kw_only=True):
    """The consent behind an escalated call: a reviewer's approval, earlier approvals, or both."""

    reasons: tuple[OriginReason, ...] = ()
    """The reasons that a reviewer approved; earlier approvals must cover the rest."""
    definition: str | None = None
    """SHA-256 of the tool's definition that the reviewer approved; None: no reviewer was asked."""
    roots: tuple[str, ...] = ()
    """Directories that the server must be told about for this call."""
    opening: SandboxOpening | None = None
    """The access beyond the sandbox that was approved."""
    revocable: bool = False
    """The consent holds only if the call can be undone."""


class EscalatedCalls(Struct, frozen=True, kw_only=True):
    """The escalated calls of one session, with the approvals they can use."""

    tools: ToolFinder
    facts: FactGatherer
    servers: Servers
    clock: Clock
    ids: IdSource
    approvals: Approvals
    frame: Frame
    grant_ttl: timedelta | None = None
    """The time for which a remembered approval holds; None: as long as the session."""

    def claim(
        self,
        case: Case,
        facts: Facts,
        opening: SandboxOpening | None,
        approved: Sequence[OriginReason] = (),
    ) -> Claim:
        """Return the reasons of a call that are not approved yet, of the tool as defined now.

        Args:
            case: the call.
            facts: of the call.
            opening: the access that earlier approvals have to name; None if a reviewer approved it.
            approved: the reasons that a reviewer approved.
        """
        call, decision = case.call, case.decision
        return Claim(
            call=EscalatedCall(
                server=call.server,
                tool=call.tool,
                definition=self.tools.definition(call.server, call.tool),
                request=facts.request,
                arguments=facts.arguments,
                roles=decision.roles if isinstance(decision, Escalate) else (),
                command=facts.command,
                place=facts.place,
                held=case.held,
                opening=opening,
                goes_by_name=goes_by_name(facts.request, self.frame.in_force.policy),
            ),
            reasons=reasons_left(case.judged.reasons, approved),
            run=case.arrival.run,
        )

    def rest(self, case: Case, facts: Facts, consent: Consent) -> Claim:
        """Return what a consent leaves to earlier approvals, of the tool as defined now."""
        # What a reviewer was shown, earlier approvals need not name as well.
        opening = None if consent.reasons else consent.opening
        return self.claim(case, facts, opening, consent.reasons)

    def left(self, claim: Claim) -> tuple[OriginReason, ...]:
        """The reasons that no earlier approval covers now and a reviewer must see.

        Uses no budget.
        """
        return self.approvals.look(claim, self.clock.steady()).open

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
        return question_about(
            QuestionInput(
                id=self.ids.new_escalation(),
                now=self.clock.steady(),
                call=case.call,
                facts=facts,
                asked=claim.call,
                reasons=left,
                fingerprint=self.facts.fingerprint(case.call, facts.arguments),
                directories=directories,
                sandboxed=self.servers.is_sandboxed(case.call.server),
                besides=besides,
            ),
            self.frame,
        )

    def accept(self, case: Case, question: Escalation, approved: Approved, claim: Claim) -> None:
        """Accept an approval; the grants that it creates hold from now on."""
        now = self.clock.steady()
        how = NewGrantTerms(new_id=self.ids.new, now=now, ttl=self.grant_ttl)
        self.approvals.remember(question, approved, claim.call, how)
        case.settle(by_reviewer(approved, question.id))

    def use(self, case: Case, claim: Claim) -> bool:
        """Use earlier approvals. False: they no longer cover all that the reviewer left to them."""
        cover = self.approvals.use(claim, self.clock.steady())
        if cover.open:
            return False
        if case.settlement is None:
            case.settle(by_grants(cover.grants, cover.run))
        else:
            case.settle(besides(case.settlement, cover.grants, cover.run))
        return True
