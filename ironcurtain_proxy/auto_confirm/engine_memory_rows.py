"""The conversion between the store's rows and the engine's values."""

import logging
from typing import Final, get_args

from ironcurtain_proxy.auto_confirm.briefing import cut
from ironcurtain_proxy.auto_confirm.engine.decision import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.path_patterns import compile_path_regex
from ironcurtain_proxy.auto_confirm.engine.patterns import ApprovalPattern, RiskBand
from ironcurtain_proxy.auto_confirm.engine.sessions import SessionType
from ironcurtain_proxy.auto_confirm.reviewer import Findings
from ironcurtain_proxy.auto_confirm.store.rows import EscalationTask, InteractionRow, PatternRow
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.decider import in_record
from ironcurtain_proxy.model.escalation import Escalation

_log: Final = logging.getLogger(__name__)

LONGEST_TEXT: Final = 4096
"""Characters of a text in a row: recent rows are read again and again."""

_OPERATIONS: Final[tuple[OperationKind, ...]] = get_args(OperationKind)
_SESSION_TYPES: Final[tuple[SessionType, ...]] = get_args(SessionType)
_RISKS: Final[tuple[RiskBand, ...]] = get_args(RiskBand)


def row_of(
    escalation: Escalation, decision: EngineDecision, found: Findings, pattern: int | None
) -> InteractionRow:
    """The row of a decision.

    Args:
        escalation: the question.
        decision: the engine's.
        found: what it found out on its way.
        pattern: the id of the pattern that approved it.
    """
    return InteractionRow(
        request_id=escalation.id,
        session_name=escalation.session,
        session_type=found.session_type,
        operation=decision.operation,
        # A cut scope would be another one; and an agent can name any number of paths.
        scope=found.scope if len(found.scope) <= LONGEST_TEXT else None,
        matched_pattern_id=pattern,
        status="auto_approved" if decision.approves else "pending",
        prompt_text=cut(escalation.ground.reason, LONGEST_TEXT),
        action_requested=f"{escalation.server}/{escalation.tool}",
        risk_score=decision.risk / 100,
        risk_band=decision.band,
        confidence_score=decision.confidence / 100,
        factors=decision.as_json(),
        decision_ms=None if found.elapsed is None else found.elapsed * 1000,
    )


def task_of(
    escalation: Escalation, decision: EngineDecision, scope: str, timeout_minutes: float
) -> EscalationTask:
    """A question to a reviewer."""
    return EscalationTask(
        assign_to=decision.target or "human",
        content=(
            f"Permission review required:\n{decision.operation}\n\n"
            f"Scope: {cut(scope, LONGEST_TEXT)}\nReason: {decision.reason}"
        ),
        reason=cut(escalation.ground.reason, LONGEST_TEXT),
        decided_by=in_record(decision.decided_by),
        priority=decision.priority or 9,
        timeout_minutes=timeout_minutes,
    )


def pattern_of(row: PatternRow) -> ApprovalPattern | None:
    """The pattern of a row; None: the engine does not understand the row."""
    operation = next((word for word in _OPERATIONS if word == row.operation), None)
    session_type = next((word for word in _SESSION_TYPES if word == row.session_type), None)
    risk = next((word for word in _RISKS if word == row.risk_level), None)
    strange = (row.session_type is not None and session_type is None) or (
        row.risk_level is not None and risk is None
    )
    if operation is None or strange:
        return None
    try:
        scope = None if row.scope_regex is None else compile_path_regex(row.scope_regex)
    except IronCurtainError as error:
        _log.warning("pattern %s approves nothing: %s", row.name, error)
        return None
    return ApprovalPattern(
        name=row.name,
        operation=operation,
        scope=scope,
        session_type=session_type,
        risk_level=risk,
        auto_approve=row.auto_approve,
    )
