"""The engine as a reviewer: calls that it does not approve go to the next reviewer.

`engine`, which is pure, decides. This module gives it the knowledge of the operator and the store,
and carries out its decision. INVARIANT: an approval is written to the store first; while the store
fails, the engine approves nothing.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import (
    UNDECIDED,
    EngineDecision,
    evaluate,
    is_policy_critical,
    on_timeout,
)
from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject, subject_of
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    TEMPORARY,
    ContextScore,
    FilesFound,
    Interaction,
    Knowledge,
    SessionType,
    WorkContext,
    context_score,
)
from ironcurtain_proxy.auto_confirm.engine.risk import compared, may_hold
from ironcurtain_proxy.auto_confirm.engine.settings import AutoConfirmSettings
from ironcurtain_proxy.errors import IronCurtainError, KernelError
from ironcurtain_proxy.model.decision import TIMEOUT, Engine
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Escalation,
    EscalationId,
    Ruling,
    Unreachable,
)
from ironcurtain_proxy.model.reply import OwnField
from ironcurtain_proxy.model.request import AccessRequest, PathValue
from ironcurtain_proxy.model.values import Json, RealPath, WithSecrets
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.review.terminal import FirstReviewer
from ironcurtain_proxy.shell.operations import branches_of_command, operation_of

# --- what a call's paths are ----------------------------------------------------------------------
# What the paths of a call are on the disk, and what the session itself made below /tmp.


_MOST: Final = 4096
"""The most entries that are remembered as the session's own."""


class SessionFiles(Struct):
    """The entries of `/tmp` that approved calls of one session made.

    An entry is the session's own if it did not exist when the engine approved the call that made
    it. What exists and was not made by it is another program's, whoever owns it.
    """

    _own: set[RealPath] = msgspec.field(default_factory=set)
    _awaited: dict[EscalationId, frozenset[RealPath]] = msgspec.field(default_factory=dict)
    """The entries that calls in progress may make."""

    async def found(self, request: AccessRequest) -> FilesFound:
        """Return what the paths of a call are now. Never fails."""
        paths = [*_paths(request)]
        own = frozenset(self._own)
        return await anyio.to_thread.run_sync(_found, paths, own)

    def approved(self, question: EscalationId, found: FilesFound) -> None:
        """Note what an approved call may make."""
        new = found.own - self._own
        if new and len(self._awaited) < _MOST:
            self._awaited[question] = new

    def ended(self, question: EscalationId, *, succeeded: bool | None) -> None:
        """Note what a call made. Nothing is known of a call that failed."""
        new = self._awaited.pop(question, frozenset())
        if succeeded and len(self._own) < _MOST:
            self._own |= new


def _paths(request: AccessRequest) -> Iterator[RealPath]:
    for fact in request.arguments:
        yield from [value.path for value in fact.values if isinstance(value, PathValue)]


def _found(paths: Iterable[RealPath], made: frozenset[RealPath]) -> FilesFound:
    files: set[RealPath] = set()
    own: set[RealPath] = set()
    for path in paths:
        status = _status(path)
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            files.add(path)
        top = _entry_of(path)
        if top is not None and _is_own_file(top, made) and (status is None or _is_plain(status)):
            own.add(top)
    return FilesFound(files=frozenset(files), own=frozenset(own))


def _entry_of(path: RealPath) -> RealPath | None:
    """Return the entry of /tmp that a path lies in, or None if it lies elsewhere."""
    for base in TEMPORARY:
        if path != base and path.is_within(base):
            return RealPath(path.parts[: len(base.parts) + 1])
    return None


def _is_own_file(top: RealPath, made: frozenset[RealPath]) -> bool:
    status = _status(top)
    if status is None:
        return True
    return top in made and status.st_uid == os.geteuid() and _is_plain(status)


def _is_plain(status: os.stat_result) -> bool:
    """Return whether it is a directory, or a file of one name: no socket, device, pipe or link."""
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return is_file or stat.S_ISDIR(status.st_mode)


