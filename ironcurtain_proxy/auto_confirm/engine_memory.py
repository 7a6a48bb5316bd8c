"""The engine while it runs: its memory in the store, its tasks, and what can be taken back.

Theory of operation: the engine decides on what earlier calls taught it (`Knowledge`), and its own
decisions become rows that later decisions read.

    knowledge  ◀── `engine_knowledge`, a cache that is refreshed in the background
    opened     ──▶ a row with the decision, or with a task for a reviewer
    settled    ──▶ the ruling of that task          ended ──▶ whether the call succeeded

No row may stay open that nobody will close: writing the first row is shielded from cancellation,
and a row whose writing failed or timed out is noted as owed and closed later (see `session_files`).
If the store fails, a `LedgerError` is raised and a reviewer is asked instead of the engine; that
question is owed as a whole (`missed`), with the times at which it was asked and answered.

The running engine: its tasks, failed reviewers, and calls that can be taken back.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import Knowledge
from ironcurtain_proxy.auto_confirm.engine_knowledge import (
    QUIET,
    CachedKnowledge,
    LazyStore,
    Upkeep,
    row_of,
    task_of,
    this_owner,
)
from ironcurtain_proxy.auto_confirm.notifier import Notifier, lost_notice
from ironcurtain_proxy.auto_confirm.reviewer import (
    AFTER_SILENCE,
    WITHDRAWN,
    AutoConfirm,
    Findings,
    LedgerError,
)
from ironcurtain_proxy.auto_confirm.reviewer_chain import SILENCE, ReviewerChain
from ironcurtain_proxy.auto_confirm.reviewers.model import ModelReviewer
from ironcurtain_proxy.auto_confirm.reviewers.process import ProcessReviewer
from ironcurtain_proxy.auto_confirm.session_files import (
    OwedLines,
    UnwrittenQuestions,
    Windows,
    forget_unwritten,
    note_given_up,
    unwritten_file,
)
from ironcurtain_proxy.auto_confirm.store.rows import (
    TIMEOUT,
    WITHDRAWN_BY,
    AlreadyDecidedError,
    Ending,
    EscalationTask,
    FinalStatus,
    PermissionDecision,
    StoreLostError,
)
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.mailbox.reviewer import Mailbox
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import (
    Decider,
    Engine,
    LlmApprover,
    Person,
    Program,
    in_record,
)
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Escalation,
    EscalationId,
    Ruling,
    Unreachable,
)
from ironcurtain_proxy.model.request import AccessRequest, PathValue
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.ports import Clock, Timeline

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE: Final = 10.0
"""Seconds for one question or one line: the first one may have to wait for the store to open."""

_MOST_ROWS: Final = 10_000
"""Approvals that nobody took, or that came to nothing later, are not waited for."""


class _Row(Struct):
    """The row of a question."""

    id: int | None
    """None: it is not written yet."""

    def number(self) -> int:
        """Return its id.

        Raises:
            LedgerError: it is not written.
        """
        if self.id is None:
            raise LedgerError("the question has no row yet")
        return self.id


@dataclass(slots=True, kw_only=True)
class StoreLedger:
    """Implements `auto_confirm.reviewer.Ledger`."""

    store: LazyStore
    clock: Clock
    windows: Windows
    timeout_minutes: float
    session: str = ""
    """The session whose first question finds its knowledge read. Empty means unknown."""
    keep: timedelta | None = None
    """The time for which the store keeps ended interactions. `None` means for ever."""
    quiet: float = QUIET
    state_dir: Path | None = None
    """Where the ids of questions without a row are kept for `metrics`. `None` means nowhere."""
    _owner: str | None = field(init=False)
    _rows: dict[EscalationId, _Row] = field(default_factory=dict)
    _seen: set[EscalationId] = field(default_factory=set)
    """The questions that a reviewer saw, until they are settled."""
    _knowledge: CachedKnowledge = field(init=False)
    _limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))
    _owed: OwedLines = field(init=False)
    _unwritten: UnwrittenQuestions = field(init=False)
    _upkeep: Upkeep = field(init=False)
    _has_failed: bool = False

    def __post_init__(self) -> None:
        self._knowledge = CachedKnowledge(
            store=self.store, clock=self.clock, began=self.clock.now(), in_thread=self._in_thread
        )
        self._owner = this_owner()
        self._owed = OwedLines(self._in_thread)
        self._unwritten = UnwrittenQuestions(
            None
            if self.state_dir is None
            else unwritten_file(self.state_dir, f"{os.getpid()}-{os.urandom(8).hex()}")
        )
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
            if self.state_dir is not None and self.keep is not None:
                await anyio.to_thread.run_sync(
                    forget_unwritten, self.state_dir, self.keep, self.clock.now()
                )
            await self._knowledge.keep_fresh(self.session)

    async def aclose(self) -> None:
        """Retry the writes that failed earlier, and close the connections."""
        await self._owed.pay()
        with suppress(LedgerError):
            await self._in_thread(self.store.close)

    async def knowledge(self, session: str) -> Knowledge:
        """Return the knowledge, at most a few seconds old."""
        self._upkeep.used.set()
        known = await self._knowledge.of(session)
        now = self.clock.now()
        # Read for each call: whoever opens a window relies on it at once. The two files are small,
        # and a thread would cost more than the decision.
        windows = self.windows.read(now)
        return replace(
            known, moment=now.astimezone(), testing=windows.testing, deployment=windows.deployment
        )

    async def opened(
        self, escalation: Escalation, decision: EngineDecision, found: Findings
    ) -> None:
        """Write a decision down, with its approval if it is one."""
        pattern = None if found.pattern is None else self._knowledge.pattern_ids.get(found.pattern)
        row = replace(row_of(escalation, decision, found, pattern), owner=self._owner)
        then: PermissionDecision | EscalationTask
        if decision.approves:
            then = PermissionDecision(
                decision="approved",
                decided_by=in_record(decision.decided_by),
                reason=decision.reason,
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
        self._keep(escalation.id, _Row(row_id))

    def missed(self, escalation: Escalation, decision: EngineDecision, found: Findings) -> None:
        """Keep a question that is asked while the store fails, for later."""
        interaction = replace(row_of(escalation, decision, found, None), owner=self._owner)
        task = task_of(escalation, decision, found.scope, self.timeout_minutes)
        row, at = _Row(None), self.clock.now()

        def write() -> None:
            row.id = self.store.get().record_late(interaction, task, at)
            self._unwritten.written(escalation.id)

        self._keep(escalation.id, row)
        self._unwritten.add(escalation.id, at)
        self._owed.add(escalation.id, write)

    def seen(self, identifier: EscalationId) -> None:
        """Note that a reviewer saw a question."""
        # A question only for people is in no row, and is never settled here.
        if identifier in self._rows:
            self._seen.add(identifier)

    def _keep(self, identifier: EscalationId, row: _Row) -> None:
        while len(self._rows) >= _MOST_ROWS:
            del self._rows[next(iter(self._rows))]
        self._rows[identifier] = row

    async def passed_on(
        self, escalation: Escalation, source: str, target: str, reason: str
    ) -> None:
        """Note that another reviewer is asked."""
        at, silent = self.clock.now(), reason == SILENCE
        await self._noted(
            escalation.id,
            lambda row: self.store.get().record_escalation(
                row, source, target, reason, escalation.id, at, silent=silent
            ),
        )

    async def settled(self, escalation: Escalation, ruling: Ruling) -> bool:
        """Note how the question ended."""
        approved = isinstance(ruling, Approved)
        # An unreachable reviewer says nothing about the session, and nobody decided.
        by: Decider = Engine("unreachable")
        if ruling == WITHDRAWN:
            by = WITHDRAWN_BY
        elif not isinstance(ruling, Unreachable):
            by = ruling.by
        automatic = approved and isinstance(by, LlmApprover | Engine)
        status: FinalStatus = "rejected"
        if approved:
            status = "auto_approved" if automatic else "approved"
        settlement = Ending(
            status=status,
            # An approval after silence is an effect of the clock: the session was stuck.
            decided_by=TIMEOUT if by == AFTER_SILENCE else in_record(by),
            reason=getattr(ruling, "reason", "") or in_record(by),
            asked=(
                escalation.id in self._seen
                or isinstance(by, Person | Program)
                or _is_silence(ruling)
            ),
        )
        self._seen.discard(escalation.id)
        at = self.clock.now()
        # INVARIANT: an approval that cannot be written now does not count, also if written later.
        later = settlement
        if approved and isinstance(by, Engine):
            later = replace(settlement, status="rejected", reason="its approval was not written")
        written = await self._noted(
            escalation.id,
            lambda row: self.store.get().end(row, settlement, escalation.id, at),
            lambda row: self.store.get().end(row, later, escalation.id, at),
        )
        if not approved:
            self._rows.pop(escalation.id, None)
        return written

    async def ended(self, identifier: EscalationId, *, succeeded: bool | None) -> None:
        """Note how an approved call ended. A call that was not made says nothing."""
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
            if row.id is None:
                return False
            try:
                return await self._in_thread(lambda: write(row.number())) is not False
            except LedgerError as error:
                _log.warning("how an escalation ended is written into the store later: %s", error)
        self._owed.add(identifier, lambda: _if_it_is_open((later or write), row.number()))
        return False

    def _unwrite(self, identifier: EscalationId, line: "_LedgerLine") -> None:
        """Remove a row that was perhaps written for a question that a reviewer decides now."""
        if line.is_under_way:
            raise LedgerError("it is still being written")
        self.store.get().forget_request(identifier)

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
            self._knowledge.forget()
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


def _if_it_is_open(write: Callable[[int], object], row: int) -> None:
    """Write the end of a question, unless it is written."""
    with suppress(AlreadyDecidedError):
        write(row)


def _is_silence(ruling: Ruling) -> bool:
    """Return whether somebody was asked and did not answer."""
    if isinstance(ruling, Approved):
        return ruling.by == AFTER_SILENCE
    return isinstance(ruling, Declined) and ruling.kind == "expired"


# --- calls that the timeline can take back --------------------------------------------------------
# Calls that may be approved conditionally, because the timeline can undo them.
#
# Implements `auto_confirm.reviewer.Safeguards`.


_CHANGES: Final[frozenset[ArgumentRole]] = frozenset({"write-path", "delete-path", "write-history"})
_REVOCABLE: Final[frozenset[ArgumentRole]] = _CHANGES | {
    "read-path",
    "branch-name",
    "commit-message",
    "none",
}
"""Operations that no point undoes: they leave the machine, or rewrite history."""


class RevocableCalls(Struct, frozen=True, kw_only=True):
    """The calls of one session that change nothing but the workspace."""

    workspace: RealPath
    timeline: Timeline

    def can_hold(self, escalation: Escalation) -> bool:
        """Return whether all that the call may change is named, and lies in the workspace."""
        request = escalation.request
        roles = {role for fact in request.arguments for role in fact.roles}
        changes = [fact for fact in request.arguments if not _CHANGES.isdisjoint(fact.roles)]
        return (
            escalation.sandboxed
            and escalation.command is None
            and request.effect != "reads"
            and roles <= _REVOCABLE
            # The server chooses the values of missing arguments.
            and bool(changes)
            and all(fact.values for fact in changes)
            and all(path.is_within(self.workspace) for path in _changed(request))
        )

    async def holds(self, escalation: Escalation) -> bool:
        """Return whether what the call may change can be brought back as it is now. Never fails."""
        request = escalation.request
        history = request.repository if _writes_history(request) else None
        try:
            if history is not None and not await anyio.to_thread.run_sync(_is_whole, history):
                return False
            for path in _changed(request):
                if await self.timeline.unheld(path):
                    return False
        except Exception:  # noqa: BLE001  what cannot be found out is asked about
            _log.exception("the timeline does not say what it holds")
            return False
        return True


def _changed(request: AccessRequest) -> Iterator[RealPath]:
    for fact in request.arguments:
        if not _CHANGES.isdisjoint(fact.roles):
            yield from [value.path for value in fact.values if isinstance(value, PathValue)]
    if _writes_history(request) and request.repository is not None:
        yield request.repository


def _writes_history(request: AccessRequest) -> bool:
    return any("write-history" in fact.roles for fact in request.arguments)


def _is_whole(repository: RealPath) -> bool:
    """Return whether its history lies in its own directory, not in another work tree's."""
    directory = Path(str(repository), ".git")
    is_own = directory.is_dir() and not directory.is_symlink()
    return is_own and not (directory / "commondir").exists()


