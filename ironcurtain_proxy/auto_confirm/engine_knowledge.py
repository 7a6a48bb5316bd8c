"""The engine's knowledge, cached: read in threads, and refreshed while calls use it.

    knowledge  ◀── cache ◀── refresh in the background, every 0.5 s while it is used

Parts of the knowledge have their own lifetimes: failures and queue 0.5 s, patterns and rates 2 s,
history 60 s. A call waits for a fresh read only if the cache is older than 5 s.
"""

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import anyio

from ironcurtain_proxy.auto_confirm.engine.interaction import Knowledge
from ironcurtain_proxy.auto_confirm.engine_memory_rows import pattern_of
from ironcurtain_proxy.auto_confirm.lazy_store import LazyStore
from ironcurtain_proxy.auto_confirm.reviewer import LedgerError
from ironcurtain_proxy.auto_confirm.store.learned import Learned
from ironcurtain_proxy.auto_confirm.upkeep import InThread
from ironcurtain_proxy.ports import Clock

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


@dataclass(frozen=True, slots=True)
class _Lasting:
    """The knowledge that all sessions share, and when it was asked for."""

    asked: float
    history_asked: float
    learned: Learned
    knowledge: Knowledge


@dataclass(slots=True, kw_only=True)
class CachedKnowledge:
    """The knowledge of one store."""

    store: LazyStore
    clock: Clock
    began: datetime
    """The start. Older open rows were left by an earlier process of the session that was killed."""
    in_thread: InThread
    pattern_ids: dict[str, int] = field(default_factory=dict)
    """The ids of the patterns, by name."""
    _lasting: _Lasting | None = None
    _lately: dict[str, tuple[float, Knowledge]] = field(default_factory=dict)
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _times_forgotten: int = 0

    async def of(self, session: str) -> Knowledge:
        """The knowledge for a question of a session, at most a few seconds old.

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
        """Refresh it while it is used, until cancelled.

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
