"""The data for a report's plots, counted by the database, at the finest by minute."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, get_args

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.patterns import SAFE_BANDS, RiskBand
from ironcurtain_proxy.auto_confirm.store.interactions import OURS
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.auto_confirm.store.tables import DECISIONS, INTERACTIONS, REVIEWER_DECISIONS
from ironcurtain_proxy.report.stretches import begin_of_stretch, step_for

PromptOutcome: TypeAlias = Literal[
    "auto-approved", "approved", "rejected", "timed out", "not asked", "waiting"
]
"""The end of a prompt, in a report. `approved`, `rejected`: by a person or a reviewer. `not asked`:
refused without either, because none could be asked, or because the call was withdrawn."""

_TOP: Final = 8
RESPONSE_BOUNDS: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds; the last bar is for longer times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The counts of one period."""

    start: datetime
    decisions: Mapping[str, int]
    """Prompts by their end, each at the time of its last decision."""
    safe_approved: int
    safe_decided: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The data of all plots."""

    step: timedelta
    slots: Sequence[Slot]
    """The periods without gaps, oldest first; empty if nothing was decided."""
    bands: Mapping[str, Mapping[str, int]]
    """Prompts by risk band and end."""
    responses: Sequence[int]
    """The number of reviewers' answers up to each of `RESPONSE_BOUNDS`, and longer ones."""
    reasons: Sequence[tuple[str, int]]
    """The most frequent reasons of escalations and refusals: untrusted words."""


def collect(store: Store, since: datetime | None = None) -> Series:
    """Collect the data of a report's plots.

    Raises:
        StoreError: it cannot be read.
    """
    return store.read(lambda connection: _collect(connection, since))


@dataclass(frozen=True, slots=True)
class _Counted:
    minute: datetime
    band: str
    outcome: PromptOutcome
    count: int


def _collect(connection: Connection, since: datetime | None) -> Series:
    ours = OURS if since is None else OURS & (INTERACTIONS.c.created_at >= since)
    counted = list(_counted(connection, ours))
    step = step_for([one.minute for one in counted])
    return Series(
        step=step,
        slots=_slots(counted, step),
        bands=_bands(counted),
        responses=_responses(connection, ours),
        reasons=_reasons(connection, ours),
    )


def _counted(connection: Connection, where: "sa.ColumnElement[bool]") -> Iterable[_Counted]:
    minute = _minute(connection)
    automatic = DECISIONS.c.auto_decision
    columns = (minute, INTERACTIONS.c.risk_band, DECISIONS.c.decision, automatic)
    rows = connection.execute(
        sa.select(*columns, sa.func.count())
        .select_from(DECISIONS.join(INTERACTIONS))
        .where(where & DECISIONS.c.created_at.is_not(None) & _is_last())
        .group_by(*columns)
    )
    for text, band, decision, by_itself, count in rows:
        outcome = _outcome(decision, automatic=bool(by_itself))
        if outcome is not None:
            at = datetime.fromisoformat(text).replace(tzinfo=UTC)
            yield _Counted(at, band or "unknown", outcome, count)


def _is_last() -> "sa.ColumnElement[bool]":
    """Selects the last decision: a prompt that was passed on and refused has three."""
    other = DECISIONS.alias()
    last = sa.select(sa.func.max(other.c.id)).where(
        other.c.interaction_id == DECISIONS.c.interaction_id
    )
    return DECISIONS.c.id == last.correlate(DECISIONS).scalar_subquery()


def _minute(connection: Connection) -> "sa.ColumnElement[str]":
    """A decision's minute as text, in UTC; each database has its own function."""
    stored = DECISIONS.c.created_at
    if connection.dialect.name == "sqlite":
        return sa.func.substr(sa.cast(stored, sa.Text), 1, 16)
    return sa.func.to_char(stored, sa.literal_column("'YYYY-MM-DD HH24:MI'"))


def _outcome(decision: str, *, automatic: bool) -> PromptOutcome | None:
    match decision:
        case "approved":
            return "auto-approved" if automatic else "approved"
        case "rejected":
            return "not asked" if automatic else "rejected"
        case "timed_out":
            return "timed out"
        case "escalated":
            return "waiting"
        case _:
            return None


def _slots(counted: Sequence[_Counted], step: timedelta) -> tuple[Slot, ...]:
    if not counted:
        return ()
    by_start: dict[datetime, list[_Counted]] = {}
    for one in counted:
        by_start.setdefault(begin_of_stretch(one.minute, step), []).append(one)
    start, end = min(by_start), max(by_start)
    found = []
    while start <= end:
        found.append(_slot(start, by_start.get(start, [])))
        start += step
    return tuple(found)


def _slot(start: datetime, members: Sequence[_Counted]) -> Slot:
    decisions: Counter[str] = Counter()
    approved = decided = 0
    for one in members:
        decisions[one.outcome] += one.count
        if one.band in SAFE_BANDS:
            # A safe operation that went to a reviewer was not approved automatically.
            approved += one.count if one.outcome == "auto-approved" else 0
            decided += one.count
    return Slot(start=start, decisions=decisions, safe_approved=approved, safe_decided=decided)


def _bands(counted: Sequence[_Counted]) -> dict[str, Mapping[str, int]]:
    order = (*get_args(RiskBand), "unknown")
    found: dict[str, Counter[str]] = {}
    for one in counted:
        band = one.band if one.band in order else "unknown"
        found.setdefault(band, Counter())[one.outcome] += one.count
    return {band: found[band] for band in order if band in found}


def _responses(connection: Connection, where: "sa.ColumnElement[bool]") -> tuple[int, ...]:
    seconds = REVIEWER_DECISIONS.c.response_seconds
    place = sa.case(
        *((seconds < bound, index) for index, bound in enumerate(RESPONSE_BOUNDS)),
        else_=len(RESPONSE_BOUNDS),
    )
    rows = connection.execute(
        sa.select(place, sa.func.count())
        .select_from(REVIEWER_DECISIONS.join(INTERACTIONS))
        .where(where & seconds.is_not(None))
        .group_by(place)
    )
    counts = {int(index): int(count) for index, count in rows}
    return tuple(counts.get(index, 0) for index in range(len(RESPONSE_BOUNDS) + 1))


def _reasons(
    connection: Connection, where: "sa.ColumnElement[bool]"
) -> tuple[tuple[str, int], ...]:
    reason = sa.func.coalesce(DECISIONS.c.reason, "")
    rows = connection.execute(
        sa.select(reason, sa.func.count())
        .select_from(DECISIONS.join(INTERACTIONS))
        .where(where & (DECISIONS.c.decision != "approved") & (reason != ""))
        .group_by(reason)
        .order_by(sa.func.count().desc(), reason)
        .limit(_TOP)
    )
    return tuple((words, count) for words, count in rows)
