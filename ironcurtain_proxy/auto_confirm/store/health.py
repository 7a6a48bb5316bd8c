"""How sessions have fared, from what is recorded of them."""

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
"""What lies further back says nothing of a session's health."""
QUEUE_LIFETIME: Final = timedelta(hours=1)
"""An open call older than this is what a crashed proxy left, and not in anybody's queue."""
_LAST: Final = 10
_ENOUGH: Final = 3


def is_stuck(now: datetime) -> "sa.ColumnElement[bool]":
    """Whether a call waits that should long have been decided."""
    since = sa.func.coalesce(INTERACTIONS.c.held_at, INTERACTIONS.c.created_at)
    return OURS & INTERACTIONS.c.status.in_(OPEN) & (since < now - STUCK_AFTER)


def pending_of_others(connection: Connection, session: str, now: datetime) -> int:
    """How many calls of other sessions wait: a session cannot raise this number itself."""
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
    """How a session has fared in the last hour.

    `stuck`: a call waits for more than ten minutes, or one ended unanswered in the last ten.
    `failing`: half or more of its last ten ended calls were refused or failed. `unknown`: fewer
    than three have ended.

    What is safe makes no session stuck. It is asked about only while the session is stuck already:
    where nobody answers, each such question would prolong what caused it, without an end.

    Args:
        connection: the store's.
        session: which.
        now: aware.
        began: when the process that serves it was started: what waited before waits no longer.
    """
    its = OURS & (INTERACTIONS.c.session_name == session)
    recent = INTERACTIONS.c.created_at >= now - RECENT
    serious = INTERACTIONS.c.risk_band.not_in(SAFE_BANDS) | INTERACTIONS.c.risk_band.is_(None)
    # That one reviewer was silent, and the next one answered, is not the session's trouble.
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
        # That nobody was asked, or nobody answered, says nothing of the session.
        or (row.status == "rejected" and not _is_nobody(row.decided_by))
        for row in ended
    )
    return "failing" if 2 * bad >= len(ended) else "well"


def _is_nobody(decided_by: str | None) -> bool:
    return decided_by == TIMEOUT or str(decided_by).startswith("engine:")


def failures(connection: Connection, session: str, now: datetime) -> int:
    """How many of a session's calls failed in the last hour."""
    count = (
        sa.select(sa.func.count())
        .select_from(INTERACTIONS)
        .where(OURS & (INTERACTIONS.c.session_name == session))
        .where(INTERACTIONS.c.succeeded.is_(False) & (INTERACTIONS.c.created_at >= now - RECENT))
    )
    return connection.execute(count).scalar_one()