def _status(path: RealPath) -> os.stat_result | None:
    try:
        return os.lstat(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        # The owner of a path that cannot be read is not known.
        return os.stat_result((0,) * 10)


_log: Final = logging.getLogger(__name__)

TOO_RISKY_FOR_A_MODEL: Final = 70
"""The highest risk about which the auto-approver is asked."""

LIMIT: Final = "too many calls of this session wait for a reviewer"


AFTER_SILENCE: Final = Engine("timeout")
"""The party that approves unanswered calls, where the operator configured it."""


class LedgerError(IronCurtainError):
    """The store failed."""


class Findings(Struct, frozen=True, kw_only=True):
    """The engine's intermediate results of a decision."""

    scope: str
    """The scope of the call, in the engine's spelling."""
    session_type: SessionType
    """The type of the session: learned patterns hold for one type only."""
    pattern: str | None
    """The pattern that approved it."""
    elapsed: float | None
    """The seconds that the decision took, or None if the engine decided nothing."""


class Ledger(Protocol):
    """The engine's memory, over all sessions of this user."""

    async def knowledge(self, session: str) -> Knowledge:
        """Return the current knowledge.

        Raises:
            LedgerError: the store fails.
        """

    async def opened(
        self, escalation: Escalation, decision: EngineDecision, found: "Findings"
    ) -> None:
        """Write a decision down, with its approval if it is one.

        Args:
            escalation: the question.
            decision: the engine's.
            found: further values to record.

        Raises:
            LedgerError: it is not written: nothing may be approved.
        """

    def missed(self, escalation: Escalation, decision: EngineDecision, found: Findings) -> None:
        """Keep a question that is asked while the store fails, for later. Never fails."""

    async def passed_on(
        self, escalation: Escalation, source: str, target: str, reason: str
    ) -> None:
        """Note that another reviewer is asked. Never fails."""

    async def settled(self, escalation: Escalation, ruling: Ruling) -> bool:
        """Note how the question ended. Return False if that could not be written. Never raises."""

    async def ended(self, identifier: EscalationId, *, succeeded: bool | None) -> None:
        """Note how a call that was approved ended, or None if it was not made. Never fails."""


class Safeguards(Protocol):
    """The undo behind a conditional approval."""

    def can_hold(self, escalation: Escalation) -> bool:
        """Return whether the effects of such a call can be undone."""

    async def holds(self, escalation: Escalation) -> bool:
        """Return whether what the call may change can be brought back as it is now. Never fails."""


class Routes(Protocol):
    """The reviewers, by the engine's names."""

    async def ask(self, escalation: Escalation, decision: EngineDecision) -> Ruling:
        """Ask the decision's target, then its fallback; `Unreachable`: neither is there."""

    def is_reachable(self) -> bool:
        """Return whether any reviewer seems reachable."""


class SessionSituation(WithSecrets, frozen=True, kw_only=True):
    """The operator's statements on a session. Nothing of it comes from the agent."""

    hidden: ClassVar[frozenset[str]] = frozenset({"environment"})

    session_type: SessionType
    workspace: RealPath | None = None
    home: RealPath | None = None
    required: WorkContext = field(default_factory=WorkContext)
    """The required context of the session's task."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The required variables of the proxy's environment; they may hold secrets."""
    provider_mismatch: bool = False
    """The session's provider is another than the one that the operator registered."""

    def context(self, branch: str | None) -> ContextScore:
        """Return the score of the actual context against the required one."""
        actual = WorkContext(directory=self.workspace, environment=self.environment, branch=branch)
        return context_score(required=self.required, actual=actual)


class AutoConfirm(Struct, kw_only=True):
    """A `Reviewer` before all others."""

    settings: AutoConfirmSettings
    situation: SessionSituation
    ledger: Ledger
    routes: Routes
    clock: Clock
    safeguards: Safeguards | None = None
    first: FirstReviewer | None = None
    """The auto-approver, if it is on."""
    on_asked: Callable[[], None] | None = None
    """Called when the engine is asked, because a reviewer may be next. Must return at once."""
    on_approved: Callable[[EngineDecision], None] | None = None
    """Called for each approval of the engine. Must return at once, and never raises."""
    files: SessionFiles = msgspec.field(default_factory=SessionFiles)
    _held: dict[EscalationId, int] = msgspec.field(default_factory=dict)
    """The risk of each call of this session that waits for a reviewer."""

    async def ask(self, escalation: Escalation) -> Ruling:
        """Approve, or ask a reviewer."""
        if escalation.for_people:
            return await self.routes.ask(escalation, UNDECIDED)
        if self.on_asked is not None:
            self.on_asked()
        started = self.clock.monotonic()
        try:
            files = await self.files.found(escalation.request)
            interaction = replace(self._interaction(escalation), found=files)
            subject = subject_of(interaction)
            knowledge = await self.ledger.knowledge(escalation.session)
            interaction, knowledge = compared(interaction, subject, knowledge)
            decision = await self._decide(escalation, interaction, knowledge)
            found = Findings(
                scope=subject.scope,
                session_type=interaction.session_type,
                pattern=_pattern(decision, subject, interaction, knowledge),
                elapsed=self.clock.monotonic() - started,
            )
            await self.ledger.opened(escalation, decision, found)
        except (LedgerError, KernelError) as error:
            _log.warning("the engine approves nothing: %s", error)
            return await self._without_engine(escalation)
        ruling = await self._ruling(escalation, decision)
        if _is_own(ruling):
            self.files.approved(escalation.id, files)
            if self.on_approved is not None:
                self.on_approved(decision)
        return ruling

    async def ended(
        self, question: EscalationId, *, succeeded: bool | None
    ) -> tuple[tuple[str, Json], ...]:
        """Note how an approved call ended: implements `ports.OutcomeListener`."""
        self.files.ended(question, succeeded=succeeded)
        await self.ledger.ended(question, succeeded=succeeded)
        return ()

    async def _ruling(
        self, escalation: Escalation, decision: EngineDecision, *, without_store: bool = False
    ) -> Ruling:
        try:
            # The caller may have gone meanwhile.
            await anyio.lowlevel.checkpoint_if_cancelled()
            if decision.approves:
                return Approved(
                    by=decision.decided_by,
                    reasoning=decision.reason,
                    details=_details(decision),
                    revocable=decision.action == "conditional",
                )
            ruling = await (
                self._held_for_review(escalation, decision)
                if without_store
                else self._routed(escalation, decision)
            )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.ledger.settled(escalation, WITHDRAWN)
                await self.ended(escalation.id, succeeded=None)
            raise
        # An approval of a changed call says nothing of the call that was asked about.
        is_changed = isinstance(ruling, Approved) and ruling.changed is not None
        with anyio.CancelScope(shield=True):
            written = await self.ledger.settled(escalation, WITHDRAWN if is_changed else ruling)
        if not written and _is_own(ruling):
            return Declined(by=TIMEOUT, kind="expired", details=_details(decision))
        return ruling

    async def _decide(
        self, escalation: Escalation, interaction: Interaction, knowledge: Knowledge
    ) -> EngineDecision:
        # Held calls do not count here, because an approval of the engine waits for nobody. They
        # count before a reviewer is asked: see `_routed`.
        decision = evaluate(interaction, self.settings, knowledge)
        if decision.action != "conditional" or self.safeguards is None:
            return decision
        if await self.safeguards.holds(escalation):
            return decision
        # INVARIANT: without its safeguards a conditional approval is none.
        return evaluate(replace(interaction, snapshot=False), self.settings, knowledge)

    def _interaction(self, escalation: Escalation) -> Interaction:
        command = escalation.command
        return Interaction(
            id=escalation.id,
            request=escalation.request,
            arguments=escalation.arguments,
            command_operation=None if command is None else operation_of(command, escalation.place),
            command_branches=None if command is None else branches_of_command(command),
            session=escalation.session,
            session_type=self.situation.session_type,
            origins=escalation.origins,
            sandboxed=escalation.sandboxed,
            acts_by_itself=escalation.acts_by_itself,
            snapshot=self.safeguards is not None and self.safeguards.can_hold(escalation),
            workspace=self.situation.workspace,
            home=self.situation.home,
            branch=escalation.branch,
            context=self.situation.context(escalation.branch),
            provider_mismatch=self.situation.provider_mismatch,
        )

    async def _routed(self, escalation: Escalation, decision: EngineDecision) -> Ruling:
        ruling = await self._held_for_review(escalation, decision)
        if isinstance(ruling, Declined) and ruling.kind == "expired":
            ruling = self._after_silence(escalation, decision, ruling)
        if isinstance(ruling, Unreachable):
            return ruling
        return replace(ruling, details=(*_details(decision), *ruling.details))

    async def _held_for_review(self, escalation: Escalation, decision: EngineDecision) -> Ruling:
        if not may_hold([*self._held.values()]):
            return Declined(by=decision.decided_by, kind="limit", reason=LIMIT)
        self._held[escalation.id] = decision.risk
        try:
            return await self._reviewed(escalation, decision)
        finally:
            del self._held[escalation.id]

    async def _reviewed(self, escalation: Escalation, decision: EngineDecision) -> Ruling:
        thought: tuple[tuple[str, Json], ...] = ()
        if (
            self.first is not None
            and decision.risk <= TOO_RISKY_FOR_A_MODEL
            and decision.action != "held"
            and self.routes.is_reachable()
        ):
            ruling = await self.first.ask(escalation)
            if not isinstance(ruling, Unreachable):
                return ruling
            thought = ruling.details
        ruling = await self.routes.ask(escalation, decision)
        if self.first is not None:
            await self.first.note_answer(escalation, ruling)
        return replace(ruling, details=(*thought, *ruling.details)) if thought else ruling

    def _after_silence(
        self, escalation: Escalation, decision: EngineDecision, silence: Declined
    ) -> Approved | Declined:
        critical = is_policy_critical(escalation.origins, escalation.roles)
        if on_timeout(decision, self.settings, policy_critical=critical) == "approve":
            return Approved(by=AFTER_SILENCE, reasoning="no reviewer answered in time")
        return silence

    async def _without_engine(self, escalation: Escalation) -> Ruling:
        decision, scope = self._undecided(escalation)
        kind = self.situation.session_type
        found = Findings(scope=scope, session_type=kind, pattern=None, elapsed=None)
        self.ledger.missed(escalation, decision, found)
        return await self._ruling(escalation, decision, without_store=True)

    def _undecided(self, escalation: Escalation) -> tuple[EngineDecision, str]:
        """Return the scope, and a decision without the store: a fitting reviewer, no approval."""
        known = Knowledge(moment=self.clock.now().astimezone())
        try:
            interaction = self._interaction(escalation)
            found = evaluate(interaction, replace(self.settings, enabled=False), known)
            scope = subject_of(interaction).scope
        except KernelError:
            return UNDECIDED, ""
        return replace(found, action="held", check="default", reason=UNDECIDED.reason), scope


def _pattern(
    decision: EngineDecision, subject: CallSubject, interaction: Interaction, knowledge: Knowledge
) -> str | None:
    """Return the pattern that approved a call."""
    if decision.check != "pattern":
        return None
    kind = interaction.session_type
    for pattern in knowledge.patterns:
        if pattern.approves(subject.operation, subject.scopes, kind):
            return pattern.name
    return None


def _is_own(ruling: Ruling) -> bool:
    """Return whether the engine approved: at once, or because no reviewer answered."""
    return isinstance(ruling, Approved) and isinstance(ruling.by, Engine)


def _details(decision: EngineDecision) -> tuple[tuple[str, Json], ...]:
    """Return the fields of the record: enough to replay the decision."""
    return (
        OwnField("risk", decision.risk / 100),
        OwnField("confidence", decision.confidence / 100),
        OwnField("engine", decision.as_json()),
    )


WITHDRAWN: Final = Declined(by=TIMEOUT, kind="withdrawn")
