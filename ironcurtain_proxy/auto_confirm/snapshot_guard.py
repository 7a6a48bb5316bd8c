"""What makes a conditional approval revocable: a snapshot before the call, a look after it.

Implements `auto_confirm.reviewer.Safeguards` with `snapshots`, in threads.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation, EscalationId
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest, PathValue
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.snapshots.faults import SnapshotError
from ironcurtain_proxy.snapshots.retention import prune
from ironcurtain_proxy.snapshots.snapshot import Snapshot, finish, take
from ironcurtain_proxy.snapshots.under_way import SnapshotLock, hold
from ironcurtain_proxy.snapshots.watch import Effects, SideEffects

_log: Final = logging.getLogger(__name__)

_CHANGES: Final[frozenset[ArgumentRole]] = frozenset({"write-path", "delete-path", "write-history"})
_MOST_WATCHED: Final = 16
_MOST_HELD: Final = 128
"""One descriptor each."""

QUIET: Final = 20.0
"""Seconds after which a session first removes old snapshots: it has begun by then."""
_DAY: Final = 86400.0

_REVOCABLE: Final[frozenset[ArgumentRole]] = _CHANGES | {
    "read-path",
    "branch-name",
    "commit-message",
    "none",
}
"""What leaves the machine, or rewrites history, no snapshot brings back."""


@dataclass(slots=True)
class _Watched:
    snapshot: Snapshot
    effects: SideEffects


@dataclass(slots=True, kw_only=True)
class Safekeeping:
    """The snapshots of one session's conditional approvals."""

    directory: Path
    """`snapshots` in the state directory."""
    workspace: RealPath | None
    clock: Clock
    quiet: float = QUIET
    _open: dict[EscalationId, _Watched] = field(default_factory=dict)
    _holds: dict[EscalationId, SnapshotLock] = field(default_factory=dict)

    async def run(self) -> None:
        """Remove old snapshots once a day, also where no more are taken.

        Never raises but when cancelled.
        """
        try:
            await anyio.sleep(self.quiet)
            while True:
                await self._remove_old()
                await anyio.sleep(_DAY)
        finally:
            while self._holds:
                self._holds.popitem()[1].release()

    async def _remove_old(self) -> None:
        try:
            await anyio.to_thread.run_sync(
                partial(prune, self.directory, self.clock.now()), abandon_on_cancel=True
            )
        except (IronCurtainError, OSError) as error:
            _log.warning("old snapshots are not removed: %s", error)

    def can_hold(self, escalation: Escalation) -> bool:
        """Whether all that the call may change is named, lies on the disk, and can be put back."""
        request = escalation.request
        roles = {role for fact in request.arguments for role in fact.roles}
        changes = [fact for fact in request.arguments if not _CHANGES.isdisjoint(fact.roles)]
        return (
            escalation.sandboxed
            and escalation.command is None
            and roles <= _REVOCABLE
            # What is left out the server fills in as it likes.
            and bool(changes)
            and all(fact.values for fact in changes)
        )

    async def prepare(self, escalation: Escalation) -> bool:
        """Take a snapshot and begin to watch. False: it could not be done."""
        try:
            watched, held = await anyio.to_thread.run_sync(
                partial(self._prepare, escalation), abandon_on_cancel=False
            )
        except (IronCurtainError, OSError) as error:
            _log.warning("no safeguards for escalation %s: %s", escalation.id, error)
            return False
        # Of approvals that nobody took: the snapshot stays for as long as any.
        while len(self._open) >= _MOST_WATCHED:
            del self._open[next(iter(self._open))]
        while len(self._holds) >= _MOST_HELD:
            self._holds.pop(next(iter(self._holds))).release()
        self._open[escalation.id], self._holds[escalation.id] = watched, held
        return True

    def _prepare(self, escalation: Escalation) -> tuple[_Watched, SnapshotLock]:
        now = self.clock.now()
        prune(self.directory, now)
        request = escalation.request
        has_history = any("write-history" in fact.roles for fact in request.arguments)
        paths = list(_changed(request, None if not has_history else request.repository))
        if not paths and not (has_history and request.repository is not None):
            raise SnapshotError("the call names nothing that could be held")
        snapshot = take(
            escalation.id,
            paths,
            request.repository if has_history else None,
            self.directory,
            now,
        )
        held = hold(snapshot.place)
        try:
            around = [place for place in (self.workspace, request.repository) if place is not None]
            return _Watched(snapshot, SideEffects(around, paths)), held
        except BaseException:
            held.release()
            raise

    async def ended(self, identifier: EscalationId) -> tuple[tuple[str, Json], ...]:
        """Look at what the call did; gives what the record should say of it. Never fails."""
        watched, held = self._open.pop(identifier, None), self._holds.pop(identifier, None)
        try:
            return () if watched is None else await self._looked_at(identifier, watched)
        finally:
            if held is not None:
                held.release()

    async def _looked_at(
        self, identifier: EscalationId, watched: _Watched
    ) -> tuple[tuple[str, Json], ...]:
        try:
            return await anyio.to_thread.run_sync(partial(_notes, watched))
        except (IronCurtainError, OSError) as error:
            _log.warning("what escalation %s did is not known: %s", identifier, error)
            return (("snapshot", watched.snapshot.id),)


def _notes(watched: _Watched) -> tuple[tuple[str, Json], ...]:
    finished = finish(watched.snapshot)
    effects = watched.effects.report()
    notes: list[tuple[str, Json]] = [
        ("snapshot", watched.snapshot.id),
        ("changed", list(finished.changed)),
        ("sideEffects", _as_json(effects)),
    ]
    if finished.problem:
        notes.append(("snapshotProblem", finished.problem))
    return tuple(notes)


def _as_json(effects: Effects) -> dict[str, Json]:
    return {
        "created": list(effects.created),
        "changed": list(effects.changed),
        "deleted": list(effects.deleted),
        "more": effects.more,
        "complete": effects.complete,
    }


def _changed(request: AccessRequest, held_by_git: RealPath | None) -> Iterable[RealPath]:
    """The paths that the call may write or delete, but for the repository that git holds."""
    for fact in request.arguments:
        if not _CHANGES.isdisjoint(fact.roles) and any(
            ROLE_TRAITS[role].category == "path" for role in fact.roles
        ):
            for value in fact.values:
                if isinstance(value, PathValue) and value.path != held_by_git:
                    yield value.path
