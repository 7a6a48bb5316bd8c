"""Interactions and decisions to fill a store with."""

import os
from itertools import count

from ironcurtain_proxy.auto_confirm.engine.interaction import RiskBand
from ironcurtain_proxy.auto_confirm.store.rows import (
    Ending,
    EscalationTask,
    FinalStatus,
    InteractionRow,
    PermissionDecision,
    Status,
)
from ironcurtain_proxy.auto_confirm.store.store import Store
from tests.auto_confirm.store.direct import open_task, record_interaction

_NUMBERS = count(1)


def interaction(  # noqa: PLR0913  what tests vary
    *,
    session: str = "s1",
    operation: str = "file_edit",
    scope: str | None = "/srv/app/docs/a.md",
    status: Status = "pending",
    band: RiskBand | None = "LOW",
    session_type: str | None = None,
    pattern: int | None = None,
    decision_ms: float | None = None,
    request: str | None = None,
) -> InteractionRow:
    return InteractionRow(
        # Another process counts as well.
        request_id=request or f"request-{os.getpid()}-{next(_NUMBERS)}",
        session_name=session,
        session_type=session_type,
        operation=operation,
        scope=scope,
        status=status,
        risk_band=band,
        matched_pattern_id=pattern,
        decision_ms=decision_ms,
    )


def approval(by: str = "engine:pattern", reason: str = "Exact pattern match") -> PermissionDecision:
    return PermissionDecision(decision="approved", decided_by=by, reason=reason)


def task(to: str = "architect_manager", reason: str = "High risk") -> EscalationTask:
    return EscalationTask(
        assign_to=to, content="Permission review", reason=reason, decided_by="engine:risk"
    )


def ends(
    status: FinalStatus = "approved", by: str = "reviewer:architect", reason: str = "fine"
) -> Ending:
    return Ending(status=status, decided_by=by, reason=reason)


def auto_approved(store: Store, row: InteractionRow | None = None) -> int:
    """One that the engine approved by itself."""
    return record_interaction(store, row or interaction(status="auto_approved"), approval())


def reviewed(store: Store, row: InteractionRow | None = None, end: Ending | None = None) -> int:
    """One that a reviewer was asked about, and that ended."""
    identifier = record_interaction(store, row or interaction())
    open_task(store, identifier, task())
    assert store.end(identifier, end or ends())
    return identifier
