"""The running engine: the owner of its tasks, and the handling of failed reviewers."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskStatus

from ironcurtain_proxy.auto_confirm.engine_memory import StoreLedger
from ironcurtain_proxy.auto_confirm.notify.notices import lost_notice
from ironcurtain_proxy.auto_confirm.notify.notifier import Notifier
from ironcurtain_proxy.auto_confirm.reviewer import AutoConfirm
from ironcurtain_proxy.auto_confirm.reviewer_chain import ReviewerChain
from ironcurtain_proxy.auto_confirm.reviewers.given_up import note_given_up
from ironcurtain_proxy.auto_confirm.reviewers.model import ModelReviewer
from ironcurtain_proxy.auto_confirm.reviewers.process import ProcessReviewer
from ironcurtain_proxy.mailbox.reviewer import Mailbox

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The engine and its background tasks."""

    reviewer: AutoConfirm
    chain: ReviewerChain
    ledger: StoreLedger
    notifier: Notifier
    processes: tuple[ProcessReviewer, ...]
    models: tuple[ModelReviewer, ...]
    mailboxes: tuple[Mailbox, ...]

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own their tasks until cancelled."""
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
