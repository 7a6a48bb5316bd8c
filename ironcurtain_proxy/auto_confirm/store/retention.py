"""What is removed: interactions older than the operator keeps them, with all that is theirs.

Statements on a connection; the caller holds the transaction. One deletes no more than a batch, so
that nobody waits long for it, and an interaction goes with its trail or stays with it. Patterns
and safe paths are never removed, nor are rows that another program left in our tables.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.interactions import OPEN, OURS
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
"""How often a store is gone through, whoever does it."""
LONGEST_WAIT: Final = timedelta(days=3)
"""A call can wait a day for its reviewer and another for the fallback: younger ones may yet end."""

THEIRS: Final = (DECISIONS, REVIEWER_DECISIONS, TASKS, HISTORY)
"""Every table whose rows belong to an interaction."""

_NAME: Final = "retention"


def claim(connection: Connection, now: datetime) -> bool:
    """Whether a purge is due. Whoever is told so is the only one until tomorrow.

    A time that lies ahead is a clock's mistake, and does not put the purge off.
    """
    due = (
        UPKEEP.c.done_at.is_(None)
        | (UPKEEP.c.done_at <= now - EVERY)
        | (UPKEEP.c.done_at > now + EVERY)
    )
    taken = sa.update(UPKEEP).where((UPKEEP.c.name == _NAME) & due).values(done_at=now)
    return connection.execute(taken).rowcount == 1


def purge(connection: Connection, keep: timedelta, now: datetime) -> int:
    """Delete the oldest interactions that are to go, a batch at most. How many."""
    found = connection.execute(due(keep, now))
    doomed = list(found.scalars())
    if not doomed:
        return 0
    _remove(connection, doomed)
    return len(doomed)


def remove(connection: Connection, request: str) -> bool:
    """Delete the interaction of a request, with all that is its. False: there is none."""
    found = sa.select(INTERACTIONS.c.id).where(INTERACTIONS.c.request_id == request)
    doomed = list(connection.execute(found).scalars())
    _remove(connection, doomed)
    return bool(doomed)


def _remove(connection: Connection, doomed: Sequence[object]) -> None:
    for table in THEIRS:
        connection.execute(sa.delete(table).where(table.c.interaction_id.in_(doomed)))
    connection.execute(sa.delete(INTERACTIONS).where(INTERACTIONS.c.id.in_(doomed)))


def due(keep: timedelta, now: datetime) -> "sa.Select[tuple[int]]":
    """The ids of a batch that is to go: what ended, and what a crash left open, before `keep`."""
    before, created = now - keep, INTERACTIONS.c.created_at
    status, ended = INTERACTIONS.c.status, INTERACTIONS.c.responded_at
    past = status.not_in(OPEN) & (sa.func.coalesce(ended, created) < before)
    left = status.in_(OPEN) & (created < now - LONGEST_WAIT)
    return (
        sa.select(INTERACTIONS.c.id)
        .where(OURS & (created < before) & (past | left))
        .order_by(created)
        .limit(BATCH)
        # Another process that is at work on one keeps it: it goes tomorrow.
        .with_for_update(skip_locked=True)
    )
