"""The route of a review: the reviewer, the urgency, and the fallback.

Targets are names of the configuration, which maps them to reviewers. INVARIANT: a session never
reviews its own calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject
from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths, Interaction
from ironcurtain_proxy.auto_confirm.engine.matrix import Row, may_review
from ironcurtain_proxy.auto_confirm.engine.risk import HIGH_AT_MOST, LOW_AT_MOST, MEDIUM_AT_MOST
from ironcurtain_proxy.auto_confirm.engine.sessions import Party
from ironcurtain_proxy.auto_confirm.engine.settings import HUMAN, AutoConfirmSettings

Priority: TypeAlias = Literal[8, 9, 10]
"""The urgency of a review; higher is more urgent."""

ARCHITECT_OPERATIONS: Final = frozenset({"delete", "git-force-push", "deploy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The target of a review, with its urgency."""

    target: str
    priority: Priority
    alert: bool = False
    """Whether all channels are notified."""


def route_of(
    interaction: Interaction,
    subject: CallSubject,
    risk: Hundredths,
    settings: AutoConfirmSettings,
) -> Route:
    """The reviewer that fits a call, before it is known who may review it."""
    targets = settings.escalation_targets
    if risk > HIGH_AT_MOST:
        return Route(target=targets.high_risk, priority=10, alert=True)
    operations = {touch.operation for touch in subject.touches}
    is_codex = interaction.session_type == "codex"
    if risk > MEDIUM_AT_MOST or is_codex or not operations.isdisjoint(ARCHITECT_OPERATIONS):
        return Route(target=targets.high_risk, priority=9)
    if interaction.provider_mismatch or interaction.unusual:
        return Route(target=targets.medium_risk, priority=8)
    if risk > LOW_AT_MOST and subject.understood and interaction.session_type != "unknown":
        return Route(target=targets.medium_risk, priority=8)
    return Route(target=targets.high_risk, priority=9)


def reviewer_chain(
    target: str,
    interaction: Interaction,
    rows: tuple[Row | None, ...],
    settings: AutoConfirmSettings,
) -> tuple[str, ...]:
    """The reviewers in order: the target, then the fallback, then a person. Never empty.

    The asking session, and sessions that may not review such a call, are left out. A name without
    a reviewer is kept: a person stands in for it.
    """
    if not settings.intelligent_escalation:
        return (HUMAN,)
    names = dict.fromkeys((target, settings.fallback_escalation))
    return tuple(_fitting(names, interaction, rows, settings)) or (HUMAN,)


def _fitting(
    names: dict[str, None],
    interaction: Interaction,
    rows: tuple[Row | None, ...],
    settings: AutoConfirmSettings,
) -> Iterator[str]:
    requester = interaction.requester
    for name in names:
        reviewer = settings.reviewer(name)
        if name == requester.session:
            continue
        if reviewer is not None and reviewer.kind == "process":
            party = Party(
                session=reviewer.session or reviewer.name, session_type=reviewer.session_type
            )
            if not all(may_review(party, row, requester) for row in rows):
                continue
        yield name