_CLOSE: Final = 2.0
"""Seconds for connections to be closed."""


@dataclass(slots=True)
class AbandonedReviewers:
    """The abandoned reviewers."""

    notifier: Notifier
    session_directory: Path
    _names: list[str] = field(default_factory=list, init=False)

    def note(self, reviewer: str) -> None:
        """Report an abandoned reviewer on all channels."""
        self._names.append(reviewer)
        self.notifier.notify(lost_notice(reviewer))
        try:
            note_given_up(self.session_directory, self._names)
        except OSError as error:
            _log.warning("status does not show this: %s", error.strerror or error)


def warm(first: Iterable[ProcessReviewer]) -> None:
    """Start the reviewers that are asked first."""
    for process in first:
        process.warm()


class EngineParts(Struct, frozen=True, kw_only=True):
    """The engine and its background tasks."""

    reviewer: AutoConfirm
    chain: ReviewerChain
    ledger: StoreLedger
    notifier: Notifier
    processes: tuple[ProcessReviewer, ...]
    models: tuple[ModelReviewer, ...]
    mailboxes: tuple[Mailbox, ...]

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the engine's tasks until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.notifier.run)
                for process in self.processes:
                    await tasks.start(process.run)
                for mailbox in self.mailboxes:
                    await tasks.start(mailbox.run)
                for model in self.models:
                    tasks.start_soon(model.warm)
                tasks.start_soon(self.ledger.run)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(_CLOSE, shield=True):
                for model in self.models:
                    await model.aclose()
                await self.ledger.aclose()
