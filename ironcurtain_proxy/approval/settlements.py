"""Settlements of escalations, in the words of the audit record.

The words are those of the original program where it has them, so that tools which read its log
can read this one.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from msgspec.structs import replace

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.case import Settlement
from ironcurtain_proxy.model.decision import (
    CONTAINMENT,
    KERNEL,
    ClientDialog,
    Contained,
    Decider,
    Engine,
    Grants,
    Ground,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    Signers,
    in_record,
)
from ironcurtain_proxy.model.escalation import Approved, Declined, EscalationId, Ruling, Unreachable
from ironcurtain_proxy.model.grant import Grant, GrantId, GrantPattern
from ironcurtain_proxy.model.reply import OwnField, RefusedBy
from ironcurtain_proxy.model.values import Json

EscalationState: TypeAlias = Literal["open", "approved", "used", "lapsed", "refused", "withdrawn"]
"""The state of a question."""

TRANSITIONS: Final[Mapping[EscalationState, frozenset[EscalationState]]] = MappingProxyType(
    {
        "open": frozenset({"approved", "refused", "withdrawn"}),
        "approved": frozenset({"used", "lapsed"}),
        "used": frozenset(),
        "lapsed": frozenset(),
        "refused": frozenset(),
        "withdrawn": frozenset(),
    }
)
"""The states that may follow a state. An approval is used once: no state leads back to `approved`.
"""


def advance(state: EscalationState, following: EscalationState) -> EscalationState:
    """Return the next state, checked against the table.

    Raises:
        KernelError: it may not follow.
    """
    if following not in TRANSITIONS[state]:
        raise KernelError(f"an escalation that is {state} cannot become {following}")
    return following


def state_after(ruling: Ruling) -> EscalationState:
    """Return the state of an open question after its ruling."""
    match ruling:
        case Approved():
            return "approved"
        case Declined(kind="withdrawn"):
            return "withdrawn"
        case Declined() | Unreachable():
            return "refused"


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
LEFT_TO_CLIENT: Final = "Left to the client's user: "
"""The beginning of the reason where the client's own dialog asks."""


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
        decided_by=Grants(tuple(ids)),
        result="approved",
        extra=tuple(extra),
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
    """Return the settlement by an approval; one that no person gave is marked in the record."""
    by = approved.by
    marked: tuple[tuple[str, Json], ...] = (("autoApproved", True),) if by.is_automatic else ()
    told = (
        *marked,
        _escalation(approved.question or question),
        *_words(approved.note),
        *_kind(by),
        *approved.details,
    )
    if by.sight != "question":
        word = LEFT_TO_CLIENT if isinstance(by, ClientDialog) else "Auto-approved: "
        reason = f"{word}{approved.reasoning}"
    else:
        reason = f"Approved by {_whom(by)} during escalation"
        if approved.reasoning and approved.reasoning != approved.note:
            told = (*told, ("reasoning", approved.reasoning))
    return Settlement(effect="allow", reason=reason, decided_by=by, result="approved", extra=told)


def by_refusal(declined: Declined, question: EscalationId) -> Settlement:
    """Settled by a refusal, or by the lack of a valid answer in time."""
    words = DECLINED[declined.kind]
    if declined.kind == "denied":
        words = words.replace("human", _whom(declined.by))
    reason = f"{words}: {declined.reason}" if declined.reason else words
    return Settlement(
        effect="deny",
        reason=reason,
        decided_by=declined.by,
        result="denied",
        extra=(
            _escalation(declined.question or question),
            *_words(declined.note),
            *_kind(declined.by),
            *declined.details,
        ),
    )


def _kind(decider: Decider) -> tuple[tuple[str, Json], ...]:
    """Return the record field with the kind of a reviewer that is a program."""
    if isinstance(decider, Program) and decider.kind != "named":
        return (("reviewerKind", decider.kind),)
    return ()


def _whom(by: Decider) -> str:
    """Return `human` for a person, in the original's word; otherwise the decider's name."""
    match by:
        case Person():
            return "human"
        case Program(name=name, kind="model"):
            return f'model "{name}"'
        case Program(name=name):
            return f'reviewer "{name}"'
        case ProxyItself():
            return "the proxy"
        case Nobody():
            return "nobody"
        case Signers() | LlmApprover() | Engine() | Grants() | Contained() | ClientDialog():
            return in_record(by)
        case _:
            assert_never(by)


def refused_by(declined: Declined) -> RefusedBy:
    """Return the party that refused the call, for the reply to the agent."""
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
    """Return the outcome of a call that is held: not settled, and the agent may repeat the call."""
    return Settlement(
        effect="escalate",
        reason=ground.reason,
        decided_by=KERNEL,
        result=None,
        extra=(_escalation(question),),
    )


def _words(note: str) -> tuple[tuple[str, Json], ...]:
    """Return the reviewer's message to the agent."""
    return (("note", note),) if note else ()


def _escalation(question: EscalationId) -> tuple[str, Json]:
    """Return the record field with the escalation's id."""
    return OwnField("escalationId", question)
