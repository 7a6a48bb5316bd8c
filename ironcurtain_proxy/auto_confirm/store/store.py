"""The engine's store: its interface, its health, and the state of sessions.

The store is the engine's memory and an index; the audit log stays the record. Every method is one
transaction and raises `StoreError` if it fails; the engine then approves nothing. It is synchronous
and thread-safe: an async caller calls it in a thread. The state of a session is computed from its
recorded interactions.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self, TypeVar

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.interaction import SAFE_BANDS, SessionHealth
from ironcurtain_proxy.auto_confirm.store import interactions, patterns
from ironcurtain_proxy.auto_confirm.store.database import Database
from ironcurtain_proxy.auto_confirm.store.interactions import LONGEST_WAIT, OPEN, OURS
from ironcurtain_proxy.auto_confirm.store.patterns import Learned, read_learned
from ironcurtain_proxy.auto_confirm.store.rows import (
    TIMEOUT,
    Ending,
    EscalationTask,
    InteractionRow,
    NewPattern,
    PatternProposal,
    PatternRow,
    PermissionDecision,
)
from ironcurtain_proxy.auto_confirm.store.tables import (
    INTERACTIONS,
    StoredText,
    StoreOrigin,
    open_again,
    open_first,
)
from ironcurtain_proxy.model.decision import Engine, Nobody, of_record
from ironcurtain_proxy.ports import Clock

# --- health


STUCK_AFTER: Final = timedelta(minutes=10)
"""A call that waits longer has outlived its reviewer's five minutes and the fallback's five."""
RECENT: Final = timedelta(hours=1)
"""The period that counts for a session's health."""
QUEUE_LIFETIME: Final = timedelta(hours=1)
"""The age from which an open call counts as the remains of a crashed proxy."""
_LAST: Final = 10
_ENOUGH: Final = 3


class StoredSession(Struct, frozen=True):
    """A session at one moment, and the calls of others that wait before it."""

    health: SessionHealth
    earlier_failures: int
    """The number of its calls that failed in the last hour."""
    pending_of_others: int
    """The waiting calls of other sessions, which a session cannot increase itself: of the last
    hour."""


def is_stuck(now: datetime) -> "sa.ColumnElement[bool]":
    """Return whether an overdue call waits."""
    return OURS & _WAITS & _waited_since(now - STUCK_AFTER)


_WAITS: Final = INTERACTIONS.c.status.in_(OPEN)
_SESSION: Final = sa.bindparam("session", type_=StoredText())
_ITS: Final = INTERACTIONS.c.session_name == _SESSION
_SERIOUS: Final = INTERACTIONS.c.risk_band.not_in(SAFE_BANDS) | INTERACTIONS.c.risk_band.is_(None)
_RECENT: Final = INTERACTIONS.c.created_at >= sa.bindparam("recent")


def _waited_since(moment: "datetime | sa.BindParameter[datetime]") -> "sa.ColumnElement[bool]":
    return sa.func.coalesce(INTERACTIONS.c.held_at, INTERACTIONS.c.created_at) < moment


def _number(where: "sa.ColumnElement[bool]") -> "sa.ColumnElement[int]":
    return sa.func.count().filter(where)


_OPEN_CALLS: Final = (
    sa.select(
        _number(
            (INTERACTIONS.c.session_name != _SESSION)
            & (INTERACTIONS.c.created_at >= sa.bindparam("queued"))
        ).label("others"),
        _number(
            _ITS
            & _SERIOUS
            & _waited_since(sa.bindparam("overdue"))
            & (INTERACTIONS.c.created_at >= sa.bindparam("began"))
        ).label("overdue"),
    )
    .where(OURS & _WAITS)
    .subquery()
)
"""Found by their status: few are open, however many the session has made."""

_ITS_CALLS: Final = (
    sa.select(
        _number(INTERACTIONS.c.succeeded.is_(False) & _RECENT).label("failed"),
        # A silent reviewer is not the session's fault if the next one answered.
        _number(
            _SERIOUS
            & (INTERACTIONS.c.decided_by == TIMEOUT)
            & (INTERACTIONS.c.responded_at >= sa.bindparam("overdue"))
        ).label("unanswered"),
    )
    .where(OURS & _ITS & (INTERACTIONS.c.created_at >= sa.bindparam("oldest")))
    .subquery()
)

_COUNTS: Final = sa.select(_OPEN_CALLS, _ITS_CALLS).join_from(_OPEN_CALLS, _ITS_CALLS, sa.true())

_LAST_ENDED: Final = (
    sa.select(INTERACTIONS.c.status, INTERACTIONS.c.succeeded, INTERACTIONS.c.decided_by)
    .where(OURS & _ITS & _RECENT & INTERACTIONS.c.status.not_in(OPEN))
    .order_by(INTERACTIONS.c.id.desc())
    .limit(_LAST)
)


