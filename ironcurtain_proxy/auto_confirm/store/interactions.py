"""Interactions, their trail, and their removal, as statements on a connection.

The caller holds the transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Final, assert_never

import orjson
import sqlalchemy as sa
from msgspec.structs import asdict
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.rows import (
    ABANDONED_BY,
    MODEL,
    PASSED_ON,
    TIMEOUT,
    AlreadyDecidedError,
    Ending,
    EscalationTask,
    InteractionRow,
    PermissionDecision,
    Status,
    StoreError,
    TaskStatus,
    is_reviewer,
)
from ironcurtain_proxy.auto_confirm.store.tables import (
    DECISIONS,
    HISTORY,
    INTERACTIONS,
    REVIEWER_DECISIONS,
    TASKS,
    UPKEEP,
)
from ironcurtain_proxy.model.values import Json

OPEN: Final[tuple[Status, ...]] = ("pending", "held", "escalated")
"""The states of a call that waits for its decision."""

OURS: Final = INTERACTIONS.c.request_id.is_not(None)
"""The condition on our rows: rows of other programs have no request, and do not count."""

_ASKED: Final[tuple[Status, ...]] = ("held", "escalated")


def _before(settlement: Ending) -> tuple[Status, ...]:
    """Return the states from which an interaction may end in this way."""
    match settlement.status:
        case "auto_approved" if settlement.decided_by in (TIMEOUT, MODEL):
            # Approvals of the final table, and of a model before a reviewer.
            return _ASKED
        case "auto_approved":
            return ("pending",)
        case "approved":
            return _ASKED
        case "rejected":
            return OPEN
        case _:
            assert_never(settlement.status)


def is_of(connection: Connection, interaction_id: int, request: str | None) -> bool:
    """Return whether an interaction belongs to this request. None matches any."""
    if request is None:
        return True
    named = {"which": interaction_id, "whose": request}
    return connection.execute(_OF_REQUEST, named).first() is not None


def find_request(connection: Connection, request: str) -> int | None:
    """Return the id of a request's interaction, or None if there is none."""
    found = sa.select(INTERACTIONS.c.id).where(INTERACTIONS.c.request_id == request)
    return connection.execute(found).scalar()


def record_call(
    connection: Connection,
    row: InteractionRow,
    then: PermissionDecision | EscalationTask,
    now: datetime,
) -> int:
    """Write a new interaction with its decision or a reviewer's task. Return its id.

    Nobody else sees the interaction before the end of the transaction, so it needs no lock.

    Raises:
        AlreadyDecidedError: the interaction has another end.
    """
    _refuse_other_end(then, row.status)
    identifier = insert_interaction(connection, row, now, then.decided_by)
    if isinstance(then, EscalationTask):
        _put_question(connection, identifier, then, (row.status, None), now)
    else:
        _insert_line(connection, identifier, then, None, now)
    return identifier


def insert_interaction(
    connection: Connection, row: InteractionRow, now: datetime, decided_by: str | None = None
) -> int:
    """Write a new interaction, and return its id."""
    values = {
        **asdict(row),
        "decided_by": decided_by,
        "factors": _written(row.factors),
        "auto_approved": row.status == "auto_approved",
        "created_at": now,
        "responded_at": None if row.status in OPEN else now,
    }
    return _inserted(connection, INTERACTIONS, values)


def _insert_line(
    connection: Connection,
    interaction_id: int,
    decision: PermissionDecision,
    held_at: datetime | None,
    now: datetime,
) -> int:
    if is_reviewer(decision.decided_by):
        line = {
            "interaction_id": interaction_id,
            "decision": decision.decision,
            "decided_by": decision.decided_by,
            "decided_at": now,
            "reason": decision.reason,
            "response_seconds": held_at and max(0.0, (now - held_at).total_seconds()),
        }
        _inserted(connection, REVIEWER_DECISIONS, line)
    values = {
        **asdict(decision),
        "interaction_id": interaction_id,
        "auto_decision": decision.is_automatic,
        "created_at": now,
    }
    return _inserted(connection, DECISIONS, values)


def _refuse_other_end(then: PermissionDecision | EscalationTask, status: Status) -> None:
    if isinstance(then, EscalationTask):
        if status not in OPEN:
            raise AlreadyDecidedError("the interaction has ended: no reviewer is asked any more")
    elif then.decision == "approved" and status == "rejected":
        raise AlreadyDecidedError("the interaction was already refused")


