"""The running engine: its tasks, failed reviewers, and calls that can be taken back."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from msgspec import Struct

from ironcurtain_proxy.auto_confirm.engine_memory import StoreLedger
from ironcurtain_proxy.auto_confirm.notify.notices import lost_notice
from ironcurtain_proxy.auto_confirm.notify.notifier import Notifier
from ironcurtain_proxy.auto_confirm.reviewer import AutoConfirm
from ironcurtain_proxy.auto_confirm.reviewer_chain import ReviewerChain
from ironcurtain_proxy.auto_confirm.reviewers.given_up import note_given_up
from ironcurtain_proxy.auto_confirm.reviewers.model import ModelReviewer
from ironcurtain_proxy.auto_confirm.reviewers.process import ProcessReviewer
from ironcurtain_proxy.mailbox.reviewer import Mailbox
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.request import AccessRequest, PathValue
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.ports import Timeline

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
    return directory.is_dir() and not directory.is_symlink() and not _shares(directory)


def _shares(directory: Path) -> bool:
    return (directory / "commondir").exists()


_log: Final = logging.getLogger(__name__)

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
