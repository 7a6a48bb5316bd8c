"""The risk of a call, and the confidence in it, in hundredths, each factor by name.

The matrix row gives the base, to which the touched things and the session's health add. Integers
keep the borders between bands exact.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject
from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths, Interaction, Knowledge
from ironcurtain_proxy.auto_confirm.engine.matrix import Row, RowLevel
from ironcurtain_proxy.auto_confirm.engine.patterns import RiskBand

Factor: TypeAlias = tuple[str, Hundredths]
"""A name and what it contributes; the contributions add up to the risk."""

LOW_AT_MOST: Final = 40
MEDIUM_AT_MOST: Final = 70
HIGH_AT_MOST: Final = 90
_LOW_AT_LEAST: Final = 20

BASES: Final[Mapping[RowLevel, Hundredths]] = MappingProxyType(
    {"LOW": 30, "MED": 55, "HIGH": 80, "CRITICAL": 95}
)
NO_ROW: Final = 50

_ONE_BAND_UP: Final[Mapping[RiskBand, Hundredths]] = MappingProxyType(
    {
        "SAFE": LOW_AT_MOST,
        "LOW": MEDIUM_AT_MOST,
        "MEDIUM": HIGH_AT_MOST,
        "HIGH": 100,
        "CRITICAL": 100,
    }
)
_SAFE_READ: Final = -15
_FAILURE: Final = 5
_FAILURES_AT_MOST: Final = 10


@dataclass(frozen=True, slots=True)
class Risk:
    """A risk with its reasons."""

    hundredths: Hundredths
    factors: tuple[Factor, ...]

    @property
    def band(self) -> RiskBand:
        """The band it lies in."""
        return band_of(self.hundredths)


def band_of(hundredths: Hundredths) -> RiskBand:
    """Return the band of a risk from 0 to 100."""
    if hundredths < _LOW_AT_LEAST:
        return "SAFE"
    if hundredths <= LOW_AT_MOST:
        return "LOW"
    if hundredths <= MEDIUM_AT_MOST:
        return "MEDIUM"
    return "HIGH" if hundredths <= HIGH_AT_MOST else "CRITICAL"


def risk_of(
    interaction: Interaction,
    subject: CallSubject,
    rows: tuple[Row | None, ...],
    knowledge: Knowledge,
) -> Risk:
    """Return the risk of a call: its worst row plus its factors, at most one band higher."""
    name, base = base_of(rows)
    factors = [(f"base: {name}", base), *_additions(interaction, subject, knowledge)]
    if _is_safe_read(interaction, subject, knowledge):
        factors.append(("read in a safe path", _SAFE_READ))
    total = sum(contribution for _, contribution in factors)
    capped = max(0, min(total, _ONE_BAND_UP[band_of(base)]))
    if capped != total:
        factors.append(("at most one band up", capped - total))
    return Risk(capped, tuple(factors))


def base_of(rows: tuple[Row | None, ...]) -> Factor:
    """Return the highest base of the rows that a call falls under, with the row's name."""
    worst = ("no row", 0)
    for row in rows:
        found = ("no row", NO_ROW) if row is None else (row.name, BASES[row.level])
        worst = max(worst, found, key=lambda factor: factor[1])
    return worst if rows else ("no row", NO_ROW)


def _additions(
    interaction: Interaction, subject: CallSubject, knowledge: Knowledge
) -> Iterator[Factor]:
    holds = (
        ("production target", 10, subject.production),
        ("destructive word", 10, subject.destructive),
        ("outside the workspace", 10, _is_outside(interaction, subject)),
        ("external host", 5, subject.external),
        ("database", 5, subject.database),
        ("session failing or unknown", 5, knowledge.health in {"failing", "unknown"}),
    )
    yield from ((name, hundredths) for name, hundredths, is_so in holds if is_so)
    failures = min(_FAILURES_AT_MOST, _FAILURE * max(0, knowledge.earlier_failures))
    if failures:
        yield "earlier failures", failures


def _is_outside(interaction: Interaction, subject: CallSubject) -> bool:
    return any(not interaction.places.in_workspace(path) for path in subject.paths)


def _is_safe_read(interaction: Interaction, subject: CallSubject, knowledge: Knowledge) -> bool:
    """Return whether a call only reads in safe paths, or can only read by its annotation."""
    operations = {touch.operation for touch in subject.touches}
    reads = operations <= {"read", "list"}
    may_only_read = subject.only_reads and operations <= {"read", "list", "unknown"}
    places = interaction.places
    return (
        (reads or may_only_read)
        and all(places.is_public(path) for path in subject.paths)
        and lies_in_safe_paths(interaction, subject, knowledge)
    )


def lies_in_safe_paths(
    interaction: Interaction, subject: CallSubject, knowledge: Knowledge
) -> bool:
    """Return whether a call names only paths, and each lies in a safe path for what is done.

    INVARIANT: a harmless path beside a URL or a command says nothing for the call.
    """
    places = interaction.places
    return subject.only_paths and all(
        any(safe.contains(path, subject.operation, places) for safe in knowledge.safe_paths)
        for path in subject.paths
    )


# --- confidence -----------------------------------------------------------------------------------
# The confidence that a person would approve a call.
#
# Hundredths, each factor by name. It counts only for calls of low or medium risk.


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
    """Return the confidence in approving a call, 0 to 100."""
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
