"""The part of a report that is about the auto-confirm engine, and its figures over time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, assert_never, get_args

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.interaction import SAFE_BANDS, RiskBand
from ironcurtain_proxy.auto_confirm.store.interactions import OURS
from ironcurtain_proxy.auto_confirm.store.metrics import (
    FIGURES,
    RESPONSE_TARGET_SECONDS,
    SAFE_TARGET,
    Distribution,
    Metrics,
    Ratio,
)
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.auto_confirm.store.tables import DECISIONS, INTERACTIONS, REVIEWER_DECISIONS
from ironcurtain_proxy.model.decision import (
    ClientDialog,
    Contained,
    Engine,
    Grants,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    Signers,
    of_record,
)
from ironcurtain_proxy.report import plots
from ironcurtain_proxy.report.plots import (
    NOTHING,
    UNKNOWN,
    ReportPart,
    ReportSection,
    Tile,
    begin_of_stretch,
    percent,
    step_for,
    table,
)

# --- figures over time ----------------------------------------------------------------------------
# The data for a report's plots, counted by the database, at the finest by minute.


PromptOutcome: TypeAlias = Literal[
    "auto-approved", "approved", "rejected", "timed out", "not asked", "waiting"
]
"""The end of a prompt, in a report. `approved`, `rejected`: by a person or a reviewer. `not asked`:
refused without either, because none could be asked, or because the call was withdrawn."""

_TOP: Final = 8
RESPONSE_BOUNDS: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds; the last bar is for longer times."""


class Slot(Struct, frozen=True, kw_only=True):
    """The counts of one period."""

    start: datetime
    decisions: Mapping[str, int]
    """Prompts by their end, each at the time of its last decision."""
    safe_approved: int
    safe_decided: int


class Series(Struct, frozen=True, kw_only=True):
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


class _Counted(Struct, frozen=True):
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
        reasons=_counted_reasons(connection, ours),
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
    """Select the last decision: a prompt that was passed on and refused has three."""
    other = DECISIONS.alias()
    last = sa.select(sa.func.max(other.c.id)).where(
        other.c.interaction_id == DECISIONS.c.interaction_id
    )
    return DECISIONS.c.id == last.correlate(DECISIONS).scalar_subquery()


def _minute(connection: Connection) -> "sa.ColumnElement[str]":
    """Return a decision's minute as text, in UTC; each database has its own function."""
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


def _counted_reasons(
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


_PALETTE: Final[plots.Palette] = {
    "auto-approved": "c1",
    "approved": "c2",
    "waiting": "c3",
    "rejected": "c4",
    "timed out": "c5",
    "not asked": "c6",
}


def engine_part(metrics: Metrics, series: Series) -> ReportPart:
    """Return the engine's part of a report. Times are UTC."""
    return ReportPart(
        "auto-confirm engine",
        f"{metrics.interactions} permission prompts as of {metrics.at:%Y-%m-%d %H:%M} UTC"
        f"{_missing(metrics)}. "
        "The audit log is the record; this is drawn from its index.",
        list(_tiles(metrics)),
        list(_sections(series)),
    )


def _missing(metrics: Metrics) -> str:
    if not metrics.missing:
        return ""
    return f"; {metrics.missing} more were asked while the store failed and are missing"


def _tiles(metrics: Metrics) -> Iterator[Tile]:
    """Yield the figures that have a target; how many are missing stands above them."""
    for figure in FIGURES:
        value, told = figure.value(metrics), figure.target
        match value:
            case _ if not told or figure.field == "missing":
                continue
            case Ratio():
                shown = UNKNOWN if value.value is None else percent(value.value)
                told += f"; {value.part} of {value.whole} {value.of}"
            case Distribution():
                shown = value.shown(figure.unit)
            case int():
                shown = str(value)
            case _:
                assert_never(value)
        yield Tile(figure.title.capitalize(), shown, told, figure.met(metrics))


def _sections(series: Series) -> Iterator[ReportSection]:
    slots, step = series.slots, series.step
    title = "Prompts over time, by what became of them"
    bars = [plots.Bar(slot.start, slot.decisions) for slot in slots]
    inside = plots.stacked_over_time(bars, step, title, _PALETTE) if bars else NOTHING
    yield ReportSection(title, inside + plots.legend([bar.counts for bar in bars], _PALETTE))
    title = "Safe operations approved without a reviewer"
    rates = [plots.Rate(slot.start, slot.safe_approved, slot.safe_decided) for slot in slots]
    judged = any(rate.whole for rate in rates)
    yield ReportSection(
        title, plots.rate_over_time(rates, step, SAFE_TARGET, title) if judged else NOTHING
    )
    title = "Prompts by risk band, and what became of them"
    legend = plots.legend(list(series.bands.values()), _PALETTE)
    rows = plots.stacked_rows(series.bands, title, _PALETTE) + legend if legend else NOTHING
    yield ReportSection(title, rows)
    title = "Reviewers' response times"
    late = RESPONSE_BOUNDS.index(RESPONSE_TARGET_SECONDS) + 1
    answered = any(series.responses)
    times = plots.histogram(series.responses, _response_labels(), late, title)
    yield ReportSection(title, times if answered else NOTHING)
    yield ReportSection(
        "Most frequent reasons not to approve", _reasons(series.reasons), is_wide=True
    )


def _response_labels() -> list[str]:
    bounds = [f"{b:g} s" if b < 60 else f"{b / 60:g} min" for b in RESPONSE_BOUNDS]  # noqa: PLR2004  a minute
    return [f"< {bound}" for bound in bounds] + [f"≥ {bounds[-1]}"]


def _reasons(reasons: Sequence[tuple[str, int]]) -> str:
    return table(
        ("Reason", "Decisions"), [(_in_words(reason), str(count)) for reason, count in reasons]
    )


def _in_words(reason: str) -> str:
    """Return a sentence for a reason that only names who decided."""
    decider = of_record(reason)
    match decider:
        case Person():
            return "refused by a person"
        case Program(name=name) if " " not in name:
            return f"refused by {name}"
        case Nobody():
            return "no answer in time"
        case (
            Program()
            | Signers()
            | LlmApprover()
            | Engine()
            | Grants()
            | Contained()
            | ClientDialog()
            | ProxyItself()
            | None
        ):
            return reason
        case _:
            assert_never(decider)
