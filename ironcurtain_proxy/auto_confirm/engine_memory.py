"""The engine's memory: reads and writes of the store, in threads with a deadline each.

Theory of operation: the engine decides on what earlier calls taught it (`Knowledge`), and its own
decisions become rows that later decisions read.

    knowledge  ◀── cache ◀── refresh in the background, every 0.5 s while it is used
    opened     ──▶ a row with the decision, or with a task for a reviewer
    settled    ──▶ the ruling of that task          ended ──▶ whether the call succeeded

Parts of the knowledge have their own lifetimes: failures and queue 0.5 s, patterns and rates 2 s,
history 60 s. A call waits for a fresh read only if the cache is older than 5 s.

No row may stay open that nobody will close: writing the first row is shielded from cancellation,
and a row whose writing failed or timed out is noted as owed and closed later (see `owed`). If the
store fails, a `LedgerError` is raised and a reviewer is asked instead of the engine.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from ironcurtain_proxy.auto_confirm.engine.decision import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import InteractionHistory, Knowledge
from ironcurtain_proxy.auto_confirm.engine_memory_rows import pattern_of, row_of, task_of
from ironcurtain_proxy.auto_confirm.lazy_store import LazyStore
from ironcurtain_proxy.auto_confirm.owed import OwedLines
from ironcurtain_proxy.auto_confirm.reviewer import AFTER_SILENCE, WITHDRAWN, Findings, LedgerError
from ironcurtain_proxy.auto_confirm.store.faults import AlreadyDecidedError, StoreLostError
from ironcurtain_proxy.auto_confirm.store.rows import (
    TIMEOUT,
    Ending,
    EscalationTask,
    FinalStatus,
    PermissionDecision,
)
from ironcurtain_proxy.auto_confirm.upkeep import QUIET, Upkeep, this_owner
from ironcurtain_proxy.auto_confirm.windows import Windows
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.escalation import (
    Approved,
    Escalation,
    EscalationId,
    Ruling,
    Unreachable,
)
from ironcurtain_proxy.ports import Clock

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE: Final = 10.0
"""Seconds for one question or one line: the first one may have to wait for the store to open."""

FRESH: Final = 2.0
"""Seconds for which patterns, safe paths and rates are cached."""

_MOST_ROWS: Final = 10_000
"""Approvals that nobody took, or that came to nothing later, are not waited for."""

HISTORY_LASTS: Final = 60.0
"""Seconds for which earlier work is cached: it is read from a thousand rows, and changes
slowly."""

LATELY: Final = 0.5
"""Seconds between two reads of a session's health, its failures and the queue."""

STALE: Final = 5.0
"""Seconds after which a call waits for a fresh read instead of using the cache."""

_ATTEMPTS: Final = 3
"""The attempts after a loss of the store during a read."""