def session_state(
    connection: Connection, session: str, now: datetime, began: datetime | None = None
) -> StoredSession:
    """Return the state of a session, in two statements.

    `stuck`: a call waits for more than ten minutes, or one ended unanswered in the last ten.
    `failing`: half or more of its last ten ended calls were refused or failed, in the last hour.
    `unknown`: fewer than three have ended.

    A safe operation makes no session stuck. Such a call is asked about only while the session is
    stuck already: if nobody answers, each question would prolong the state that caused it.

    Args:
        connection: the store's.
        session: which.
        now: aware.
        began: the start of the process that serves it; calls that waited before wait no longer.
    """
    recent = now - RECENT
    times = {
        "session": session,
        "recent": recent,
        "queued": now - QUEUE_LIFETIME,
        "overdue": now - STUCK_AFTER,
        "began": recent if began is None else max(began, recent),
        "oldest": now - LONGEST_WAIT - STUCK_AFTER,
    }
    counts = connection.execute(_COUNTS, times).one()
    stuck = counts.overdue or counts.unanswered
    return StoredSession(
        health="stuck" if stuck else _fared(connection, session, recent),
        earlier_failures=counts.failed,
        pending_of_others=counts.others,
    )


def _fared(connection: Connection, session: str, recent: datetime) -> SessionHealth:
    ended = connection.execute(_LAST_ENDED, {"session": session, "recent": recent}).all()
    if len(ended) < _ENOUGH:
        return "unknown"
    bad = sum(
        row.succeeded is False
        # A question without a reviewer or an answer does not count for the session.
        or (
            row.status == "rejected"
            and not isinstance(of_record(row.decided_by or ""), Nobody | Engine)
        )
        for row in ended
    )
    return "failing" if 2 * bad >= len(ended) else "well"


# --- store


T = TypeVar("T")


def open_store(
    url: str | None,
    state_dir: Path,
    clock: Clock,
    *,
    create: bool = True,
    deadline_seconds: float = 5.0,
) -> "Store":
    """Open the store and bring its tables up to date.

    Args:
        url: `postgresql://…`, `sqlite:////absolute/path`, or None for a file in `state_dir`.
        state_dir: absolute; made private.
        clock: gives the times that are written.
        create: whether a missing SQLite file is made.
        deadline_seconds: how long one transaction may wait for other processes.

    Raises:
        StoreError: it cannot be used; nothing in it was changed.
    """
    origin = StoreOrigin(url, state_dir, deadline_seconds)
    return Store(open_first(origin, create=create), clock, origin)


