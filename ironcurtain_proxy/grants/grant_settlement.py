"""Which reasons of an escalation grants settle, and which grants an approval creates.

Each origin has its own kind of grant: a pattern for the policy, "always allow" of the tool for the
approval mode, and a capability for the profile.

Earlier approvals, grants and the budgets of plans, are looked up before the question, and used when
the call is forwarded: an approval that ends in between does not count, and a call that is not
forwarded uses nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.approval.overlay import asked_before
from ironcurtain_proxy.grants.book import Budget, BudgetBook, GrantBook, is_never_remembered
from ironcurtain_proxy.grants.families import (
    CommandCandidates,
    is_never_general,
    leaves,
    single_families,
)
from ironcurtain_proxy.grants.patterns import EscalatedCall, names_opening
from ironcurtain_proxy.model.annotation import CAPABILITIES, Capability
from ironcurtain_proxy.model.escalation import (
    FOR_PEOPLE,
    Approved,
    Escalation,
    OriginReason,
    visible,
)
from ironcurtain_proxy.model.grant import (
    NOTHING_OPENED,
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    Pattern,
    ToolPattern,
)


class SettledByGrants(Struct, frozen=True):
    """The remaining reasons, and the grants that settled the others."""

    open: tuple[OriginReason, ...]
    grants: tuple[Grant, ...]


def settle_by_grants(
    reasons: Iterable[OriginReason],
    call: EscalatedCall,
    book: GrantBook,
    now: datetime,
) -> SettledByGrants:
    """Remove the settled reasons. Of several capabilities, the missing ones remain.

    Args:
        reasons: the reasons of the escalation.
        call: the escalated call.
        book: the grants of the session.
        now: aware, UTC.
    """
    reasons = tuple(reasons)
    found = _settled_so_far(reasons, call, book, now)
    if not found.open and not names_opening(found.grants, call):
        # INVARIANT: no grant opens a host or a path that no question named.
        return SettledByGrants(reasons, ())
    return found


def _settled_so_far(
    reasons: tuple[OriginReason, ...], call: EscalatedCall, book: GrantBook, now: datetime
) -> SettledByGrants:
    """Return what grants settle, whatever the call needs beyond its sandbox."""
    if any(reason.origin in FOR_PEOPLE for reason in reasons):
        # INVARIANT: nobody who approved such calls before saw this secret, or this target.
        return SettledByGrants(reasons, ())
    if call.command is not None:
        covered = book.find_command(call, now)
        if covered is not None:
            return SettledByGrants((), covered)
        if is_never_general(call):
            # INVARIANT: a grant of a whole tool does not cover a forced push.
            return SettledByGrants(reasons, ())
    if is_never_remembered(call):
        # INVARIANT: a call that deletes unnamed things is asked about each time.
        return SettledByGrants(reasons, ())
    whole = book.find_call(call, now)
    if whole is not None:
        return SettledByGrants((), (whole,))
    still_open: list[OriginReason] = []
    used: dict[GrantId, Grant] = {}
    for reason in reasons:
        left, found = _settled(reason, call, book, now)
        still_open += left
        used.update({grant.id: grant for grant in found})
    return SettledByGrants(tuple(still_open), tuple(used.values()))


def _settled(
    reason: OriginReason, call: EscalatedCall, book: GrantBook, now: datetime
) -> tuple[list[OriginReason], list[Grant]]:
    """Return the rest of a reason, and the grants that settle the other parts."""
    match reason.origin:
        case "policy":
            grant = book.find(call, now)
        case "tool-policy":
            # INVARIANT: what a whole shell may do says nothing of where it may send.
            grant = None if leaves(call) else book.find_tool(call, now)
        case "capability":
            found = {
                name: book.find_capability(name, now, call.opening) for name in reason.capabilities
            }
            settled = [name for name, one in found.items() if one is not None]
            return _less(reason, settled), [one for one in found.values() if one is not None]
        case "secrets" | "target":
            grant = None
        case _:
            assert_never(reason.origin)
    return ([reason], []) if grant is None else ([], [grant])


def _less(reason: OriginReason, settled: Collection[Capability]) -> list[OriginReason]:
    """Return a profile's reason without the settled capabilities; empty if all are settled.

    A reason without capabilities is about a tool without annotation: no capability settles it.
    """
    missing = tuple([name for name in reason.capabilities if name not in settled])
    if missing == reason.capabilities:
        return [reason]
    return [asked_before(reason.profile, missing)] if missing else []


def reasons_left(
    reasons: Iterable[OriginReason], approved: Sequence[OriginReason]
) -> tuple[OriginReason, ...]:
    """Return the reasons of a call that are not approved, or empty if all are."""
    origins = {reason.origin for reason in approved if not reason.capabilities}
    names = {name for reason in approved for name in reason.capabilities}
    left: list[OriginReason] = []
    for reason in reasons:
        if reason.capabilities:
            left += _less(reason, names)
        elif reason.origin not in origins:
            left.append(reason)
    return tuple(left)


def tool_candidate(call: EscalatedCall) -> ToolPattern | None:
    """Return the pattern of "always allow" for a tool, or None if its definition is unknown."""
    if not call.definition:
        return None
    return ToolPattern(
        server=call.server,
        tool=call.tool,
        definition=call.definition,
        description=visible(
            f"Let {call.tool} run unasked where only the approval mode asks (server {call.server})"
        ),
    )


class NewGrantTerms(Struct, frozen=True, kw_only=True):
    """The values of new grants besides their patterns."""

    new_id: Callable[[], str]
    now: datetime
    """Aware, UTC."""
    ttl: timedelta | None = None
    """The lifetime of the grants, or None if it is the session's."""


