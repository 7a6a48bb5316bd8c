"""What was approved lately, in all sessions: against which a new call is held."""

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.interactions import OURS
from ironcurtain_proxy.auto_confirm.store.tables import INTERACTIONS

LATELY: Final = 1000
"""The last so many approvals count: more would cost more, and say nothing else."""


@dataclass(frozen=True, slots=True)
class RecentWork:
    """Approvals, by whomever."""

    operations: dict[str, int]
    """How often each was approved."""
    scopes: frozenset[str]
    """What they were about, as `Subject.scope` has it."""


def recent_work(connection: Connection) -> RecentWork:
    """Look at the last approvals."""
    rows = connection.execute(
        sa.select(INTERACTIONS.c.operation, INTERACTIONS.c.scope)
        .where(OURS & INTERACTIONS.c.status.in_(("approved", "auto_approved")))
        .order_by(INTERACTIONS.c.id.desc())
        .limit(LATELY)
    ).all()
    operations: dict[str, int] = {}
    for row in rows:
        operations[row.operation] = operations.get(row.operation, 0) + 1
    return RecentWork(operations, frozenset(row.scope for row in rows if row.scope))