class Store:
    """Interactions, decisions, escalations, patterns and safe paths."""

    def __init__(self, database: Database, clock: Clock, origin: StoreOrigin) -> None:
        self._database = database
        self._clock = clock
        self._origin = origin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Repeating it is harmless."""
        self._database.close()

    def reopened(self) -> "Store":
        """Return a new store on the same database, after `StoreLostError`. This one is closed.

        Raises:
            StoreError: it cannot be used yet.
        """
        database = open_again(self._database, self._origin)
        return Store(database, self._clock, self._origin)

    # --- one interaction's life ------------------------------------------------------------------

    def record_call(
        self,
        interaction: InteractionRow,
        then: PermissionDecision | EscalationTask,
        pattern: int | None = None,
    ) -> int:
        """Write a new interaction with its decision, or with a reviewer's task.

        One transaction: an interaction without either would stay open for ever.

        Args:
            interaction: new.
            then: the decision or the task.
            pattern: the id of the pattern that approved it, whose use is counted.

        Returns:
            Its id.

        Raises:
            StoreError: also if this request was recorded before.
        """
        now = self._clock.now()

        def work(connection: Connection) -> int:
            if pattern is not None:
                patterns.count_use(connection, pattern)
            return interactions.record_call(connection, interaction, then, now)

        return self._database.write(work)

    def record_late(self, interaction: InteractionRow, task: EscalationTask, at: datetime) -> int:
        """Write an interaction that began when the store failed, once. Return its id."""

        def work(connection: Connection) -> int:
            found = interactions.find_request(connection, interaction.request_id)
            if found is not None:
                return found
            return interactions.record_call(connection, interaction, task, at)

        return self._database.write(work)

    def forget_request(self, request: str) -> bool:
        """Remove an interaction with its trail. Return False if there is none.

        For an interaction that was perhaps written too late: no call waits for its answer.
        """
        return self._database.write(lambda connection: interactions.remove(connection, request))

    def end(
        self,
        interaction_id: int,
        settlement: Ending,
        request: str | None = None,
        at: datetime | None = None,
    ) -> bool:
        """End an interaction: status, trail and open tasks together.

        Args:
            interaction_id: which.
            settlement: how.
            request: end it only if it belongs to this request; None ends any. A store that was put
                in the place of another has other interactions under the same ids.
            at: when it ended, or None for now.

        Returns:
            False if it had ended, or cannot end so from where it stands: the first answer wins.
        """
        when = at or self._clock.now()
        return self._database.write(
            lambda connection: interactions.end(
                connection, interaction_id, settlement, when, request
            )
        )

    def record_escalation(  # noqa: PLR0913  a row of the history
        self,
        interaction_id: int,
        from_target: str,
        to_target: str,
        reason: str,
        request: str | None = None,
        at: datetime | None = None,
        *,
        silent: bool = True,
    ) -> bool:
        """Note that one reviewer did not answer and another is asked, and end the first one's task.

        `request` and `at` are as for `settle`; `silent`: the first one saw the question.

        Returns:
            False if the interaction is not held: it was answered in the meantime.
        """
        now, targets = at or self._clock.now(), (from_target, to_target)
        return self._database.write(
            lambda connection: (
                interactions.is_of(connection, interaction_id, request)
                and interactions.pass_on(
                    connection, interaction_id, targets, reason, now, silent=silent
                )
            )
        )

    def record_outcome(
        self, interaction_id: int, *, succeeded: bool, request: str | None = None
    ) -> None:
        """Note how the approved call ended; the pattern that approved it learns of it.

        `request` is as for `settle`.
        """

        def work(connection: Connection) -> None:
            if not interactions.is_of(connection, interaction_id, request):
                return
            pattern = interactions.set_outcome(connection, interaction_id, succeeded=succeeded)
            if pattern is not None:
                patterns.count_outcome(connection, pattern, succeeded=succeeded)

        self._database.write(work)

    # --- what the engine knows -------------------------------------------------------------------

    def learned(self, before: Learned | None = None) -> Learned:
        """Return the lasting knowledge; see `patterns.read_learned`."""
        return self.read(lambda connection: read_learned(connection, before))

    def session_state(
        self, session: str, now: datetime, began: datetime | None = None
    ) -> StoredSession:
        """Return the state of a session at `now`; see `health.session_state`."""
        return self.read(lambda connection: session_state(connection, session, now, began))

    # --- patterns --------------------------------------------------------------------------------

    def patterns(self) -> tuple[PatternRow, ...]:
        """Return all patterns by name; only those with `auto_approve` may approve."""
        return self.read(patterns.read_patterns)

    def add_pattern(self, pattern: NewPattern) -> int:
        """Add a pattern and return its id.

        Raises:
            StoreError: also if there is one of that name.
        """
        now = self._clock.now()
        return self._database.write(lambda c: patterns.insert_pattern(c, pattern, now))

    def enable_pattern(self, name: str) -> bool:
        """Let a pattern approve. Return False if there is none, or its risk is HIGH or CRITICAL."""
        return self._database.write(lambda c: patterns.switch_pattern(c, name, on=True))

    def disable_pattern(self, name: str) -> bool:
        """Disable a pattern. Return False if there is none."""
        return self._database.write(lambda c: patterns.switch_pattern(c, name, on=False))

    def propose_patterns(self, min_evidence: int) -> list[PatternProposal]:
        """Return the proposals from reviewers' approvals. See `patterns.propose`."""
        return self.read(lambda connection: patterns.propose(connection, min_evidence))

    def promote(self, proposal: PatternProposal, created_by: str) -> int:
        """Make a proposal an approving pattern, and return its id. Only operators ask for this."""
        return self.add_pattern(
            NewPattern(
                name=proposal.name,
                operation=proposal.operation,
                scope_regex=proposal.scope_regex,
                session_type=proposal.session_type,
                risk_level=proposal.risk_level,
                auto_approve=True,
                created_by=created_by,
            )
        )

    # --- removal ----------------------------------------------------------------------------------

    def end_abandoned(self, is_gone: Callable[[str], bool]) -> int:
        """End open interactions whose process has ended, a batch at most.

        Args:
            is_gone: whether an owner's process has certainly ended.

        Returns:
            How many; `interactions.BATCH`: there may be more.
        """
        gone = {one for one in self.read(interactions.owners) if is_gone(one)}
        now = self._clock.now()
        return (
            self._database.write(lambda c: interactions.end_abandoned(c, gone, now)) if gone else 0
        )

    def begin_purge(self, keep: timedelta) -> int:
        """Delete the first batch of old interactions, with all rows that belong to them.

        Nothing is deleted if any process began to purge within the last day.

        Args:
            keep: the age from which interactions are deleted. One whose question is still open is
                kept for three days.

        Returns:
            The number of deleted interactions. If it is `interactions.BATCH`, there may be more:
            call `go_on_purging`.
        """
        now = self._clock.now()

        def work(connection: Connection) -> int:
            return (
                interactions.purge(connection, keep, now)
                if interactions.claim(connection, now)
                else 0
            )

        return self._database.write(work)

    def go_on_purging(self, keep: timedelta) -> int:
        """Delete a further batch of old interactions, and return how many."""
        now = self._clock.now()
        return self._database.write(lambda connection: interactions.purge(connection, keep, now))

    @property
    def has_log(self) -> bool:
        """Whether `copy_log` may have something to copy: an SQLite file."""
        return self._database.file is not None

    def copy_log(self) -> None:
        """Copy what was written into the file itself. See `Database.copy_log`."""
        self._database.copy_log()

    # --- for metrics and reports -----------------------------------------------------------------

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction that changes nothing."""
        return self._database.read(work)
