"""Abandoned questions: the asking process was killed before it could end them.

Statements on a connection; the caller holds the transaction.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.interactions import OPEN, OURS, settle
from ironcurtain_proxy.auto_confirm.store.retention import BATCH
from ironcurtain_proxy.auto_confirm.store.rows import Ending
from ironcurtain_proxy.auto_confirm.store.tables import INTERACTIONS

_WAITS: Final = OURS & INTERACTIONS.c.status.in_(OPEN)
_END: Final = Ending(
    status="rejected", decided_by="engine:abandoned", reason="the proxy that asked has ended"
)
"""The reason of the end. It is no decision: it does not count for the session or for learning."""


def owners(connection: Connection) -> frozenset[str]:
    """The owners of the open questions."""
    found = sa.select(INTERACTIONS.c.owner).where(_WAITS).distinct()
    return frozenset(one for one in connection.execute(found).scalars() if one)


def end(connection: Connection, gone: Collection[str], now: datetime) -> int:
    """End the open questions of these owners, at most a batch. Returns the number."""
    found = sa.select(INTERACTIONS.c.id).where(_WAITS & INTERACTIONS.c.owner.in_(gone))
    waiting = list(connection.execute(found.order_by(INTERACTIONS.c.id).limit(BATCH)).scalars())
    for identifier in waiting:
        settle(connection, identifier, _END, now)
    return len(waiting)
