"""Which of the things that ask are settled already, and what an approval settles for later. Pure.

Each origin is discharged by its own kind of grant: what the policy
escalated by a pattern, what the approval mode asks by "always allow" of the tool, what the profile
asks by the capability.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from ironcurtain_proxy.approval.overlay import asked_before
from ironcurtain_proxy.grants.book import GrantBook
from ironcurtain_proxy.grants.families import (
    CommandCandidates,
    is_never_general,
    single_families,
)
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.grants.whole_calls import is_never_remembered
from ironcurtain_proxy.model.capability import CAPABILITIES, Capability
from ironcurtain_proxy.model.escalation import Approved, Decider, Escalation, OriginReason
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    Pattern,
    ToolPattern,
)
from ironcurtain_proxy.model.question import visible


@dataclass(frozen=True, slots=True)
class Discharged:
    """What is left to ask, and the grants that settled the rest."""

    open: tuple[OriginReason, ...]
    grants: tuple[Grant, ...]


def discharge(
    reasons: Iterable[OriginReason],
    call: EscalatedCall,
    book: GrantBook,
    now: datetime,
) -> Discharged:
    """Take away what is settled already. Of several capabilities, those that are missing stay.

    Args:
        reasons: what asks.
        call: what is asked about.
        book: the grants of the session.
        now: aware, UTC.
    """
    if call.command is not None:
        covered = book.find_command(call, now)
        if covered is not None:
            return Discharged((), covered)
        if is_never_general(call):
            # INVARIANT: nothing that speaks of the whole tool speaks of a forced push.
            return Discharged(tuple(reasons), ())
    if is_never_remembered(call):
        # INVARIANT: what deletes unnamed things is asked about each time.
        return Discharged(tuple(reasons), ())
    whole = book.find_call(call, now)
    if whole is not None:
        return Discharged((), (whole,))
    still_open: list[OriginReason] = []
    used: dict[GrantId, Grant] = {}
    for reason in reasons:
        left, found = _settled(reason, call, book, now)
        still_open += left
        used.update({grant.id: grant for grant in found})
    return Discharged(tuple(still_open), tuple(used.values()))


def _settled(
    reason: OriginReason, call: EscalatedCall, book: GrantBook, now: datetime
) -> tuple[list[OriginReason], list[Grant]]:
    """What is left of a reason, and the grants that settle the rest of it."""
    match reason.origin:
        case "policy":
            grant = book.find(call, now)
        case "tool-policy":
            grant = book.find_tool(call, now)
        case "capability":
            found = {name: book.find_capability(name, now) for name in reason.capabilities}
            settled = [name for name, one in found.items() if one is not None]
            return _less(reason, settled), [one for one in found.values() if one is not None]
        case _:
            assert_never(reason.origin)
    return ([reason], []) if grant is None else ([], [grant])


def _less(reason: OriginReason, settled: Collection[Capability]) -> list[OriginReason]:
    """A profile's reason without the capabilities that are settled; empty if that was all.

    One that names none asks about a tool that nobody described: no capability settles that.
    """
    missing = tuple([name for name in reason.capabilities if name not in settled])
    if missing == reason.capabilities:
        return [reason]
    return [asked_before(reason.profile, missing)] if missing else []


def without(
    reasons: Iterable[OriginReason], approved: Sequence[OriginReason]
) -> tuple[OriginReason, ...]:
    """What asks and is not among what was approved of the same call; empty: all of it is."""
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
    """What "always allow" remembers of a tool; None: its definition is not known."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembering:
    """What grants are made of besides their pattern."""

    new_id: Callable[[], str]
    now: datetime
    """Aware, UTC."""
    ttl: timedelta | None = None
    """How long they hold; None: as long as the session."""


def remembered(
    question: Escalation, approved: Approved, tool: ToolPattern | None, how: Remembering
) -> tuple[Grant, ...]:
    """The grants that follow from an approval, each origin by its own rule.

    A capability is remembered when a person approved it; the rest only if that was asked for. What
    a model approved is approved once.

    Args:
        question: what was asked.
        approved: the answer.
        tool: what "always allow" would remember of the tool.
        how: ids, time and lifetime.
    """
    patterns: dict[Pattern, str] = {}
    chosen = question.chosen(approved.remember)
    if isinstance(chosen, FamilyPattern | CallPattern):
        why = question.ground.reason
        return _grants(dict.fromkeys(single_families(chosen), why), question, how)
    for reason in question.reasons:
        # Of a shell command every program would be remembered: that takes a word of the reviewer.
        said = question.command is None or chosen is not None
        if reason.origin == "capability" and said and _is_reviewer(approved.by):
            for name in reason.capabilities:
                patterns[capability_pattern(name)] = reason.ground.reason
        if reason.origin == "tool-policy" and chosen is not None and tool is not None:
            patterns[tool] = reason.ground.reason
    if chosen is not None:
        patterns.setdefault(chosen, question.ground.reason)
    return _grants(patterns, question, how)


def _grants(
    patterns: Mapping[Pattern, str], question: Escalation, how: Remembering
) -> tuple[Grant, ...]:
    """A grant for each pattern, with why it was asked about."""
    return tuple(
        [
            Grant(
                id=GrantId(how.new_id()),
                pattern=pattern,
                created=how.now,
                source=question.id,
                reason=why,
                expires=None if how.ttl is None else how.now + how.ttl,
            )
            for pattern, why in patterns.items()
        ]
    )


def _is_reviewer(decider: Decider) -> bool:
    return decider == "human" or decider.startswith("reviewer:")


def capability_pattern(name: Capability) -> CapabilityPattern:
    """What is remembered of a capability."""
    known = CAPABILITIES.get(name)
    words = visible(name) if known is None else f"{known} ({name})"
    return CapabilityPattern(capability=name, description=f"Let tools {words} in this session")


def offered(
    reasons: Sequence[OriginReason],
    patterns: Sequence[GrantPattern],
    tool: ToolPattern | None,
    command: CommandCandidates | None = None,
    whole: Sequence[CallPattern] = (),
) -> tuple[Pattern, ...]:
    """What a reviewer may choose to remember: what the policy asks first.

    Args:
        reasons: what asks.
        patterns: what may be remembered of the arguments.
        tool: what "always allow" would remember.
        command: what may be remembered of the shell command, if the call has one.
        whole: what may be remembered of a call that no pattern describes.
    """
    if whole:
        return tuple(whole)
    asked = {reason.origin for reason in reasons}
    if command is not None:
        general = tool is not None and command.is_general and asked == {"tool-policy"}
        return (*command.patterns, *([tool] if tool is not None and general else []))
    found: list[Pattern] = list(patterns) if "policy" in asked else []
    if tool is None or "tool-policy" not in asked:
        return tuple(found)
    if not found:
        return (tool,)
    # One answer settles both: what it remembers of the tool is said with it.
    return tuple(
        [
            replace(pattern, description=f"{pattern.description}; {tool.description}")
            for pattern in patterns
        ]
    )