def end(
    connection: Connection,
    interaction_id: int,
    settlement: Ending,
    now: datetime,
    request: str | None = None,
) -> bool:
    """End an interaction and its open tasks. Return False if its state cannot end this way.

    `request`: the request that it must belong to. `None` means any.
    """
    values = {
        "which": interaction_id,
        "whose": request,
        "from": _before(settlement),
        "status": settlement.status,
        "auto_approved": settlement.status == "auto_approved",
        "decided_by": settlement.decided_by,
        "response": settlement.response,
        "responded_at": now,
    }
    if request is None:
        del values["whose"]
    if connection.execute(_from_states(of_request=request is not None), values).rowcount != 1:
        return False
    held_at = None
    if is_reviewer(settlement.decided_by):
        held_at = connection.execute(_HELD_AT, {"which": interaction_id}).scalar()
    _insert_line(connection, interaction_id, settlement.decision, held_at, now)
    outcome: TaskStatus = "withdrawn"
    if is_reviewer(settlement.decided_by):
        outcome = "answered"
    elif settlement.decided_by == TIMEOUT:
        outcome = "timed_out"
    _close_tasks(connection, interaction_id, outcome, now)
    if not settlement.asked:
        connection.execute(_ALL_TASKS, {"which": interaction_id, "status": "unasked"})
    return True


def _put_question(
    connection: Connection,
    interaction_id: int,
    task: EscalationTask,
    found: tuple[Status, datetime | None],
    now: datetime,
) -> int:
    status, held_at = found
    values = {
        **asdict(task),
        "interaction_id": interaction_id,
        "status": "open",
        "created_at": now,
    }
    del values["reason"], values["decided_by"]
    task_id = _inserted(connection, TASKS, values)
    changes: dict[str, object] = {
        "status": "held" if status == "pending" else status,
        "held_at": held_at or now,
        "escalation_task_id": task_id,
        "escalation_target": task.assign_to,
        "escalation_reason": task.reason,
        "escalation_time": now,
        "decided_by": task.decided_by,
    }
    _update(connection, interaction_id, changes)
    line = PermissionDecision(
        decision="escalated",
        decided_by=task.decided_by,
        reason=task.reason,
        escalation_target=task.assign_to,
    )
    _insert_line(connection, interaction_id, line, held_at, now)
    return task_id


def pass_on(
    connection: Connection,
    interaction_id: int,
    targets: tuple[str, str],
    reason: str,
    now: datetime,
    *,
    silent: bool,
) -> bool:
    """Note that one reviewer was replaced by another. Return False if nobody is being asked.

    Args:
        connection: the store's.
        interaction_id: which.
        targets: the first, and the next.
        reason: why.
        now: when.
        silent: whether the first was asked and did not answer in time.
    """
    by = TIMEOUT if silent else PASSED_ON
    passed = {
        "which": interaction_id,
        "from": _ASKED,
        "status": "escalated",
        "decided_by": by,
        "escalation_target": targets[1],
        "escalation_reason": reason,
        "escalation_time": now,
    }
    if connection.execute(_PASSED_ON, passed).rowcount != 1:
        return False
    values = {
        "interaction_id": interaction_id,
        "from_target": targets[0],
        "to_target": targets[1],
        "reason": reason,
        "created_at": now,
    }
    _inserted(connection, HISTORY, values)
    _close_tasks(connection, interaction_id, "timed_out" if silent else "withdrawn", now)
    line = PermissionDecision(
        decision="timed_out" if silent else "escalated",
        decided_by=by,
        reason=reason,
        escalation_target=targets[0] if silent else targets[1],
    )
    _insert_line(connection, interaction_id, line, None, now)
    return True


def set_outcome(connection: Connection, interaction_id: int, *, succeeded: bool) -> int | None:
    """Note whether the call succeeded. The first time, return the pattern that approved it."""
    noted = {"which": interaction_id, "succeeded": succeeded}
    if connection.execute(_NO_OUTCOME, noted).rowcount != 1:
        return None
    return connection.execute(_ITS_PATTERN, {"which": interaction_id}).scalar()


def _close_tasks(
    connection: Connection, interaction_id: int, status: TaskStatus, now: datetime
) -> None:
    closed = {"which": interaction_id, "status": status, "answered_at": now}
    connection.execute(_OPEN_TASKS, closed)


