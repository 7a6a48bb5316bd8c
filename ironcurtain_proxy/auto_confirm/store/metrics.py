"""The engine's success metrics, computed from the store, and written for Prometheus.

INVARIANT: an approval is counted from a decision `approved` in the trail, and from nothing else. A
call counts as sent to a reviewer if one saw the question, or is being asked; being held is not
enough.
"""

import math
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias, assert_never

import sqlalchemy as sa
from msgspec import Struct, convert, field
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.interaction import HIGH_BANDS, SAFE_BANDS
from ironcurtain_proxy.auto_confirm.store.interactions import OPEN, OURS
from ironcurtain_proxy.auto_confirm.store.rows import ABANDONED_BY, HUMAN, WITHDRAWN_BY
from ironcurtain_proxy.auto_confirm.store.store import Store, is_stuck
from ironcurtain_proxy.auto_confirm.store.tables import (
    DECISIONS,
    HISTORY,
    INTERACTIONS,
    REVIEWER_DECISIONS,
    TASKS,
)
from ironcurtain_proxy.model.decision import in_record, of_record
from ironcurtain_proxy.model.values import Json, WithNotes

LATENCY_TARGET_MS: Final = 100.0
RESPONSE_TARGET_SECONDS: Final = 300.0
SAFE_TARGET: Final = 0.95


class Ratio(WithNotes, frozen=True):
    """A part of a whole."""

    notes: ClassVar[frozenset[str]] = frozenset({"of"})

    part: int
    whole: int
    of: str = "interactions"
    """The denominator, in words."""

    @property
    def value(self) -> float | None:
        """The share from 0 to 1, or None if the whole is empty."""
        return self.part / self.whole if self.whole else None

    def as_json(self) -> dict[str, Json]:
        """Return the share as JSON."""
        return {"count": self.part, "of": self.whole, "rate": self.value}

    def shown(self) -> str:
        """Return the share for people, rounded down: 99.96% is not shown as reached."""
        told = f"{self.part} of {self.whole}"
        if self.value is not None:
            told += f" ({int(self.value * 1000 + 1e-9) / 10:.1f}%)"
        return f"{told} {self.of}"


class Distribution(Struct, frozen=True, kw_only=True):
    """The distribution of a quantity. Percentiles by nearest rank. `None` means no values."""

    count: int = 0
    p50: float | None = None
    p99: float | None = None
    within_target: int = 0
    """The number below the target."""

    def as_json(self) -> dict[str, Json]:
        """Return the distribution as JSON."""
        points = {"p50": self.p50, "p99": self.p99}
        return {"count": self.count, **points, "withinTarget": self.within_target}

    def shown(self, unit: str) -> str:
        """Return the percentiles for people."""
        if self.p50 is None or self.p99 is None:
            return "n/a"
        return f"{self.p50:.3g} / {self.p99:.3g} {unit} of {self.count}"