@dataclass(slots=True, kw_only=True)
class StoreLedger:
    """Implements `auto_confirm.reviewer.Ledger`."""

    store: LazyStore
    clock: Clock
    windows: Windows
    timeout_minutes: float
    keep: timedelta | None = None
    """The time for which the store keeps ended interactions; None: for ever."""
    quiet: float = QUIET
    _began: datetime = field(init=False)
    """The start. Older open rows were left by an earlier process of the session that was killed."""
    _owner: str | None = field(init=False)
    _rows: dict[EscalationId, int] = field(default_factory=dict)
    _pattern_ids: dict[str, int] = field(default_factory=dict)
    _lasting: tuple[float, Knowledge] | None = None
    _history: tuple[float, InteractionHistory] | None = None
    _lately: dict[str, tuple[float, Knowledge]] = field(default_factory=dict)
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))
    _owed: OwedLines = field(init=False)
    _upkeep: Upkeep = field(init=False)
    _has_failed: bool = False
    _times_lost: int = 0

    def __post_init__(self) -> None:
        self._began = self.clock.now()
        self._owner = this_owner()
        self._owed = OwedLines(self._in_thread)
        self._upkeep = Upkeep(
            store=self.store, in_thread=self._in_thread, keep=self.keep, quiet=self.quiet
        )

    async def run(self) -> None:
        """Refresh the cache while it is used, and do the store's upkeep.

        Never raises but when cancelled.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._upkeep.run)
            tasks.start_soon(self._owed.run)
            await self._keep_fresh()

    async def _keep_fresh(self) -> None:
        try:
            # The first question finds the library loaded and its statements compiled.
            await self._in_thread(lambda: self._of_session("", self.clock.now()))
        except LedgerError as error:
            _log.warning("the auto-confirm engine approves nothing: %s", error)
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            for session in list(self._lately):
                try:
                    await self._refresh(session)
                except LedgerError as error:
                    # The cache becomes stale, and nothing is approved then.
                    _log.warning("the store does not answer: %s", error)
            await anyio.sleep(LATELY)

    async def aclose(self) -> None:
        """Write the owed lines if possible, and close the connections."""
        await self._owed.pay()
        with suppress(LedgerError):
            await self._in_thread(self.store.close)

    async def knowledge(self, session: str) -> Knowledge:
        """The knowledge, at most a few seconds old."""
        known = self._lately.get(session)
        self._wanted.set()
        self._upkeep.used.set()
        if known is None or self.clock.monotonic() - known[0] > STALE:
            known = await self._refresh(session)
        now = self.clock.now()
        # Always read anew: whoever opens a window relies on it at once. The two files are small,
        # and a thread would cost more than the decision.
        windows = self.windows.read(now)
        return replace(
            known[1],
            moment=now.astimezone(),
            testing=windows.testing,
            deployment=windows.deployment,
        )

    async def _refresh(self, session: str) -> tuple[float, Knowledge]:
        for _ in range(_ATTEMPTS):
            lost, asked = self._times_lost, self.clock.monotonic()
            known = await self._in_thread(lambda: self._of_session(session, self.clock.now()))
            if lost == self._times_lost:
                self._lately[session] = (asked, known)
                return asked, known
            # Another task found meanwhile that the store was lost, so the result is void.
            self._forget()
        raise self._fault("the store was lost while it was asked")

    def _of_session(self, session: str, now: datetime) -> Knowledge:
        lasting = self._lasting_knowledge()
        health = self.store.get().session_health(session, now, self._began)
        return replace(
            lasting,
            queue_depth=self.store.get().pending_of_other_sessions(session),
            # A session without a history is new, not unknown: the operator named its kind.
            health="normal" if health == "unknown" else health,
            earlier_failures=self.store.get().earlier_failures(session, now),
        )

    def _lasting_knowledge(self) -> Knowledge:
        now = self.clock.monotonic()
        if self._lasting is None or now - self._lasting[0] > FRESH:
            self._lasting = (now, self._read_lasting(self.clock.now()))
        return self._lasting[1]

    def _read_lasting(self, now: datetime) -> Knowledge:
        rows = self.store.get().patterns()
        self._pattern_ids = {row.name: row.id for row in rows}
        patterns = [pattern_of(row) for row in rows]
        return Knowledge(
            moment=now,
            history=self._read_history(),
            patterns=tuple([pattern for pattern in patterns if pattern is not None]),
            safe_paths=self.store.get().safe_paths(),
            approve_rates=self.store.get().approve_rates(),
        )

    def _read_history(self) -> InteractionHistory:
        now = self.clock.monotonic()
        if self._history is None or now - self._history[0] > HISTORY_LASTS:
            self._history = (now, self.store.get().recent_work())
        return self._history[1]

    async def opened(
        self, escalation: Escalation, decision: EngineDecision, found: Findings
    ) -> None:
        """Write a decision down, with its approval if it is one."""
        pattern = None if found.pattern is None else self._pattern_ids.get(found.pattern)
        row = replace(row_of(escalation, decision, found, pattern), owner=self._owner)
        then: PermissionDecision | EscalationTask
        if decision.approves:
            then = PermissionDecision(
                decision="approved", decided_by=decision.decided_by, reason=decision.reason
            )
        else:
            then = task_of(escalation, decision, found.scope, self.timeout_minutes)
        line = _LedgerLine(lambda: self.store.get().record_call(row, then, pattern))
        # An unknown row would stay open for ever, and its session would count as stuck.
        with anyio.CancelScope(shield=True):
            try:
                row_id = await self._in_thread(line.write)
            except LedgerError:
                self._owed.add(escalation.id, partial(self._unwrite, escalation.id, line))
                raise
        if self._has_failed:
            self._has_failed = False
            _log.warning("the store answers again: so does the auto-confirm engine")
        while len(self._rows) >= _MOST_ROWS:
            del self._rows[next(iter(self._rows))]
        self._rows[escalation.id] = row_id

    async def passed_on(
        self, escalation: Escalation, source: str, target: str, reason: str
    ) -> None:
        """Note that another reviewer is asked."""
        await self._noted(
            escalation.id,
            lambda row: self.store.get().record_escalation(
                row, source, target, reason, escalation.id
            ),
        )

    async def settled(self, escalation: Escalation, ruling: Ruling) -> bool:
        """Note how it ended."""
        approved = isinstance(ruling, Approved)
        # An unreachable reviewer says nothing about the session, and nobody decided.
        by = (
            "engine:unreachable"
            if isinstance(ruling, Unreachable) or ruling == WITHDRAWN
            else ruling.by
        )
        automatic = approved and (by == "auto-approver" or by.startswith("engine:"))
        status: FinalStatus = "rejected"
        if approved:
            status = "auto_approved" if automatic else "approved"
        settlement = Ending(
            status=status,
            # An approval after silence is an effect of the clock: the session was stuck.
            decided_by=TIMEOUT if by == AFTER_SILENCE else by,
            reason=getattr(ruling, "reason", "") or by,
        )
        # An approval that cannot be written at once is none, even if it can be written later.
        later = settlement
        if automatic and by.startswith("engine:"):
            later = replace(settlement, status="rejected", reason="its approval was not written")
        written = await self._noted(
            escalation.id,
            lambda row: self.store.get().settle(row, settlement, escalation.id),
            lambda row: self.store.get().settle(row, later, escalation.id),
        )
        if not approved:
            self._rows.pop(escalation.id, None)
        return written

    async def ended(self, identifier: EscalationId, *, succeeded: bool | None) -> None:
        """Note how a call that was approved ended; one that was not made says nothing."""
        if succeeded is not None:
            await self._noted(
                identifier,
                lambda row: self.store.get().record_outcome(
                    row, succeeded=succeeded, request=identifier
                ),
            )
        self._rows.pop(identifier, None)

    async def _noted(
        self,
        identifier: EscalationId,
        write: Callable[[int], object],
        later: Callable[[int], object] | None = None,
    ) -> bool:
        """Write a line of a question now, or as soon as the store works again."""
        row = self._rows.get(identifier)
        if row is None:
            return False
        if not self._owed.has(identifier):
            try:
                return await self._in_thread(lambda: write(row)) is not False
            except LedgerError as error:
                _log.warning("how an escalation ended is written into the store later: %s", error)
        self._owed.add(identifier, partial(_if_it_is_open, partial(later or write, row)))
        return False

    def _unwrite(self, identifier: EscalationId, line: "_LedgerLine") -> None:
        """Remove a row that was perhaps written for a question that a reviewer decides now."""
        if line.is_under_way:
            raise LedgerError("it is still being written")
        self.store.get().forget_request(identifier)

    def _forget(self) -> None:
        """Clear the cache, because it comes from another store."""
        self._lasting = self._history = None
        self._lately.clear()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            with anyio.fail_after(DEADLINE):
                return await anyio.to_thread.run_sync(
                    work, abandon_on_cancel=True, limiter=self._limiter
                )
        except TimeoutError:
            raise self._fault("the store did not answer in time") from None
        except StoreLostError as error:
            self.store.lose()
            self._times_lost += 1
            self._forget()
            raise self._fault(f"the store failed: {error}") from error
        except (IronCurtainError, OSError) as error:
            raise self._fault(f"the store failed: {error}") from error
        except Exception as error:
            # Other programs may write anything there, which must not end the proxy.
            raise self._fault(f"the store failed: {type(error).__name__}") from error

    def _fault(self, words: str) -> LedgerError:
        self._has_failed = True
        return LedgerError(words)


class _LedgerLine:
    """A line that is written once, in a thread that may outlive its caller."""

    def __init__(self, write: Callable[[], int]) -> None:
        self._write = write
        self.is_under_way = False

    def write(self) -> int:
        self.is_under_way = True
        try:
            return self._write()
        finally:
            self.is_under_way = False


def _if_it_is_open(write: Callable[[], object]) -> None:
    """Write the end of a question, unless it is written."""
    with suppress(AlreadyDecidedError):
        write()
