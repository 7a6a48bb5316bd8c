"""Earlier approvals of a call: grants, and the budgets of plans.

They are looked up before the question, and used when the call is forwarded: an approval that ends
in between does not count, and a call that is not forwarded uses nothing.
"""

from datetime import datetime

from msgspec import Struct

from ironcurtain_proxy.grants.book import GrantBook
from ironcurtain_proxy.grants.budget import Budget, BudgetBook
from ironcurtain_proxy.grants.grant_settlement import (
    NewGrantTerms,
    remembered,
    settle_by_grants,
    tool_candidate,
)
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.model.escalation import Approved, Escalation, OriginReason
from ironcurtain_proxy.model.grant import Grant, GrantId


class Claim(Struct, frozen=True, kw_only=True):
    """A call with its reasons, for which earlier approvals are sought."""

    call: EscalatedCall
    reasons: tuple[OriginReason, ...]
    """The reasons of the escalation."""
    run: GrantId | None = None
    """The composite's run that it is a step of."""


class Cover(Struct, frozen=True, kw_only=True):
    """The approvals that cover a call, and the remaining reasons."""

    open: tuple[OriginReason, ...]
    grants: tuple[Grant, ...]
    budget: Budget | None = None

    @property
    def run(self) -> GrantId | None:
        """The run whose budget covers the call."""
        return None if self.budget is None else self.budget.id


class Approvals(Struct, frozen=True):
    """The approvals of one session. No method waits; see the books."""

    grants: GrantBook
    budgets: BudgetBook

    def look(self, claim: Claim, now: datetime) -> Cover:
        """The approvals that a call would use now: grants first, then a budget."""
        left = settle_by_grants(claim.reasons, claim.call, self.grants, now)
        missing = frozenset([name for reason in left.open for name in reason.capabilities])
        tool = (claim.call.server, claim.call.tool)
        budget = self.budgets.find(tool, missing, now, claim.run) if missing else None
        if budget is None:
            return Cover(open=left.open, grants=left.grants)
        if not budget.opened.names(claim.call.opening):
            # INVARIANT: a plan opens no host or path that its question did not name.
            return Cover(open=claim.reasons, grants=())
        others = tuple([reason for reason in left.open if not reason.capabilities])
        return Cover(open=others, grants=left.grants, budget=budget)

    def use(self, claim: Claim, now: datetime) -> Cover:
        """Use the approvals of a call. If a reason remains, nothing is used."""
        cover = self.look(claim, now)
        if not cover.open:
            for grant in cover.grants:
                self.grants.note_use(grant.id, now)
            if cover.budget is not None:
                self.budgets.spend(cover.budget, (claim.call.server, claim.call.tool))
        return cover

    def remember(
        self, question: Escalation, approved: Approved, call: EscalatedCall, how: NewGrantTerms
    ) -> None:
        """Remember an approval for later calls."""
        for grant in remembered(question, approved, tool_candidate(call), how):
            self.grants.add(grant)
