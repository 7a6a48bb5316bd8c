"""What the product writes in one transaction, step by step; and what is written, read back."""

from dataclasses import dataclass
from datetime import datetime

import orjson
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.store import interactions, patterns
from ironcurtain_proxy.auto_confirm.store.rows import (
    EscalationTask,
    InteractionRow,
    PermissionDecision,
    Status,
    StoreError,
)
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.auto_confirm.store.tables import DECISIONS, INTERACTIONS
from ironcurtain_proxy.model.values import Json


@dataclass(frozen=True)
class Recorded:
    """An interaction as it stands."""

    id: int
    request_id: str
    session_name: str | None
    operation: str | None
    scope: str | None
    status: Status
    risk_score: float
    risk_band: str | None
    confidence_score: float
    auto_approved: bool
    decided_by: str | None
    response: str | None
    escalation_target: str | None
    escalation_reason: str | None
    escalation_time: datetime | None
    escalation_task_id: int | None
    escalation_count: int
    created_at: datetime | None
    held_at: datetime | None
    responded_at: datetime | None
    factors: dict[str, Json]


def record_interaction(
    store: Store, row: InteractionRow, decision: PermissionDecision | None = None
) -> int:
    now = store._clock.now()

    def work(connection: sa.Connection) -> int:
        identifier = interactions.insert_interaction(connection, row, now)
        if decision is not None:
            _insert_decision(connection, identifier, decision, now)
        return identifier

    return store._database.write(work)


def record_decision(store: Store, identifier: int, decision: PermissionDecision) -> int:
    now = store._clock.now()
    return store._database.write(lambda c: _insert_decision(c, identifier, decision, now))


def open_task(store: Store, identifier: int, task: EscalationTask) -> int:
    now = store._clock.now()
    return store._database.write(lambda c: _open_task(c, identifier, task, now))


def use_pattern(store: Store, pattern: int) -> bool:
    return store._database.write(lambda c: patterns.count_use(c, pattern))


def recorded(store: Store, identifier: int) -> Recorded | None:
    mine = (INTERACTIONS.c.id == identifier) & interactions.OURS
    row = store.read(lambda c: c.execute(sa.select(INTERACTIONS).where(mine)).first())
    if row is None:
        return None
    values = {name: getattr(row, name) for name in Recorded.__dataclass_fields__}
    return Recorded(**(values | {"factors": orjson.loads(row.factors or "{}")}))


def pending_of_others(store: Store, session: str) -> int:
    return store.session_state(session, store._clock.now()).pending_of_others


def trail(store: Store, identifier: int) -> tuple[PermissionDecision, ...]:
    wanted = DECISIONS.c.interaction_id == identifier
    found = sa.select(DECISIONS).where(wanted).order_by(DECISIONS.c.id)
    return tuple(
        PermissionDecision(
            decision=row.decision,
            decided_by=row.decided_by or "",
            reason=row.reason or "",
            escalation_target=row.escalation_target,
        )
        for row in store.read(lambda c: c.execute(found).all())
    )


def _insert_decision(
    connection: sa.Connection, interaction_id: int, decision: PermissionDecision, now: datetime
) -> int:
    status, held_at = _locked(connection, interaction_id)
    interactions._refuse_other_end(decision, status)
    interactions._update(connection, interaction_id, {"decided_by": decision.decided_by})
    return interactions._insert_line(connection, interaction_id, decision, held_at, now)


def _open_task(
    connection: sa.Connection, interaction_id: int, task: EscalationTask, now: datetime
) -> int:
    found = _locked(connection, interaction_id)
    interactions._refuse_other_end(task, found[0])
    return interactions._put_question(connection, interaction_id, task, found, now)


def _locked(connection: sa.Connection, interaction_id: int) -> tuple[Status, datetime | None]:
    found = connection.execute(
        sa.select(INTERACTIONS.c.status, INTERACTIONS.c.held_at)
        .where(INTERACTIONS.c.id == interaction_id)
        .with_for_update()
    ).first()
    if found is None:
        raise StoreError(f"there is no interaction {interaction_id}")
    return found.status, found.held_at
