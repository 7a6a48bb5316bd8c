"""The engine's success metrics, computed from the store, and written for Prometheus.

INVARIANT: an approval is counted from a decision `approved` in the trail, and from nothing else.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.patterns import HIGH_BANDS, SAFE_BANDS
from ironcurtain_proxy.auto_confirm.store.health import is_stuck
from ironcurtain_proxy.auto_confirm.store.interactions import OURS
from ironcurtain_proxy.auto_confirm.store.rows import HUMAN
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.auto_confirm.store.tables import (
    DECISIONS,
    HISTORY,
    INTERACTIONS,
    REVIEWER_DECISIONS,
    TASKS,
)
from ironcurtain_proxy.model.decider import of_record

LATENCY_TARGET_MS: Final = 100.0
RESPONSE_TARGET_SECONDS: Final = 300.0
SAFE_TARGET: Final = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """A part of a whole."""

    part: int
    whole: int

    @property
    def value(self) -> float | None:
        """The share from 0 to 1; None: the whole is empty."""
        return self.part / self.whole if self.whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The distribution of a quantity. Percentiles by nearest rank; None: no values."""

    count: int = 0
    p50: float | None = None
    p99: float | None = None
    within_target: int = 0
    """The number below the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All metrics at one moment."""

    at: datetime
    interactions: int
    safe_auto_approved: Ratio
    """The share of SAFE and LOW operations that no person or reviewer approved."""
    decision_ms: Distribution
    """Milliseconds of kernel, overlay and engine; not of models and reviewers."""
    manual_interventions: int
    """Decisions that a person had to make."""
    high_risk_escalated: Ratio
    """The share of HIGH and CRITICAL operations that went to a reviewer."""
    response_seconds: Distribution
    """Seconds from holding a call to a reviewer's decision."""
    stuck_sessions: int
    """Sessions with a call whose decision is overdue."""
    audited: Ratio
    """The share of all interactions with a decision in their trail."""
    auto_approved: Ratio
    """The share of all interactions that were approved without a person or reviewer."""
    escalated: Ratio
    """The share of all interactions that went to a reviewer."""
    passed_on: int
    """The number of times that a reviewer did not answer and another was asked."""
    decisions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Decisions by word and by who decided: `engine`, `auto-approver`, `reviewer`, `human`, …"""
    statuses: Mapping[str, int] = field(default_factory=dict)
    bands: Mapping[str, int] = field(default_factory=dict)


def compute(store: Store, now: datetime, since: datetime | None = None) -> Metrics:
    """Compute all metrics from one state of the store.

    Args:
        store: the store.
        now: the current time; aware.
        since: only interactions from then on; None: all.

    Raises:
        StoreError: it cannot be read.
    """
    return store.read(lambda connection: _compute(connection, now, since))


def _compute(connection: Connection, now: datetime, since: datetime | None) -> Metrics:
    ours = OURS if since is None else OURS & (INTERACTIONS.c.created_at >= since)
    approved = _has_decision("approved", automatic=True)
    escalated = _has_decision("escalated") | _has_task()
    safe = ours & INTERACTIONS.c.risk_band.in_(SAFE_BANDS)
    high = ours & INTERACTIONS.c.risk_band.in_(HIGH_BANDS)
    human = DECISIONS.c.decided_by == HUMAN
    decided = DECISIONS.c.decision.in_(("approved", "rejected"))
    return Metrics(
        at=now,
        interactions=_count(connection, ours),
        safe_auto_approved=_ratio(connection, safe, approved),
        decision_ms=_distribution(
            connection, INTERACTIONS.c.decision_ms, INTERACTIONS, ours, LATENCY_TARGET_MS
        ),
        manual_interventions=_count(
            connection, ours & human & decided, DECISIONS.join(INTERACTIONS)
        ),
        high_risk_escalated=_ratio(connection, high, escalated),
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
        audited=_ratio(connection, ours, _has_decision()),
        auto_approved=_ratio(connection, ours, approved),
        escalated=_ratio(connection, ours, escalated),
        passed_on=_count(connection, ours, HISTORY.join(INTERACTIONS)),
        decisions=_decisions(connection, ours),
        statuses=_grouped(connection, INTERACTIONS.c.status, ours),
        bands=_grouped(connection, INTERACTIONS.c.risk_band, ours),
    )


def _has_decision(
    word: str | None = None, *, automatic: bool | None = None
) -> "sa.ColumnElement[bool]":
    found = sa.select(DECISIONS.c.id).where(DECISIONS.c.interaction_id == INTERACTIONS.c.id)
    if word is not None:
        found = found.where(DECISIONS.c.decision == word)
    if automatic is not None:
        found = found.where(DECISIONS.c.auto_decision.is_(automatic))
    return found.correlate(INTERACTIONS).exists()


def _has_task() -> "sa.ColumnElement[bool]":
    found = sa.select(TASKS.c.id).where(TASKS.c.interaction_id == INTERACTIONS.c.id)
    return found.correlate(INTERACTIONS).exists()


def _count(
    connection: Connection,
    where: "sa.ColumnElement[bool]",
    source: sa.FromClause = INTERACTIONS,
) -> int:
    count = sa.select(sa.func.count()).select_from(source).where(where)
    return connection.execute(count).scalar_one()


def _ratio(
    connection: Connection, whole: "sa.ColumnElement[bool]", part: "sa.ColumnElement[bool]"
) -> Ratio:
    return Ratio(_count(connection, whole & part), _count(connection, whole))


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
        count=count,
        p50=percentile(0.5),
        p99=percentile(0.99),
        within_target=int(below),
    )


def rank(share: float, count: int) -> int:
    """The index of the sorted value with at least this share at or below it."""
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


# --- Prometheus ----------------------------------------------------------------------------------


def as_prometheus(metrics: Metrics) -> str:
    """The text exposition format, version 0.0.4, without metrics that have no value.

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
    for name, words, value in _SINGLES:
        found = value(metrics)
        yield name, words, [({}, found.value if isinstance(found, Ratio) else found)]
    for name, words, spread, unit in (
        ("decision_seconds", _DECIDING, metrics.decision_ms, 1000.0),
        ("review_response_seconds", _ANSWERING, metrics.response_seconds, 1.0),
    ):
        points = (("0.5", spread.p50), ("0.99", spread.p99))
        yield name, words, [({"quantile": q}, v and v / unit) for q, v in points]


