"""Calls that may be approved conditionally, because the timeline can undo them.

Implements `auto_confirm.reviewer.Safeguards`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest, PathValue
from ironcurtain_proxy.ports import Timeline

_log: Final = logging.getLogger(__name__)

_CHANGES: Final[frozenset[ArgumentRole]] = frozenset({"write-path", "delete-path", "write-history"})
_REVOCABLE: Final[frozenset[ArgumentRole]] = _CHANGES | {
    "read-path",
    "branch-name",
    "commit-message",
    "none",
}
"""Operations that no point undoes: they leave the machine, or rewrite history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocableCalls:
    """The calls of one session that change nothing but the workspace."""

    workspace: RealPath
    timeline: Timeline

    def can_hold(self, escalation: Escalation) -> bool:
        """Whether all that the call may change is named, and lies in the workspace."""
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
        """Whether what the call may change can be brought back as it is now. Never fails."""
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
    """Whether its history lies in its own directory, and not in that of another work tree."""
    directory = Path(str(repository), ".git")
    return directory.is_dir() and not directory.is_symlink() and not _shares(directory)


def _shares(directory: Path) -> bool:
    return (directory / "commondir").exists()
