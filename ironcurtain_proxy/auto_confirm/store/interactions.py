"""Interactions and their trail, as statements on a connection. The caller holds the transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, assert_never, cast, get_args

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from ironcurtain_proxy.auto_confirm.store.faults import AlreadyDecidedError, StoreError
from ironcurtain_proxy.auto_confirm.store.rows import (
    MODEL,
    TIMEOUT,
    EscalationTask,
    Interaction,
    PermissionDecision,
    RecordedInteraction,
    RiskBand,
    Settlement,
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
"""Where a call still waits for its decision."""

OURS: Final = INTERACTIONS.c.request_id.is_not(None)
"""Rows that another program left in the table have no request, and count nowhere."""

_ASKED: Final[tuple[Status, ...]] = ("held", "escalated")


def _before(settlement: Settlement) -> tuple[Status, ...]:
    """From where an interaction may come to this end. From anywhere else it does not."""
    match settlement.status:
        case "auto_approved" if settlement.decided_by in (TIMEOUT, MODEL):
            # What the final table approves where nobody answered, and a model before they do.
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


def insert_interaction(connection: Connection, row: Interaction, now: datetime) -> int:
    """Write a new interaction; its id."""
    values = {
        "request_id": row.request_id,
        "session_name": row.session_name,
        "session_type": row.session_type,
        "operation": row.operation,
        "scope": row.scope,
        "status": row.status,
        "auto_approved": row.status == "auto_approved",
        "prompt_type": row.prompt_type,
        "prompt_text": row.prompt_text,
        "file_path": row.file_path,
        "action_requested": row.action_requested,
        "matched_pattern_id": row.matched_pattern_id,
        "risk_score": row.risk_score,
        "risk_band": row.risk_band,
        "confidence_score": row.confidence_score,
        "factors": _written(row.factors),
        "decision_ms": row.decision_ms,
        "owner": row.owner,
        "created_at": now,
        "responded_at": None if row.status in OPEN else now,
    }
    return _inserted(connection, INTERACTIONS, values)


def insert_decision(
    connection: Connection, interaction_id: int, decision: PermissionDecision, now: datetime
) -> int:
    """Write one line of the trail; its id.

    Raises:
        AlreadyDecidedError: the interaction has ended, and not so.
        StoreError: there is no such interaction.
    """
    found = connection.execute(
        sa.select(INTERACTIONS.c.status, INTERACTIONS.c.held_at)
        .where(INTERACTIONS.c.id == interaction_id)
        .with_for_update()
    ).first()
    if found is None:
        raise StoreError(f"there is no interaction {interaction_id}")
    if decision.decision == "approved" and found.status == "rejected":
        raise AlreadyDecidedError("the interaction was already refused")
    _update(connection, interaction_id, {"decided_by": decision.decided_by})
    if is_reviewer(decision.decided_by):
        _insert_reviewer_decision(connection, interaction_id, decision, found.held_at, now)
    values = {
        "interaction_id": interaction_id,
        "decision": decision.decision,
        "reason": decision.reason,
        "auto_decision": decision.is_automatic,
        "escalation_target": decision.escalation_target,
        "created_at": now,
        "decided_by": decision.decided_by,
    }
    return _inserted(connection, DECISIONS, values)


def _insert_reviewer_decision(
    connection: Connection,
    interaction_id: int,
    decision: PermissionDecision,
    held_at: datetime | None,
    now: datetime,
) -> None:
    seconds = None if held_at is None else max(0.0, (now - held_at).total_seconds())
    values = {
        "interaction_id": interaction_id,
        "decision": decision.decision,
        "decided_by": decision.decided_by,
        "decided_at": now,
        "reason": decision.reason,
        "response_seconds": seconds,
    }
    connection.execute(sa.insert(REVIEWER_DECISIONS).values(values))


def settle(
    connection: Connection, interaction_id: int, settlement: Settlement, now: datetime
) -> bool:
    """End an interaction and its open tasks. False if it is not where it could end so."""
    ended = connection.execute(
        sa.update(INTERACTIONS)
        .where(INTERACTIONS.c.id == interaction_id)
        .where(INTERACTIONS.c.status.in_(_before(settlement)))
        .values(
            status=settlement.status,
            auto_approved=settlement.status == "auto_approved",
            response=settlement.response,
            responded_at=now,
        )
    )
    if ended.rowcount != 1:
        return False
    insert_decision(connection, interaction_id, settlement.decision, now)
    outcome: TaskStatus = "withdrawn"
    if is_reviewer(settlement.decided_by):
        outcome = "answered"
    elif settlement.decided_by == TIMEOUT:
        outcome = "timed_out"
    still_open = (TASKS.c.interaction_id == interaction_id) & (TASKS.c.status == "open")
    connection.execute(sa.update(TASKS).where(still_open).values(status=outcome, answered_at=now))
    return True


def open_task(
    connection: Connection, interaction_id: int, task: EscalationTask, now: datetime
) -> int:
    """Put the question to a reviewer: task, trail and status together. The task's id.

    Raises:
        AlreadyDecidedError: the interaction has ended.
        StoreError: there is no such interaction.
    """
    found = connection.execute(
        sa.select(INTERACTIONS.c.status, INTERACTIONS.c.held_at)
        .where(INTERACTIONS.c.id == interaction_id)
        .with_for_update()
    ).first()
    if found is None:
        raise StoreError(f"there is no interaction {interaction_id}")
    if found.status not in OPEN:
        raise AlreadyDecidedError("the interaction has ended: nobody is asked any more")
    values = {
        "interaction_id": interaction_id,
        "type": task.type,
        "priority": task.priority,
        "timeout_minutes": task.timeout_minutes,
        "assign_to": task.assign_to,
        "content": task.content,
        "status": "open",
        "created_at": now,
    }
    task_id = _inserted(connection, TASKS, values)
    changes: dict[str, object] = {
        "status": "held" if found.status == "pending" else found.status,
        "held_at": found.held_at or now,
        "escalation_task_id": task_id,
        "escalation_target": task.assign_to,
        "escalation_reason": task.reason,
        "escalation_time": now,
    }
    _update(connection, interaction_id, changes)
    line = PermissionDecision(
        decision="escalated",
        decided_by=task.decided_by,
        reason=task.reason,
        escalation_target=task.assign_to,
    )
    insert_decision(connection, interaction_id, line, now)
    return task_id


def close_task(connection: Connection, task_id: int, status: TaskStatus, now: datetime) -> bool:
    """End one task. False if it had ended."""
    closed = connection.execute(
        sa.update(TASKS)
        .where((TASKS.c.id == task_id) & (TASKS.c.status == "open"))
        .values(status=status, answered_at=now)
    )
    return closed.rowcount == 1


def pass_on(
    connection: Connection,
    interaction_id: int,
    targets: tuple[str, str],
    reason: str,
    now: datetime,
) -> bool:
    """Note that one reviewer was given up for another. False if the interaction is not held."""
    passed = connection.execute(
        sa.update(INTERACTIONS)
        .where(INTERACTIONS.c.id == interaction_id)
        .where(INTERACTIONS.c.status.in_(_ASKED))
        .values(
            status="escalated",
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
    still_open = (TASKS.c.interaction_id == interaction_id) & (TASKS.c.status == "open")
    connection.execute(
        sa.update(TASKS).where(still_open).values(status="timed_out", answered_at=now)
    )
    line = PermissionDecision(
        decision="timed_out", decided_by=TIMEOUT, reason=reason, escalation_target=targets[0]
    )
    insert_decision(connection, interaction_id, line, now)
    return True


def set_outcome(connection: Connection, interaction_id: int, *, succeeded: bool) -> int | None:
    """Note whether the call succeeded. The pattern that approved it, if one did, the first time."""
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


def find_interaction(connection: Connection, interaction_id: int) -> RecordedInteraction | None:
    """One of our interactions; None: there is none of that id."""
    row = connection.execute(
        sa.select(INTERACTIONS).where((INTERACTIONS.c.id == interaction_id) & OURS)
    ).first()
    return None if row is None else _read(row)


def trail(connection: Connection, interaction_id: int) -> tuple[PermissionDecision, ...]:
    """What was decided about an interaction, in order."""
    rows = connection.execute(
        sa.select(DECISIONS)
        .where(DECISIONS.c.interaction_id == interaction_id)
        .order_by(DECISIONS.c.id)
    )
    return tuple(
        PermissionDecision(
            decision=row.decision,
            decided_by=row.decided_by or "",
            reason=row.reason or "",
            escalation_target=row.escalation_target,
        )
        for row in rows
    )


def _read(row: Row[tuple[object, ...]]) -> RecordedInteraction:
    if row.status not in get_args(Status):
        raise StoreError(f"interaction {row.id} has a status that is none")
    return RecordedInteraction(
        id=row.id,
        request_id=row.request_id,
        session_name=row.session_name or "",
        operation=row.operation or "",
        scope=row.scope,
        status=row.status,
        risk_score=row.risk_score,
        risk_band=cast("RiskBand | None", row.risk_band),
        confidence_score=row.confidence_score,
        auto_approved=bool(row.auto_approved),
        decided_by=row.decided_by,
        response=row.response,
        escalation_target=row.escalation_target,
        escalation_reason=row.escalation_reason,
        escalation_time=row.escalation_time,
        escalation_task_id=row.escalation_task_id,
        escalation_count=row.escalation_count or 0,
        created_at=row.created_at,
        held_at=row.held_at,
        responded_at=row.responded_at,
        factors=_factors(row.factors),
    )


def _written(factors: Mapping[str, Json]) -> str:
    try:
        return orjson.dumps(dict(factors)).decode()
    except orjson.JSONEncodeError as error:
        raise StoreError("the factors of a decision are no JSON") from error


def _factors(text: str | None) -> Mapping[str, Json]:
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


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