def _written(factors: Mapping[str, Json]) -> str:
    try:
        return orjson.dumps(dict(factors)).decode()
    except orjson.JSONEncodeError as error:
        raise StoreError("the factors of a decision are no JSON") from error


def _update(connection: Connection, interaction_id: int, values: Mapping[str, object]) -> None:
    connection.execute(_BY_ID, {"which": interaction_id, **values})


def _inserted(connection: Connection, table: sa.Table, values: Mapping[str, object]) -> int:
    key = connection.execute(_insert(table), dict(values)).inserted_primary_key
    if key is None:
        raise StoreError(f"{table.name} gave no id")
    return int(key[0])


# --- statements, made once: their values are given when they are run ------------------------------

_WHICH: Final = INTERACTIONS.c.id == sa.bindparam("which")
_BY_ID: Final = sa.update(INTERACTIONS).where(_WHICH)
_HELD_AT: Final = sa.select(INTERACTIONS.c.held_at).where(_WHICH)
_WHOSE: Final = INTERACTIONS.c.request_id == sa.bindparam("whose")
_OF_REQUEST: Final = sa.select(INTERACTIONS.c.id).where(_WHICH & _WHOSE)
_NO_OUTCOME: Final = _BY_ID.where(INTERACTIONS.c.succeeded.is_(None))
_ITS_PATTERN: Final = sa.select(INTERACTIONS.c.matched_pattern_id).where(
    _WHICH & (INTERACTIONS.c.status == "auto_approved")
)
_ALL_TASKS: Final = sa.update(TASKS).where(TASKS.c.interaction_id == sa.bindparam("which"))
_OPEN_TASKS: Final = sa.update(TASKS).where(
    (TASKS.c.interaction_id == sa.bindparam("which")) & (TASKS.c.status == "open")
)


@cache
def _from_states(*, of_request: bool = False) -> sa.Update:
    found = _BY_ID.where(INTERACTIONS.c.status.in_(sa.bindparam("from", expanding=True)))
    return found.where(_WHOSE) if of_request else found


_PASSED_ON: Final = _from_states().values(
    escalation_count=sa.func.coalesce(INTERACTIONS.c.escalation_count, 0) + 1
)


@cache
def _insert(table: sa.Table) -> sa.Insert:
    return sa.insert(table)


# --- removal of what is old -----------------------------------------------------------------------
# The end of abandoned questions, and the removal of interactions beyond the operator's
# retention.
#
# Statements on a connection; the caller holds the transaction. Each ends or deletes at most a
# batch, to keep transactions short. Patterns, safe paths and rows of other programs are never
# removed.


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
    """Return the owners of the open questions."""
    found = sa.select(INTERACTIONS.c.owner).where(_WAITS).distinct()
    return frozenset(one for one in connection.execute(found).scalars() if one)


def end_abandoned(connection: Connection, gone: Collection[str], now: datetime) -> int:
    """End the open questions of these owners, at most a batch, and return how many."""
    found = sa.select(INTERACTIONS.c.id).where(_WAITS & INTERACTIONS.c.owner.in_(gone))
    waiting = list(connection.execute(found.order_by(INTERACTIONS.c.id).limit(BATCH)).scalars())
    for identifier in waiting:
        end(connection, identifier, _ABANDONED, now)
    return len(waiting)


def claim(connection: Connection, now: datetime) -> bool:
    """Claim a due purge. Return True if this process is the only one to purge until tomorrow.

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
    """Delete the oldest due interactions, at most a batch, and return how many."""
    found = connection.execute(due(keep, now))
    doomed = list(found.scalars())
    if not doomed:
        return 0
    _remove(connection, doomed)
    return len(doomed)


def remove(connection: Connection, request: str) -> bool:
    """Delete the interaction of a request, with its trail. Return False if there is none."""
    found = sa.select(INTERACTIONS.c.id).where(INTERACTIONS.c.request_id == request)
    doomed = list(connection.execute(found).scalars())
    _remove(connection, doomed)
    return bool(doomed)


def _remove(connection: Connection, doomed: Sequence[object]) -> None:
    for table in THEIRS:
        connection.execute(sa.delete(table).where(table.c.interaction_id.in_(doomed)))
    connection.execute(sa.delete(INTERACTIONS).where(INTERACTIONS.c.id.in_(doomed)))


def due(keep: timedelta, now: datetime) -> "sa.Select[tuple[int]]":
    """Select the ids of a due batch: older than `keep`, and ended or left open by a crash."""
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
