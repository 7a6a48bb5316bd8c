"""The health of sessions, from their recorded interactions."""

from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.interaction import SessionHealth
from ironcurtain_proxy.auto_confirm.engine.patterns import SAFE_BANDS
from ironcurtain_proxy.auto_confirm.store.interactions import OPEN, OURS
from ironcurtain_proxy.auto_confirm.store.rows import TIMEOUT
from ironcurtain_proxy.auto_confirm.store.tables import INTERACTIONS

STUCK_AFTER: Final = timedelta(minutes=10)
"""A call that waits longer has outlived its reviewer's five minutes and the fallback's five."""
RECENT: Final = timedelta(hours=1)
"""The period that counts for a session's health."""
QUEUE_LIFETIME: Final = timedelta(hours=1)
"""The age from which an open call counts as the remains of a crashed proxy."""
_LAST: Final = 10
_ENOUGH: Final = 3


def is_stuck(now: datetime) -> "sa.ColumnElement[bool]":
    """Whether an overdue call waits."""
    since = sa.func.coalesce(INTERACTIONS.c.held_at, INTERACTIONS.c.created_at)
    return OURS & INTERACTIONS.c.status.in_(OPEN) & (since < now - STUCK_AFTER)


def pending_of_others(connection: Connection, session: str, now: datetime) -> int:
    """The waiting calls of other sessions, which a session cannot increase itself."""
    count = (
        sa.select(sa.func.count())
        .select_from(INTERACTIONS)
        .where(OURS & INTERACTIONS.c.status.in_(OPEN) & (INTERACTIONS.c.session_name != session))
        .where(INTERACTIONS.c.created_at >= now - QUEUE_LIFETIME)
    )
    return connection.execute(count).scalar_one()


def session_health(
    connection: Connection, session: str, now: datetime, began: datetime | None = None
) -> SessionHealth:
    """The health of a session in the last hour.

    `stuck`: a call waits for more than ten minutes, or one ended unanswered in the last ten.
    `failing`: half or more of its last ten ended calls were refused or failed. `unknown`: fewer
    than three have ended.

    A safe operation makes no session stuck. Such a call is asked about only while the session is
    stuck already: if nobody answers, each question would prolong the state that caused it.

    Args:
        connection: the store's.
        session: which.
        now: aware.
        began: the start of the process that serves it; calls that waited before wait no longer.
    """
    its = OURS & (INTERACTIONS.c.session_name == session)
    recent = INTERACTIONS.c.created_at >= now - RECENT
    serious = INTERACTIONS.c.risk_band.not_in(SAFE_BANDS) | INTERACTIONS.c.risk_band.is_(None)
    # A silent reviewer is not the session's fault if the next one answered.
    unanswered = sa.select(INTERACTIONS.c.id).where(
        its
        & serious
        & (INTERACTIONS.c.decided_by == TIMEOUT)
        & (INTERACTIONS.c.responded_at >= now - STUCK_AFTER)
    )
    since = now - RECENT if began is None else max(began, now - RECENT)
    waits = sa.select(INTERACTIONS.c.id).where(
        its & serious & is_stuck(now) & (INTERACTIONS.c.created_at >= since)
    )
    for sign in (waits, unanswered):
        if connection.execute(sign.limit(1)).first() is not None:
            return "stuck"
    ended = connection.execute(
        sa.select(INTERACTIONS.c.status, INTERACTIONS.c.succeeded, INTERACTIONS.c.decided_by)
        .where(its & recent & INTERACTIONS.c.status.not_in(OPEN))
        .order_by(INTERACTIONS.c.id.desc())
        .limit(_LAST)
    ).all()
    if len(ended) < _ENOUGH:
        return "unknown"
    bad = sum(
        row.succeeded is False
        # A question without a reviewer or an answer does not count for the session.
        or (row.status == "rejected" and not _is_nobody(row.decided_by))
        for row in ended
    )
    return "failing" if 2 * bad >= len(ended) else "well"


def _is_nobody(decided_by: str | None) -> bool:
    return decided_by == TIMEOUT or str(decided_by).startswith("engine:")


def failures(connection: Connection, session: str, now: datetime) -> int:
    """The number of a session's calls that failed in the last hour."""
    count = (
        sa.select(sa.func.count())
        .select_from(INTERACTIONS)
        .where(OURS & (INTERACTIONS.c.session_name == session))
        .where(INTERACTIONS.c.succeeded.is_(False) & (INTERACTIONS.c.created_at >= now - RECENT))
    )
    return connection.execute(count).scalar_one()
