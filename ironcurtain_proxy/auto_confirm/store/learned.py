"""The engine's lasting knowledge: patterns, safe paths, approve rates, and recent approvals.

Rates are counted once and then added to: a store may hold years of decisions, and every session
asks again and again.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.interaction import ApproveRate, InteractionHistory
from ironcurtain_proxy.auto_confirm.engine.places import SafePath
from ironcurtain_proxy.auto_confirm.store.interactions import OURS
from ironcurtain_proxy.auto_confirm.store.patterns import read_patterns
from ironcurtain_proxy.auto_confirm.store.rows import PatternRow
from ironcurtain_proxy.auto_confirm.store.tables import (
    INTERACTIONS,
    REVIEWER_DECISIONS,
    SAFE_PATHS,
)
from ironcurtain_proxy.model.path import RealPath

LATELY: Final = 1000
"""The number of recent approvals that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The lessons of operators, people and reviewers, in all sessions."""

    patterns: tuple[PatternRow, ...]
    """By name, including disabled ones."""
    safe_paths: tuple[SafePath, ...]
    """In the order of their addition."""
    rates: Mapping[tuple[str, str], ApproveRate]
    """The approve rates of people and reviewers, by operation and scope."""
    last_decision: int
    """The id of the last decision in `rates`; 0: none."""
    history: InteractionHistory
    """The calls approved lately."""


_APPROVED: Final = REVIEWER_DECISIONS.c.decision == "approved"
_SCOPE: Final = sa.func.coalesce(INTERACTIONS.c.scope, "")
_RATES: Final = (
    sa.select(
        INTERACTIONS.c.operation,
        _SCOPE,
        sa.func.count().filter(_APPROVED),
        sa.func.count(),
        sa.func.max(REVIEWER_DECISIONS.c.id),
    )
    .select_from(REVIEWER_DECISIONS.join(INTERACTIONS))
    .where(OURS & REVIEWER_DECISIONS.c.decision.in_(("approved", "rejected")))
    .where(REVIEWER_DECISIONS.c.id > sa.bindparam("after"))
    .group_by(INTERACTIONS.c.operation, _SCOPE)
)
"""Decisions of machines do not count, so the engine cannot feed itself."""

_SAFE_PATHS: Final = sa.select(SAFE_PATHS.c.path, SAFE_PATHS.c.operation).order_by(SAFE_PATHS.c.id)
_LATELY: Final = (
    sa.select(INTERACTIONS.c.operation, INTERACTIONS.c.scope)
    .where(OURS & INTERACTIONS.c.status.in_(("approved", "auto_approved")))
    .order_by(INTERACTIONS.c.id.desc())
    .limit(LATELY)
)


def read_learned(connection: Connection, before: Learned | None = None) -> Learned:
    """Read it.

    Args:
        connection: the store's.
        before: a recent result, whose history stays, and whose rates get the later decisions. It
            still counts decisions that were removed since, and on PostgreSQL it can lack one that
            was being written.
    """
    rates, last = _rates(connection, before)
    return Learned(
        patterns=read_patterns(connection),
        safe_paths=tuple(
            [
                SafePath(path=path, operation=operation)
                for path, operation in connection.execute(_SAFE_PATHS)
            ]
        ),
        rates=rates,
        last_decision=last,
        history=_history(connection) if before is None else before.history,
    )


def _rates(
    connection: Connection, before: Learned | None
) -> tuple[Mapping[tuple[str, str], ApproveRate], int]:
    after = 0 if before is None else before.last_decision
    rows = connection.execute(_RATES, {"after": after}).all()
    if before is not None and not rows:
        return before.rates, after
    rates = {} if before is None else dict(before.rates)
    for operation, scope, approved, decided, last in rows:
        known = rates.get((operation, scope), ApproveRate(0, 0))
        rates[operation, scope] = ApproveRate(known.approved + approved, known.decided + decided)
        after = max(after, last)
    return rates, after


def _history(connection: Connection) -> InteractionHistory:
    """A scope that is no path, such as a branch, gives no directory."""
    rows = connection.execute(_LATELY).all()
    paths = {line for _, scope in rows for line in (scope or "").split("\n") if line[:1] == "/"}
    # Most paths share their directory with another one.
    directories = {path.rstrip("/").rpartition("/")[0] for path in paths}
    return InteractionHistory(
        operations=Counter(operation for operation, _ in rows),
        directories=frozenset(map(RealPath.from_text, directories)),
    )