_DECIDING: Final = "Time to decide, without models and reviewers."
_ANSWERING: Final = "Time from holding a call to a reviewer's decision."
_SINGLES: Final[tuple[tuple[str, str, Callable[[Metrics], Ratio | int]], ...]] = (
    (
        "safe_auto_approved_ratio",
        "Share of SAFE and LOW operations approved without a reviewer. Target: 0.95 or more.",
        lambda m: m.safe_auto_approved,
    ),
    (
        "high_risk_escalated_ratio",
        "Share of HIGH and CRITICAL operations that went to a reviewer. Target: 1.",
        lambda m: m.high_risk_escalated,
    ),
    (
        "manual_interventions",
        "Decisions that a person had to make. Target: 0.",
        lambda m: m.manual_interventions,
    ),
    (
        "stuck_sessions",
        "Sessions with a call that should long have been decided. Target: 0.",
        lambda m: m.stuck_sessions,
    ),
    (
        "audited_ratio",
        "Share of interactions with a decision in their trail. Target: 1.",
        lambda m: m.audited,
    ),
    (
        "auto_approved_ratio",
        "Share of all interactions approved without a reviewer.",
        lambda m: m.auto_approved,
    ),
    (
        "escalated_ratio",
        "Share of all interactions that went to a reviewer.",
        lambda m: m.escalated,
    ),
    (
        "passed_on",
        "How often one reviewer did not answer and another was asked.",
        lambda m: m.passed_on,
    ),
)


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
