"""Settlements of escalations, in the words of the audit record.

The words are those of the original program where it has them, so that tools which read its log
can read this one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from ironcurtain_proxy.model.audit import OwnField
from ironcurtain_proxy.model.case import Settlement
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import (
    BY_MODEL,
    CONTAINMENT,
    HUMAN,
    Approved,
    Decider,
    Declined,
    EscalationId,
)
from ironcurtain_proxy.model.grant import CallPattern, FamilyPattern, Grant, GrantId, GrantPattern
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.reply import RefusedBy

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
        decided_by=f"grant:{'+'.join(ids)}",
        result="approved",
        extra=tuple(extra),
        names_hosts=run is None
        and all(isinstance(grant.pattern, FamilyPattern | CallPattern) for grant in grants),
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
    """Settled by a reviewer's approval; an approver that is no person is marked in the record."""
    details = (
        _escalation(approved.question or question),
        *_words(approved.note),
        *approved.details,
    )
    if is_by_itself(approved.by):
        return Settlement(
            effect="allow",
            reason=f"Auto-approved: {approved.reasoning}",
            decided_by=approved.by,
            result="approved",
            extra=(("autoApproved", True), *details),
        )
    why: tuple[tuple[str, Json], ...] = ()
    if approved.reasoning and approved.reasoning != approved.note:
        why = (("reasoning", approved.reasoning),)
    return Settlement(
        effect="allow",
        reason=f"Approved by {_whom(decider_of(approved))} during escalation",
        decided_by=approved.by,
        result="approved",
        extra=(*details, *why),
        names_hosts=True,
    )


def is_by_itself(by: Decider) -> bool:
    """Whether the engine or the LLM approver approved the question without any person."""
    return by == "auto-approver" or by.startswith("engine:")


def by_refusal(declined: Declined, question: EscalationId) -> Settlement:
    """Settled by a refusal, or by the lack of a valid answer in time."""
    words = DECLINED[declined.kind]
    if declined.kind == "denied":
        words = words.replace(HUMAN, _whom(decider_of(declined)))
    reason = f"{words}: {declined.reason}" if declined.reason else words
    return Settlement(
        effect="deny",
        reason=reason,
        decided_by=declined.by,
        result="denied",
        extra=(
            _escalation(declined.question or question),
            *_words(declined.note),
            *declined.details,
        ),
    )


def decider_of(ruling: Approved | Declined) -> Decider:
    """The name of the decider; a reviewer that is a language model is `model:NAME`."""
    reviewer = ruling.by.removeprefix(_REVIEWER)
    is_model = reviewer != ruling.by and BY_MODEL in ruling.details
    return f"{_MODEL}{reviewer}" if is_model else ruling.by


_REVIEWER: Final = "reviewer:"
_MODEL: Final = "model:"
_OURS: Final[Mapping[Decider, str]] = MappingProxyType({"kernel": "the proxy", "timeout": "nobody"})


def _whom(by: Decider) -> str:
    """`human` for a person, in the original's word; otherwise the decider's name."""
    for prefix in (_REVIEWER, _MODEL):
        if by.startswith(prefix):
            return f'{prefix.removesuffix(":")} "{by.removeprefix(prefix)}"'
    return _OURS.get(by, by)


def refused_by(declined: Declined) -> RefusedBy:
    """The party that refused the call, for the reply to the agent."""
    match declined.kind:
        case "expired":
            return "expired"
        case "limit":
            return "limit"
        case "denied" | "invalid" | "withdrawn":
            return "declined"
        case _:
            assert_never(declined.kind)


def held(ground: Ground, question: EscalationId) -> Settlement:
    """The outcome of a call that is held: not settled, and the agent may repeat the call."""
    return Settlement(
        effect="escalate",
        reason=ground.reason,
        decided_by="kernel",
        result=None,
        extra=(_escalation(question),),
    )


def _words(note: str) -> tuple[tuple[str, Json], ...]:
    """The reviewer's message to the agent."""
    return (("note", note),) if note else ()


def _escalation(question: EscalationId) -> tuple[str, Json]:
    """The record field with the escalation's id."""
    return OwnField("escalationId", question)
