"""The state of sessions, from their recorded interactions."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.interaction import SessionHealth
from ironcurtain_proxy.auto_confirm.engine.patterns import SAFE_BANDS
from ironcurtain_proxy.auto_confirm.store.interactions import LONGEST_WAIT, OPEN, OURS
from ironcurtain_proxy.auto_confirm.store.rows import TIMEOUT
from ironcurtain_proxy.auto_confirm.store.tables import INTERACTIONS, StoredText
from ironcurtain_proxy.model.decider import Engine, Nobody, of_record

STUCK_AFTER: Final = timedelta(minutes=10)
"""A call that waits longer has outlived its reviewer's five minutes and the fallback's five."""
RECENT: Final = timedelta(hours=1)
"""The period that counts for a session's health."""
QUEUE_LIFETIME: Final = timedelta(hours=1)
"""The age from which an open call counts as the remains of a crashed proxy."""
_LAST: Final = 10
_ENOUGH: Final = 3


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session at one moment, and the calls of others that wait before it."""

    health: SessionHealth
    earlier_failures: int
    """The number of its calls that failed in the last hour."""
    pending_of_others: int
    """The waiting calls of other sessions, which a session cannot increase itself: of the last
    hour."""


def is_stuck(now: datetime) -> "sa.ColumnElement[bool]":
    """Return whether an overdue call waits."""
    return OURS & _WAITS & _waited_since(now - STUCK_AFTER)


_WAITS: Final = INTERACTIONS.c.status.in_(OPEN)
_SESSION: Final = sa.bindparam("session", type_=StoredText())
_ITS: Final = INTERACTIONS.c.session_name == _SESSION
_SERIOUS: Final = INTERACTIONS.c.risk_band.not_in(SAFE_BANDS) | INTERACTIONS.c.risk_band.is_(None)
_RECENT: Final = INTERACTIONS.c.created_at >= sa.bindparam("recent")


def _waited_since(moment: "datetime | sa.BindParameter[datetime]") -> "sa.ColumnElement[bool]":
    return sa.func.coalesce(INTERACTIONS.c.held_at, INTERACTIONS.c.created_at) < moment


def _number(where: "sa.ColumnElement[bool]") -> "sa.ColumnElement[int]":
    return sa.func.count().filter(where)


_OPEN_CALLS: Final = (
    sa.select(
        _number(
            (INTERACTIONS.c.session_name != _SESSION)
            & (INTERACTIONS.c.created_at >= sa.bindparam("queued"))
        ).label("others"),
        _number(
            _ITS
            & _SERIOUS
            & _waited_since(sa.bindparam("overdue"))
            & (INTERACTIONS.c.created_at >= sa.bindparam("began"))
        ).label("overdue"),
    )
    .where(OURS & _WAITS)
    .subquery()
)
"""Found by their status: few are open, however many the session has made."""

_ITS_CALLS: Final = (
    sa.select(
        _number(INTERACTIONS.c.succeeded.is_(False) & _RECENT).label("failed"),
        # A silent reviewer is not the session's fault if the next one answered.
        _number(
            _SERIOUS
            & (INTERACTIONS.c.decided_by == TIMEOUT)
            & (INTERACTIONS.c.responded_at >= sa.bindparam("overdue"))
        ).label("unanswered"),
    )
    .where(OURS & _ITS & (INTERACTIONS.c.created_at >= sa.bindparam("oldest")))
    .subquery()
)

_COUNTS: Final = sa.select(_OPEN_CALLS, _ITS_CALLS).join_from(_OPEN_CALLS, _ITS_CALLS, sa.true())

_LAST_ENDED: Final = (
    sa.select(INTERACTIONS.c.status, INTERACTIONS.c.succeeded, INTERACTIONS.c.decided_by)
    .where(OURS & _ITS & _RECENT & INTERACTIONS.c.status.not_in(OPEN))
    .order_by(INTERACTIONS.c.id.desc())
    .limit(_LAST)
)


def session_state(
    connection: Connection, session: str, now: datetime, began: datetime | None = None
) -> StoredSession:
    """Return the state of a session, in two statements.

    `stuck`: a call waits for more than ten minutes, or one ended unanswered in the last ten.
    `failing`: half or more of its last ten ended calls were refused or failed, in the last hour.
    `unknown`: fewer than three have ended.

    A safe operation makes no session stuck. Such a call is asked about only while the session is
    stuck already: if nobody answers, each question would prolong the state that caused it.

    Args:
        connection: the store's.
        session: which.
        now: aware.
        began: the start of the process that serves it; calls that waited before wait no longer.
    """
    recent = now - RECENT
    times = {
        "session": session,
        "recent": recent,
        "queued": now - QUEUE_LIFETIME,
        "overdue": now - STUCK_AFTER,
        "began": recent if began is None else max(began, recent),
        "oldest": now - LONGEST_WAIT - STUCK_AFTER,
    }
    counts = connection.execute(_COUNTS, times).one()
    stuck = counts.overdue or counts.unanswered
    return StoredSession(
        health="stuck" if stuck else _fared(connection, session, recent),
        earlier_failures=counts.failed,
        pending_of_others=counts.others,
    )


def _fared(connection: Connection, session: str, recent: datetime) -> SessionHealth:
    ended = connection.execute(_LAST_ENDED, {"session": session, "recent": recent}).all()
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
    return isinstance(of_record(decided_by or ""), Nobody | Engine)
