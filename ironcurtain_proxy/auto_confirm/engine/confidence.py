"""The confidence that a person would approve a call.

Hundredths, each factor by name. It counts only for calls of low or medium risk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject
from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths, Interaction, Knowledge
from ironcurtain_proxy.auto_confirm.engine.risk import (
    MEDIUM_AT_MOST,
    Factor,
    Risk,
    lies_in_safe_paths,
)

_BASE: Final = 50
_SIMILAR_ENOUGH: Final = 70
_USUALLY_APPROVED: Final = 90


@dataclass(frozen=True, slots=True)
class Confidence:
    """A confidence with its reasons; they add up to it."""

    hundredths: Hundredths
    factors: tuple[Factor, ...]


def confidence_of(
    interaction: Interaction, subject: CallSubject, risk: Risk, knowledge: Knowledge
) -> Confidence:
    """The confidence in approving a call, 0 to 100."""
    factors = [("base", _BASE), *_reasons(interaction, subject, risk, knowledge)]
    total = sum(contribution for _, contribution in factors)
    clamped = max(0, min(100, total))
    if clamped != total:
        factors.append(("from 0 to 1", clamped - total))
    return Confidence(clamped, tuple(factors))


def _reasons(
    interaction: Interaction, subject: CallSubject, risk: Risk, knowledge: Knowledge
) -> Iterator[Factor]:
    if subject.single and any(
        pattern.knows(subject.operation, subject.scopes, interaction.session_type)
        for pattern in knowledge.patterns
    ):
        yield "known pattern", 20
    rate = knowledge.approve_rates.get((subject.operation, subject.scope))
    if (
        rate is not None
        and rate.exceeds(_USUALLY_APPROVED)
        # Learned patterns never count for high risk, or for calls that are not understood.
        and risk.hundredths <= MEDIUM_AT_MOST
        and subject.understood
    ):
        yield "usually approved", 20
    if lies_in_safe_paths(interaction, subject, knowledge):
        yield "in a safe path", 15
    if knowledge.context_similarity < _SIMILAR_ENOUGH:
        yield "unlike earlier work", -15
    if knowledge.health in {"stuck", "failing"}:
        yield "session slow or stuck", -20