class Metrics(Struct, frozen=True, kw_only=True):
    """All metrics at one moment."""

    at: datetime
    interactions: int
    """The number in the store."""
    missing: int
    """Questions of sessions of this machine that have no row: asked while the store failed, and
    their session ended before it was back, or still waits for it."""
    safe_auto_approved: Ratio
    """The share of SAFE and LOW operations that no person or reviewer approved."""
    decision_ms: Distribution
    """Milliseconds of kernel, overlay and engine; not of models and reviewers."""
    manual_interventions: int
    """Decisions that a person had to make."""
    high_risk_escalated: Ratio
    """The share of HIGH and CRITICAL operations that a reviewer was asked about."""
    unasked: Ratio
    """The share of the held calls that were refused before any reviewer saw the question: none
    could be reached, or too many calls of the session waited."""
    answered: Ratio
    """The share of the calls that reviewers were asked about, and that ended otherwise than by
    being withdrawn, that a reviewer decided."""
    response_seconds: Distribution
    """Seconds from holding a call to a reviewer's decision."""
    stuck_sessions: int
    """Sessions with a call whose decision is overdue."""
    audited: Ratio
    """The share of all interactions, with the missing ones, whose trail is complete: one that ended
    has its end there, one that waits the reason for it."""
    auto_approved: Ratio
    """The share of all interactions that were approved without a person or reviewer."""
    escalated: Ratio
    """The share of all interactions that a reviewer was asked about."""
    passed_on: int
    """The number of times that a question that reviewers saw went on to the next of them."""
    decisions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Decisions by word and by who decided: `engine`, `auto-approver`, `reviewer`, `human`, …"""
    statuses: Mapping[str, int] = field(default_factory=dict)
    bands: Mapping[str, int] = field(default_factory=dict)


def compute(
    store: Store, now: datetime, since: datetime | None = None, unwritten: Collection[str] = ()
) -> Metrics:
    """Compute all metrics from one state of the store.

    Args:
        store: the store.
        now: the current time; aware.
        since: only interactions from then on, or None for all.
        unwritten: the questions that may have no row; see `session_files.unwritten_questions`.

    Raises:
        StoreError: it cannot be read.
    """
    return store.read(lambda connection: _compute(connection, now, since, unwritten))


def _compute(
    connection: Connection, now: datetime, since: datetime | None, unwritten: Collection[str]
) -> Metrics:
    ours = OURS if since is None else OURS & (INTERACTIONS.c.created_at >= since)
    word = DECISIONS.c.decision
    approved = _has(DECISIONS, word == "approved", DECISIONS.c.auto_decision.is_(True))
    held = _has(DECISIONS, word == "escalated") | _has(TASKS)
    unasked = _has(TASKS, TASKS.c.status == "unasked")
    escalated = held & ~unasked
    ended = INTERACTIONS.c.status.not_in(OPEN)
    # The agent or the proxy was gone before an answer could come.
    withdrawn = INTERACTIONS.c.decided_by.in_((in_record(WITHDRAWN_BY), ABANDONED_BY))
    complete = _has(DECISIONS, word.in_(_FINAL)) | (~ended & _has(DECISIONS))
    safe = ours & INTERACTIONS.c.risk_band.in_(SAFE_BANDS)
    high = ours & INTERACTIONS.c.risk_band.in_(HIGH_BANDS)
    human = DECISIONS.c.decided_by == HUMAN
    decided = word.in_(("approved", "rejected"))
    stored, written = _count(connection, ours), _ratio(connection, ours, complete)
    missing = _missing(connection, unwritten)
    return Metrics(
        at=now,
        interactions=stored,
        missing=missing,
        safe_auto_approved=_ratio(connection, safe, approved, "SAFE and LOW"),
        decision_ms=_distribution(
            connection, INTERACTIONS.c.decision_ms, INTERACTIONS, ours, LATENCY_TARGET_MS
        ),
        manual_interventions=_count(
            connection, ours & human & decided, DECISIONS.join(INTERACTIONS)
        ),
        high_risk_escalated=_ratio(connection, high, escalated, "HIGH and CRITICAL"),
        unasked=_ratio(
            connection,
            ours & held & ended,
            unasked & (INTERACTIONS.c.status == "rejected"),
            "held calls that ended",
        ),
        answered=_ratio(
            connection,
            ours & escalated & ended & ~withdrawn,
            _has(REVIEWER_DECISIONS),
            "asked",
        ),
        response_seconds=_distribution(
            connection,
            REVIEWER_DECISIONS.c.response_seconds,
            REVIEWER_DECISIONS.join(INTERACTIONS),
            ours,
            RESPONSE_TARGET_SECONDS,
        ),
        stuck_sessions=connection.execute(
            sa.select(sa.func.count(INTERACTIONS.c.session_name.distinct())).where(
                ours & is_stuck(now)
            )
        ).scalar_one(),
        audited=Ratio(written.part, stored + missing, "interactions and missing ones"),
        auto_approved=_ratio(connection, ours, approved),
        escalated=_ratio(connection, ours, escalated),
        passed_on=_count(connection, ours & escalated, HISTORY.join(INTERACTIONS)),
        decisions=_decisions(connection, ours),
        statuses=_grouped(connection, INTERACTIONS.c.status, ours),
        bands=_grouped(connection, INTERACTIONS.c.risk_band, ours),
    )


_FINAL: Final = ("approved", "rejected", "timed_out")
_AT_ONCE: Final = 500
"""Ids in one statement."""


def _missing(connection: Connection, unwritten: Collection[str]) -> int:
    """Return how many of these questions have no row."""
    asked = sorted(set(unwritten))
    found = 0
    for start in range(0, len(asked), _AT_ONCE):
        some = INTERACTIONS.c.request_id.in_(asked[start : start + _AT_ONCE])
        found += _count(connection, some)
    return len(asked) - found


def _has(table: sa.Table, *where: "sa.ColumnElement[bool]") -> "sa.ColumnElement[bool]":
    """Select interactions that a row of the table belongs to."""
    its = table.c.interaction_id == INTERACTIONS.c.id
    return sa.select(table.c.id).where(its, *where).correlate(INTERACTIONS).exists()


def _count(
    connection: Connection, where: "sa.ColumnElement[bool]", source: sa.FromClause = INTERACTIONS
) -> int:
    count = sa.select(sa.func.count()).select_from(source).where(where)
    return connection.execute(count).scalar_one()


def _ratio(
    connection: Connection,
    whole: "sa.ColumnElement[bool]",
    part: "sa.ColumnElement[bool]",
    of: str = "interactions",
) -> Ratio:
    return Ratio(_count(connection, whole & part), _count(connection, whole), of)


def _distribution(
    connection: Connection,
    column: "sa.ColumnElement[float]",
    source: sa.FromClause,
    where: "sa.ColumnElement[bool]",
    target: float,
) -> Distribution:
    measured = where & column.is_not(None)
    within = sa.func.coalesce(sa.func.sum(sa.case((column < target, 1), else_=0)), 0)
    summary = sa.select(sa.func.count(), within).select_from(source).where(measured)
    count, below = connection.execute(summary).one()

    def percentile(share: float) -> float | None:
        # The database sorts and returns one row, so a long history never comes into memory.
        chosen = sa.select(column).select_from(source).where(measured).order_by(column)
        return connection.execute(chosen.offset(rank(share, count)).limit(1)).scalar()

    return Distribution(
        count=count, p50=percentile(0.5), p99=percentile(0.99), within_target=int(below)
    )


def rank(share: float, count: int) -> int:
    """Return the index of the sorted value with at least this share at or below it."""
    return max(0, math.ceil(share * count) - 1)


def _decisions(
    connection: Connection, where: "sa.ColumnElement[bool]"
) -> dict[tuple[str, str], int]:
    rows = connection.execute(
        sa.select(DECISIONS.c.decision, DECISIONS.c.decided_by, sa.func.count())
        .select_from(DECISIONS.join(INTERACTIONS))
        .where(where)
        .group_by(DECISIONS.c.decision, DECISIONS.c.decided_by)
    )
    counts: dict[tuple[str, str], int] = {}
    for decision, decided_by, count in rows:
        # A name after the colon would make a series for every reviewer and grant.
        decider = of_record(decided_by or "")
        key = (decision, (decided_by or "unknown") if decider is None else decider.word)
        counts[key] = counts.get(key, 0) + count
    return dict(sorted(counts.items()))


def _grouped(
    connection: Connection, column: "sa.ColumnElement[str]", where: "sa.ColumnElement[bool]"
) -> dict[str, int]:
    name = sa.func.coalesce(column, "unknown")
    rows = connection.execute(
        sa.select(name, sa.func.count()).select_from(INTERACTIONS).where(where).group_by(name)
    )
    return dict(sorted((word, count) for word, count in rows))


# --- which targets are met ------------------------------------------------------------------------


def is_share_met(metrics: Metrics, ratio: Ratio, target: float) -> bool | None:
    """Return whether a share meets its target, or None if it cannot be said.

    What is missing from the store could be anything, so no share is met for certain.
    """
    if ratio.value is None or (ratio.value >= target and metrics.missing):
        return None
    return ratio.value >= target


def is_quick(found: Distribution, target: float, of: int | None = None) -> bool | None:
    """Return whether 99 of 100 are below the target, or None if there are no values.

    `of`: how many there should be. Those without a value, such as questions that nobody answered,
    took too long.
    """
    whole = found.count if of is None else of
    if not whole or found.p99 is None:
        return False if whole else None
    return found.p99 < target and 100 * found.within_target >= 99 * whole


def is_none(metrics: Metrics, count: int) -> bool | None:
    """Return whether nothing is there that should not be, or None if nothing shows it."""
    if count:
        return False
    return True if metrics.interactions and not metrics.missing else None


def is_without_people(metrics: Metrics) -> bool | None:
    """Return whether no person had to decide.

    Return None if held calls ended without a person or a reviewer deciding them.
    """
    decided = metrics.unasked.part == 0 and metrics.answered.part == metrics.answered.whole
    if metrics.manual_interventions or decided:
        return is_none(metrics, metrics.manual_interventions)
    return None


# --- the figures, each once for people, programs and Prometheus -----------------------------------

FigureValue: TypeAlias = Ratio | Distribution | int


class Figure(Struct, frozen=True):
    """One of the metrics, as `metrics.toml` describes it."""

    field: str
    title: str
    gauge: str = ""
    help: str = ""
    target: str = ""
    unit: Literal["", "ms", "s"] = ""

    def value(self, metrics: Metrics) -> FigureValue:
        """Return the value of the figure."""
        found: FigureValue = getattr(metrics, self.field)
        return found

    def met(self, metrics: Metrics) -> bool | None:
        """Return whether the value meets the target, or None if it cannot be said."""
        judge = _MET.get(self.field)
        return None if judge is None else judge(metrics)


_MET: Final[Mapping[str, Callable[[Metrics], bool | None]]] = {
    "missing": lambda m: False if m.missing else None,
    "safe_auto_approved": lambda m: is_share_met(m, m.safe_auto_approved, SAFE_TARGET),
    "decision_ms": lambda m: is_quick(m.decision_ms, LATENCY_TARGET_MS),
    "manual_interventions": is_without_people,
    "high_risk_escalated": lambda m: is_share_met(m, m.high_risk_escalated, 1.0),
    "response_seconds": lambda m: is_quick(
        m.response_seconds, RESPONSE_TARGET_SECONDS, m.answered.whole
    ),
    "unasked": lambda m: is_none(m, m.unasked.part),
    "stuck_sessions": lambda m: is_none(m, m.stuck_sessions),
    "audited": lambda m: is_share_met(m, m.audited, 1.0),
}
FIGURES: Final = convert(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["figure"],
    tuple[Figure, ...],
)
"""In the order of the lines."""


def as_lines(metrics: Metrics) -> Iterator[str]:
    """Yield the figures for people, beside their targets."""
    for one in FIGURES:
        judged = {None: "", True: "✓ ", False: "✗ missed, "}[one.met(metrics)]
        value = one.value(metrics)
        match value:
            case Ratio() as ratio:
                shown = ratio.shown()
            case Distribution() as spread:
                shown = spread.shown(one.unit)
            case int() as count:
                shown = str(count)
            case _:
                assert_never(value)
        yield f"{one.title:<34} {shown:<42} {judged}{one.target}".rstrip()


def as_json(metrics: Metrics) -> dict[str, Json]:
    """Return the figures for programs."""
    values = {_camel_case(one.field): one.value(metrics) for one in FIGURES}
    decisions: list[Json] = [
        {"decision": decision, "decidedBy": who, "count": count}
        for (decision, who), count in metrics.decisions.items()
    ]
    return {
        "at": metrics.at.isoformat(),
        **{name: one if isinstance(one, int) else one.as_json() for name, one in values.items()},
        "denominators": {name: one.of for name, one in values.items() if isinstance(one, Ratio)},
        "decisions": decisions,
        "statuses": dict(metrics.statuses),
        "bands": dict(metrics.bands),
    }


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# --- Prometheus ----------------------------------------------------------------------------------


def as_prometheus(metrics: Metrics) -> str:
    """Return the text exposition format, version 0.0.4, without metrics that have no value.

    All are gauges: the store removes old rows, and a falling counter would be read as a restart.
    """
    lines: list[str] = []
    for name, words, samples in _families(metrics):
        full = f"ironcurtain_{name}"
        lines += [f"# HELP {full} {words}", f"# TYPE {full} gauge"]
        lines += [
            f"{full}{_labels(labels)} {_number(value)}"
            for labels, value in samples
            if value is not None
        ]
    return "".join(f"{line}\n" for line in lines)


_Sample: TypeAlias = tuple[Mapping[str, str], float | None]


def _families(metrics: Metrics) -> Iterator[tuple[str, str, list[_Sample]]]:
    bands: list[_Sample] = [({"band": band}, count) for band, count in metrics.bands.items()]
    yield "interactions_by_band", "Permission prompts by risk band.", bands
    statuses: list[_Sample] = [({"status": word}, n) for word, n in metrics.statuses.items()]
    yield "interactions", "Permission prompts by status.", statuses
    decisions: list[_Sample] = [
        ({"decision": decision, "decided_by": who}, count)
        for (decision, who), count in metrics.decisions.items()
    ]
    yield "decisions", "Decisions by word and by who decided.", decisions
    for figure in FIGURES:
        value = figure.value(metrics)
        match value:
            case Ratio() as ratio:
                yield figure.gauge, figure.help, [({}, ratio.value)]
            case Distribution() as spread:
                unit = 1000.0 if figure.unit == "ms" else 1.0
                points = (("0.5", spread.p50), ("0.99", spread.p99))
                found: list[_Sample] = [({"quantile": q}, v and v / unit) for q, v in points]
                yield figure.gauge, figure.help, found
            case int() as count if figure.gauge:
                yield figure.gauge, figure.help, [({}, count)]
            case int():
                continue
            case _:
                assert_never(value)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    # The format knows these three escapes and no other; a carriage return ends lines for some.
    lines = value.replace("\r", " ")
    return lines.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(round(value, 9))