def remembered(
    question: Escalation, approved: Approved, tool: ToolPattern | None, how: NewGrantTerms
) -> tuple[Grant, ...]:
    """Return the grants that follow from an approval, each origin by its own rule.

    A capability is remembered when a person approved it; other patterns only if the answer says so.
    An approval of a model holds once.

    Args:
        question: the question.
        approved: the answer.
        tool: the pattern of "always allow".
        how: ids, time and lifetime.
    """
    patterns: dict[Pattern, str] = {}
    chosen = question.chosen(approved.remember)
    if isinstance(chosen, FamilyPattern | CallPattern):
        why = question.ground.reason
        return _grants(dict.fromkeys(single_families(chosen), why), question, how)
    for reason in question.reasons:
        # For a shell this would cover every program.
        of_tool = question.command is None
        if reason.origin == "capability" and of_tool and not approved.by.is_automatic:
            for name in reason.capabilities:
                patterns[capability_pattern(name)] = reason.ground.reason
        if reason.origin == "tool-policy" and chosen is not None and tool is not None:
            patterns[tool] = reason.ground.reason
    if chosen is not None:
        of_tools = chosen.parts if isinstance(chosen, GrantPattern) else ()
        patterns |= dict.fromkeys(of_tools or (chosen,), question.ground.reason)
    return _grants(patterns, question, how)


def _grants(
    patterns: Mapping[Pattern, str], question: Escalation, how: NewGrantTerms
) -> tuple[Grant, ...]:
    """Return a grant for each pattern, with the reason of the question."""
    listed = [
        Grant(
            id=GrantId(how.new_id()),
            pattern=pattern,
            created=how.now,
            source=question.id,
            reason=why,
            expires=None if how.ttl is None else how.now + how.ttl,
            opened=question.opening or NOTHING_OPENED,
        )
        for pattern, why in patterns.items()
    ]
    return tuple(listed)


def capability_pattern(name: Capability) -> CapabilityPattern:
    """Return the pattern of a capability."""
    known = CAPABILITIES.get(name)
    words = visible(name) if known is None else f"{known} ({name})"
    return CapabilityPattern(capability=name, description=f"Let tools {words} in this session")


def offered(
    reasons: Sequence[OriginReason],
    patterns: Sequence[GrantPattern],
    tool: ToolPattern | None,
    command: CommandCandidates | None = None,
    whole: Sequence[CallPattern] = (),
    every: CallPattern | None = None,
) -> tuple[Pattern, ...]:
    """Return the candidates for a reviewer, those for the policy's reasons first.

    Args:
        reasons: the reasons of the escalation.
        patterns: candidates for the arguments.
        tool: the pattern of "always allow".
        command: candidates for the shell command, if the call has one.
        whole: candidates for a call that no pattern describes.
        every: the candidate for every call of the tool, which comes last.
    """
    if whole:
        return tuple(whole)
    asked = {reason.origin for reason in reasons}
    if command is not None:
        general = tool is not None and command.is_general and asked == {"tool-policy"}
        return (*command.patterns, *([tool] if tool is not None and general else []))
    last = (every,) if every is not None and "policy" in asked else ()
    return (*_by_arguments(asked, patterns, tool), *last)


def _by_arguments(
    asked: Collection[str], patterns: Sequence[GrantPattern], tool: ToolPattern | None
) -> tuple[Pattern, ...]:
    found: list[Pattern] = list(patterns) if "policy" in asked else []
    if tool is None or "tool-policy" not in asked:
        return tuple(found)
    if not found:
        return (tool,)
    # One answer settles both, so the text also names the tool's pattern.
    listed = [
        replace(pattern, description=f"{pattern.description}; {tool.description}")
        for pattern in patterns
    ]
    return tuple(listed)


# --- claims


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
        """Return the approvals that a call would use now: grants first, then a budget."""
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
