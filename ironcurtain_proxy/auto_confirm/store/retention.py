"""The end of abandoned questions, and the removal of interactions beyond the operator's retention.

Statements on a connection; the caller holds the transaction. Each ends or deletes at most a batch,
to keep transactions short. Patterns, safe paths and rows of other programs are never removed.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.interactions import OPEN, OURS, settle
from ironcurtain_proxy.auto_confirm.store.rows import ABANDONED_BY, Ending
from ironcurtain_proxy.auto_confirm.store.tables import (
    DECISIONS,
    HISTORY,
    INTERACTIONS,
    REVIEWER_DECISIONS,
    TASKS,
    UPKEEP,
)

BATCH: Final = 500
"""Interactions in one transaction."""
EVERY: Final = timedelta(days=1)
"""The time between two purges of a store, by any process."""
LONGEST_WAIT: Final = timedelta(days=3)
"""A call can wait a day for its reviewer and another for the fallback: younger ones may yet end."""

THEIRS: Final = (DECISIONS, REVIEWER_DECISIONS, TASKS, HISTORY)
"""Every table whose rows belong to an interaction."""

_NAME: Final = "retention"
_WAITS: Final = OURS & INTERACTIONS.c.status.in_(OPEN)
_ABANDONED: Final = Ending(
    status="rejected", decided_by=ABANDONED_BY, reason="the proxy that asked has ended"
)
"""The end of a question whose asking process was killed before it could end it. It is no decision:
it does not count for the session or for learning."""


def owners(connection: Connection) -> frozenset[str]:
    """The owners of the open questions."""
    found = sa.select(INTERACTIONS.c.owner).where(_WAITS).distinct()
    return frozenset(one for one in connection.execute(found).scalars() if one)


def end_abandoned(connection: Connection, gone: Collection[str], now: datetime) -> int:
    """End the open questions of these owners, at most a batch. Returns the number."""
    found = sa.select(INTERACTIONS.c.id).where(_WAITS & INTERACTIONS.c.owner.in_(gone))
    waiting = list(connection.execute(found.order_by(INTERACTIONS.c.id).limit(BATCH)).scalars())
    for identifier in waiting:
        settle(connection, identifier, _ABANDONED, now)
    return len(waiting)


def claim(connection: Connection, now: datetime) -> bool:
    """Claim a due purge. True: this process is the only one to purge until tomorrow.

    A time in the future comes from a wrong clock, and does not delay the purge.
    """
    due = (
        UPKEEP.c.done_at.is_(None)
        | (UPKEEP.c.done_at <= now - EVERY)
        | (UPKEEP.c.done_at > now + EVERY)
    )
    taken = sa.update(UPKEEP).where((UPKEEP.c.name == _NAME) & due).values(done_at=now)
    return connection.execute(taken).rowcount == 1


def purge(connection: Connection, keep: timedelta, now: datetime) -> int:
    """Delete the oldest due interactions, at most a batch. Returns the number."""
    found = connection.execute(due(keep, now))
    doomed = list(found.scalars())
    if not doomed:
        return 0
    _remove(connection, doomed)
    return len(doomed)


def remove(connection: Connection, request: str) -> bool:
    """Delete the interaction of a request, with its trail. False: there is none."""
    found = sa.select(INTERACTIONS.c.id).where(INTERACTIONS.c.request_id == request)
    doomed = list(connection.execute(found).scalars())
    _remove(connection, doomed)
    return bool(doomed)


def _remove(connection: Connection, doomed: Sequence[object]) -> None:
    for table in THEIRS:
        connection.execute(sa.delete(table).where(table.c.interaction_id.in_(doomed)))
    connection.execute(sa.delete(INTERACTIONS).where(INTERACTIONS.c.id.in_(doomed)))


def due(keep: timedelta, now: datetime) -> "sa.Select[tuple[int]]":
    """The ids of a due batch: interactions before `keep` that ended, or that a crash left open."""
    before, created = now - keep, INTERACTIONS.c.created_at
    status, ended = INTERACTIONS.c.status, INTERACTIONS.c.responded_at
    past = status.not_in(OPEN) & (sa.func.coalesce(ended, created) < before)
    left = status.in_(OPEN) & (created < now - LONGEST_WAIT)
    return (
        sa.select(INTERACTIONS.c.id)
        .where(OURS & (created < before) & (past | left))
        .order_by(created)
        .limit(BATCH)
        # An interaction that another process has locked is removed tomorrow.
        .with_for_update(skip_locked=True)
    )
