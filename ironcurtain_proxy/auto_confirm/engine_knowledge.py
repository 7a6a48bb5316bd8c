"""The engine's knowledge, cached: read in threads, and refreshed while calls use it.

    knowledge  ◀── cache ◀── refresh in the background, every 0.5 s while it is used

Parts of the knowledge have their own lifetimes: failures and queue 0.5 s, patterns and rates 2 s,
history 60 s. A call waits for a fresh read only if the cache is older than 5 s.
"""

import logging
from dataclasses import replace
from datetime import datetime
from typing import Final, get_args

import anyio
import msgspec
from msgspec import Struct

from ironcurtain_proxy.auto_confirm.briefing import cut
from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import Knowledge
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.patterns import (
    ApprovalPattern,
    RiskBand,
    SessionType,
    compile_path_regex,
)
from ironcurtain_proxy.auto_confirm.reviewer import Findings, LedgerError
from ironcurtain_proxy.auto_confirm.store.patterns import Learned
from ironcurtain_proxy.auto_confirm.store.rows import EscalationTask, InteractionRow, PatternRow
from ironcurtain_proxy.auto_confirm.upkeep import InThread, LazyStore
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.decision import in_record
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.ports import Clock

# --- values as rows -------------------------------------------------------------------------------
# The conversion between the store's rows and the engine's values.


LONGEST_TEXT: Final = 4096
"""Characters of a text in a row: recent rows are read again and again."""

_OPERATIONS: Final[tuple[OperationKind, ...]] = get_args(OperationKind)
_SESSION_TYPES: Final[tuple[SessionType, ...]] = get_args(SessionType)
_RISKS: Final[tuple[RiskBand, ...]] = get_args(RiskBand)


def row_of(
    escalation: Escalation, decision: EngineDecision, found: Findings, pattern: int | None
) -> InteractionRow:
    """Return the row of a decision.

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
        # A shortened scope would be another scope, and an agent can name any number of paths.
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
    """Return a question to a reviewer."""
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
    """Return the pattern of a row, or None if the engine does not understand the row."""
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


_log: Final = logging.getLogger(__name__)

FRESH: Final = 2.0
"""Seconds for which patterns, safe paths and rates are cached."""

HISTORY_LASTS: Final = 60.0
"""Seconds for which earlier work is cached, which is read from a thousand rows and changes slowly,
and the rates as they were counted from the first decision on."""

LATELY: Final = 0.5
"""Seconds between two reads of a session's health, its failures and the queue."""

STALE: Final = 5.0
"""Seconds after which a call waits for a fresh read instead of using the cache."""

AFTER_THE_CALL: Final = 0.05
"""Seconds from a call to the refresh that it causes: the call is written down meanwhile, and the
two would take the interpreter from each other."""

_ATTEMPTS: Final = 3
"""The attempts after a loss of the store during a read."""


class _Lasting(Struct, frozen=True):
    """The knowledge that all sessions share, and when it was asked for."""

    asked: float
    history_asked: float
    learned: Learned
    knowledge: Knowledge


class CachedKnowledge(Struct, kw_only=True):
    """The knowledge of one store."""

    store: LazyStore
    clock: Clock
    began: datetime
    """The start. Older open rows were left by an earlier process of the session that was killed."""
    in_thread: InThread
    pattern_ids: dict[str, int] = msgspec.field(default_factory=dict)
    """The ids of the patterns, by name."""
    _lasting: _Lasting | None = None
    _lately: dict[str, tuple[float, Knowledge]] = msgspec.field(default_factory=dict)
    _wanted: anyio.Event = msgspec.field(default_factory=anyio.Event)
    _times_forgotten: int = 0

    async def of(self, session: str) -> Knowledge:
        """Return the knowledge for a question of a session, at most a few seconds old.

        Raises:
            LedgerError: the store fails.
        """
        known = self._lately.get(session)
        self._wanted.set()
        if known is None or self._age(known) > STALE:
            known = await self._refresh(session)
        return known[1]

    def forget(self) -> None:
        """Clear the cache, because it comes from another store."""
        self._times_forgotten += 1
        self._lasting = None
        self._lately.clear()

    async def keep_fresh(self, first: str) -> None:
        """Refresh the cache while it is used, until cancelled.

        Args:
            first: the session whose first question finds all read, the library loaded, and its
                statements compiled.
        """
        try:
            await self._refresh(first)
        except LedgerError as error:
            _log.warning("the auto-confirm engine approves nothing: %s", error)
        while True:
            await self._wanted.wait()
            await anyio.sleep(AFTER_THE_CALL)
            self._wanted = anyio.Event()
            for session, known in list(self._lately.items()):
                if self._age(known) < LATELY:
                    continue
                try:
                    await self._refresh(session)
                except LedgerError as error:
                    # The cache becomes stale, and nothing is approved then.
                    _log.warning("the store does not answer: %s", error)
            await anyio.sleep(LATELY)

    def _age(self, known: tuple[float, Knowledge]) -> float:
        return self.clock.monotonic() - known[0]

    async def _refresh(self, session: str) -> tuple[float, Knowledge]:
        for _ in range(_ATTEMPTS):
            forgotten, asked = self._times_forgotten, self.clock.monotonic()
            known = await self.in_thread(lambda: self._read(session))
            if forgotten == self._times_forgotten:
                self._lately[session] = (asked, known)
                return asked, known
            # Another task found meanwhile that the store was lost, so the result is void.
            self._lasting = None
        raise LedgerError("the store was lost while it was asked")

    def _read(self, session: str) -> Knowledge:
        lasting = self._read_lasting()
        state = self.store.get().session_state(session, self.clock.now(), self.began)
        return replace(
            lasting,
            queue_depth=state.pending_of_others,
            # A session without a history is new, not unknown: the operator named its kind.
            health="normal" if state.health == "unknown" else state.health,
            earlier_failures=state.earlier_failures,
        )

    def _read_lasting(self) -> Knowledge:
        known, now = self._lasting, self.clock.monotonic()
        if known is not None and now - known.asked <= FRESH:
            return known.knowledge
        kept = known if known is not None and now - known.history_asked <= HISTORY_LASTS else None
        learned = self.store.get().learned(None if kept is None else kept.learned)
        self._lasting = found = _Lasting(
            asked=now,
            history_asked=now if kept is None else kept.history_asked,
            learned=learned,
            knowledge=self._knowledge(learned),
        )
        self.pattern_ids = {row.name: row.id for row in learned.patterns}
        return found.knowledge

    def _knowledge(self, learned: Learned) -> Knowledge:
        patterns = [pattern_of(row) for row in learned.patterns]
        return Knowledge(
            moment=self.clock.now(),
            history=learned.history,
            patterns=tuple([pattern for pattern in patterns if pattern is not None]),
            safe_paths=learned.safe_paths,
            approve_rates=learned.rates,
        )
