"""Interactions and their trail, as statements on a connection. The caller holds the transaction."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Final, assert_never

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.faults import AlreadyDecidedError, StoreError
from ironcurtain_proxy.auto_confirm.store.rows import (
    MODEL,
    TIMEOUT,
    Ending,
    EscalationTask,
    InteractionRow,
    PermissionDecision,
    Status,
    TaskStatus,
    is_reviewer,
)
from ironcurtain_proxy.auto_confirm.store.tables import (
    DECISIONS,
    HISTORY,
    INTERACTIONS,
    REVIEWER_DECISIONS,
    TASKS,
)
from ironcurtain_proxy.model.json import Json

OPEN: Final[tuple[Status, ...]] = ("pending", "held", "escalated")
"""The states of a call that waits for its decision."""

OURS: Final = INTERACTIONS.c.request_id.is_not(None)
"""The condition on our rows: rows of other programs have no request, and do not count."""

_ASKED: Final[tuple[Status, ...]] = ("held", "escalated")


def _before(settlement: Ending) -> tuple[Status, ...]:
    """The states from which an interaction may end so."""
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
    """Whether an interaction is a request's; None: any one's."""
    if request is None:
        return True
    found = sa.select(INTERACTIONS.c.id).where(
        (INTERACTIONS.c.id == interaction_id) & (INTERACTIONS.c.request_id == request)
    )
    return connection.execute(found).first() is not None


def record_call(
    connection: Connection,
    row: InteractionRow,
    then: PermissionDecision | EscalationTask,
    now: datetime,
) -> int:
    """Write a new interaction with its decision, or with a reviewer's task; its id.

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
    """Write a new interaction; its id."""
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
        connection.execute(sa.insert(REVIEWER_DECISIONS).values(line))
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


def settle(
    connection: Connection,
    interaction_id: int,
    settlement: Ending,
    now: datetime,
    request: str | None = None,
) -> bool:
    """End an interaction and its open tasks. False if it is not where it could end so.

    `request`: whose it must be; None: anybody's.
    """
    mine = INTERACTIONS.c.id == interaction_id
    if request is not None:
        mine &= INTERACTIONS.c.request_id == request
    ended = connection.execute(
        sa.update(INTERACTIONS)
        .where(mine)
        .where(INTERACTIONS.c.status.in_(_before(settlement)))
        .values(
            status=settlement.status,
            auto_approved=settlement.status == "auto_approved",
            decided_by=settlement.decided_by,
            response=settlement.response,
            responded_at=now,
        )
    )
    if ended.rowcount != 1:
        return False
    held_at = None
    if is_reviewer(settlement.decided_by):
        held_at = connection.execute(sa.select(INTERACTIONS.c.held_at).where(mine)).scalar()
    _insert_line(connection, interaction_id, settlement.decision, held_at, now)
    outcome: TaskStatus = "withdrawn"
    if is_reviewer(settlement.decided_by):
        outcome = "answered"
    elif settlement.decided_by == TIMEOUT:
        outcome = "timed_out"
    _close_tasks(connection, interaction_id, outcome, now)
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
) -> bool:
    """Note that one reviewer was replaced by another. False: nobody is being asked about it."""
    passed = connection.execute(
        sa.update(INTERACTIONS)
        .where(INTERACTIONS.c.id == interaction_id)
        .where(INTERACTIONS.c.status.in_(_ASKED))
        .values(
            status="escalated",
            decided_by=TIMEOUT,
            escalation_target=targets[1],
            escalation_reason=reason,
            escalation_time=now,
            escalation_count=sa.func.coalesce(INTERACTIONS.c.escalation_count, 0) + 1,
        )
    )
    if passed.rowcount != 1:
        return False
    values = {
        "interaction_id": interaction_id,
        "from_target": targets[0],
        "to_target": targets[1],
        "reason": reason,
        "created_at": now,
    }
    connection.execute(sa.insert(HISTORY).values(values))
    _close_tasks(connection, interaction_id, "timed_out", now)
    line = PermissionDecision(
        decision="timed_out", decided_by=TIMEOUT, reason=reason, escalation_target=targets[0]
    )
    _insert_line(connection, interaction_id, line, None, now)
    return True


def set_outcome(connection: Connection, interaction_id: int, *, succeeded: bool) -> int | None:
    """Note whether the call succeeded. Returns the pattern that approved it, the first time."""
    noted = connection.execute(
        sa.update(INTERACTIONS)
        .where((INTERACTIONS.c.id == interaction_id) & INTERACTIONS.c.succeeded.is_(None))
        .values(succeeded=succeeded)
    )
    if noted.rowcount != 1:
        return None
    pattern = sa.select(INTERACTIONS.c.matched_pattern_id).where(
        (INTERACTIONS.c.id == interaction_id) & (INTERACTIONS.c.status == "auto_approved")
    )
    return connection.execute(pattern).scalar()


def _close_tasks(
    connection: Connection, interaction_id: int, status: TaskStatus, now: datetime
) -> None:
    still_open = (TASKS.c.interaction_id == interaction_id) & (TASKS.c.status == "open")
    connection.execute(sa.update(TASKS).where(still_open).values(status=status, answered_at=now))


def _written(factors: Mapping[str, Json]) -> str:
    try:
        return orjson.dumps(dict(factors)).decode()
    except orjson.JSONEncodeError as error:
        raise StoreError("the factors of a decision are no JSON") from error


def _update(connection: Connection, interaction_id: int, values: Mapping[str, object]) -> None:
    connection.execute(
        sa.update(INTERACTIONS).where(INTERACTIONS.c.id == interaction_id).values(dict(values))
    )


def _inserted(connection: Connection, table: sa.Table, values: Mapping[str, object]) -> int:
    inserted = connection.execute(sa.insert(table).values(dict(values)))
    key = inserted.inserted_primary_key
    if key is None:
        raise StoreError(f"{table.name} gave no id")
    return int(key[0])
