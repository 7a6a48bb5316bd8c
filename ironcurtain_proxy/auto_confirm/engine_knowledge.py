"""The engine's knowledge, read from the store in threads and cached, and the upkeep of the store.

    knowledge  ◀── cache ◀── refresh in the background, every 0.5 s while it is used

Parts of the knowledge have their own lifetimes: failures and queue 0.5 s, patterns and rates 2 s,
history 60 s. A call waits for a fresh read only if the cache is older than 5 s.

The store is opened when it is first needed. A session ends abandoned rows, removes old ones, and
copies the log. Each step is a transaction in the background, because the session may end in
between.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Final, Protocol, TypeVar, get_args

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    ApprovalPattern,
    Knowledge,
    OperationKind,
    RiskBand,
    SessionType,
    compile_path_regex,
)
from ironcurtain_proxy.auto_confirm.reviewer import Findings, LedgerError
from ironcurtain_proxy.auto_confirm.store.interactions import BATCH
from ironcurtain_proxy.auto_confirm.store.patterns import Learned
from ironcurtain_proxy.auto_confirm.store.rows import (
    EscalationTask,
    InteractionRow,
    PatternRow,
    StoreError,
)
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.mailbox.mailboxes import is_alive, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.model.decision import in_record
from ironcurtain_proxy.model.escalation import Escalation, cut
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.steady_clock import boot_id

# --- a store that is opened when it is first needed -----------------------------------------------
# The store, opened when it is first needed, and again after it was lost.


class LazyStore:
    """A store that is opened when it is first needed, in the thread that needs it."""

    def __init__(self, open_it: Callable[[], Store]) -> None:
        self._open = open_it
        self._lock = Lock()
        self._store: Store | None = None
        self._is_lost = self._is_closed = False

    def get(self) -> Store:
        """Return the store.

        Raises:
            StoreError: it cannot be opened. The next one who asks tries again.
        """
        with self._lock:
            if self._is_closed:
                raise StoreError("the store was closed")
            if self._store is None:
                self._store = self._open()
            elif self._is_lost:
                self._store = self._store.reopened()
            self._is_lost = False
            return self._store

    def current(self) -> Store | None:
        """Return the store if it is open and was not lost. Waits for nobody."""
        return None if self._is_lost else self._store

    def lose(self) -> None:
        """Note that the open store was lost: the next caller opens it anew."""
        self._is_lost = True

    def close(self) -> None:
        """Close the store for good: a late thread does not open it again."""
        with self._lock:
            self._is_closed = True
            if self._store is not None:
                self._store.close()
                self._store = None


_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

QUIET: Final = 10.0
"""Seconds after a session's first question before anything is removed."""

PAUSE: Final = 0.25
"""Seconds between two batches, for those who wait to write."""

AGAIN: Final = 3600.0
"""Seconds between two checks whether a purge is due."""

COPY: Final = 5.0
"""Seconds between two looks at the log of an SQLite store, once there was a question."""

LOOK: Final = 60.0
"""Seconds between two searches for rows of killed proxies."""


class InThread(Protocol):
    """Asks the store in a thread, with a deadline."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run it in a thread. Raise `LedgerError` where it fails."""


class Upkeep(Struct, kw_only=True):
    """One for each session."""

    store: LazyStore
    in_thread: InThread
    keep: timedelta | None = None
    """The time for which the store keeps ended interactions. `None` means for ever."""
    quiet: float = QUIET
    used: anyio.Event = msgspec.field(default_factory=anyio.Event)
    """Set with the first question."""
    _said: set[str] = msgspec.field(default_factory=set)
    """The steps that failed last time."""

    async def run(self) -> None:
        """Work until cancelled. Never raises otherwise."""
        async with anyio.create_task_group() as tasks:
            if self.keep is not None:
                tasks.start_soon(self._remove_old, self.keep)
            tasks.start_soon(self._copy_log)
            while True:
                await self._tried("what killed proxies left open stays so", self._end_abandoned)
                await anyio.sleep(LOOK)

    async def _remove_old(self, keep: timedelta) -> None:
        await self.used.wait()
        await anyio.sleep(self.quiet)
        while True:
            await self._tried("old interactions are not removed", lambda: self._purge(keep))
            await anyio.sleep(AGAIN)

    async def _copy_log(self) -> None:
        await self.used.wait()
        while True:
            await anyio.sleep(COPY)
            await self._tried("the store's log is not copied into its file", self._copy)

    async def _copy(self) -> None:
        # A server has no such file, and a store that is not open has nothing new to copy.
        store = self.store.current()
        if store is not None and store.has_log:
            await self.in_thread(store.copy_log)

    async def _tried(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            self._said.discard(what)
        except LedgerError as error:
            # Logged once in an outage: each of these steps is tried again and again.
            _log.log(
                logging.DEBUG if what in self._said else logging.WARNING, "%s: %s", what, error
            )
            self._said.add(what)
        except Exception:  # noqa: BLE001  a defect here must not end the engine
            _log.exception("%s", what)

    async def _end_abandoned(self) -> None:
        count = total = await self.in_thread(lambda: self.store.get().end_abandoned(is_gone))
        while count == BATCH:
            await anyio.sleep(PAUSE)
            count = await self.in_thread(lambda: self.store.get().end_abandoned(is_gone))
            total += count
        if total:
            _log.info("%d open questions of proxies that are gone were ended", total)

    async def _purge(self, keep: timedelta) -> None:
        count = total = await self.in_thread(lambda: self.store.get().begin_purge(keep))
        while count == BATCH:
            await anyio.sleep(PAUSE)
            count = await self.in_thread(lambda: self.store.get().go_on_purging(keep))
            total += count
        if total:
            days = keep / timedelta(days=1)
            _log.info("%d interactions older than %g days were removed", total, days)


_PARTS: Final = 4


def this_owner() -> str | None:
    """Return the identity of this process, boot and PID namespace, or None if unknown.

    Machines and containers may share a store, and a process id is meaningful in one boot and one
    PID namespace only. Outside of these, an owner never counts as gone.
    """
    place, process = _place(), this_process()
    if place is None or not process.start_time:
        return None
    return f"{place} {process.pid} {process.start_time}"


def is_gone(owner: str) -> bool:
    """Return whether a process has certainly ended; False for values of other programs."""
    *place, number, started = owner.split(" ") if owner.count(" ") == _PARTS - 1 else ("", "", "")
    if " ".join(place) != _place() or not (number.isascii() and number.isdigit() and started):
        return False
    try:
        return not is_alive(Owner(int(number), started))
    except (OverflowError, ValueError):
        return False


def _place() -> str | None:
    with suppress(OSError):
        namespace = Path("/proc/self/ns/pid").readlink()
        return f"{boot_id()} {namespace}" if boot_id() else None
    return None


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
