"""Rollbacks of calls. A rollback makes a point, so that it can be undone, too."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.control_places.git_files import says_the_same
from ironcurtain_proxy.model.reply import Change
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.snapshots.applying import Application
from ironcurtain_proxy.snapshots.history import DroppedPoints, Entry, History, Point, Tree
from ironcurtain_proxy.snapshots.keeper import Keeper, Limits
from ironcurtain_proxy.snapshots.log import DamagedError, Log
from ironcurtain_proxy.snapshots.opening import timelines
from ironcurtain_proxy.snapshots.planning import (
    ConflictError,
    NoPointError,
    Obstacle,
    RollbackError,
    RollbackPlan,
    again,
    is_same,
    rewind,
    take_back,
)
from ironcurtain_proxy.snapshots.reading import Staging
from ironcurtain_proxy.snapshots.scanning import TooManyBytesError, TooManyFilesError

_ROUNDS: Final = 5
"""How often a rollback with force tries what another process changes meanwhile."""

ScanContext: TypeAlias = Callable[[Sequence[Tree]], AbstractContextManager[None]]


class ListedPoint(Struct, frozen=True, kw_only=True):
    """A point, for display."""

    point: Point
    workspace: RealPath
    changes: tuple[Change, ...]
    is_settled: bool
    unseen: tuple[str, ...] = ()
    """Directories of caches that the call may have changed and that were not looked into."""
    left: Mapping[str, Entry | None] = {}
    """What the call left at the paths that it changed."""


class KeptTimeline(Struct, frozen=True, kw_only=True):
    """One timeline, for display."""

    workspace: RealPath
    directory: Path
    points: tuple[ListedPoint, ...]
    dropped: DroppedPoints
    not_held: tuple[str, ...]
    """Paths that could not be restored, at the last scan."""


class RollbackRequest(Struct, frozen=True, kw_only=True):
    """The request for a rollback."""

    directory: Path
    """The directory of the timeline."""
    workspace: RealPath
    point: Point
    rewind: bool = False
    """Whether to undo everything after the point, too."""
    force: bool = False
    dry_run: bool = False


class RollbackOutcome(Struct, frozen=True, kw_only=True):
    """The result of a rollback, or of its simulation."""

    plan: RollbackPlan
    id: str | None
    """The point by which the rollback can be undone, or None if nothing was done."""
    others: tuple[Point, ...]
    """The points of other calls that the rollback undoes."""
    nobodys: tuple[Change, ...]
    """Changes since the point that no known call made."""
    conflicts: tuple[str, ...] = ()
    """Obstacles without force: a path, and the reason."""
    stayed: tuple[str, ...] = ()
    """Directories with content that is not held."""
    aside: tuple[tuple[str, str], ...] = ()
    """Directories with such content that stood where something else was, and where they are now."""
    failed: tuple[tuple[str, str], ...] = ()
    """Paths that are not as planned, with the reasons."""
    unseen: tuple[str, ...] = ()
    """Directories of caches that the call may have changed and that were not looked into."""


def kept(parent: Path) -> list[KeptTimeline]:
    """Return all timelines, the oldest point first, without a scan."""
    found = []
    for directory, workspace in timelines(parent):
        with suppress(OSError):
            history = Log(directory).read()
            if history is not None:
                found.append(_kept(directory, workspace, history))
    return found


def _kept(directory: Path, workspace: RealPath, history: History) -> KeptTimeline:
    open_calls = history.unsettled()
    return KeptTimeline(
        workspace=workspace,
        directory=directory,
        dropped=history.dropped,
        points=tuple(
            [
                ListedPoint(
                    point=point,
                    workspace=workspace,
                    changes=history.changes(point.number),
                    is_settled=point.number not in open_calls,
                    unseen=history.unseen(point.number),
                    left=history.left(point.number),
                )
                for point in history.points()
            ]
        ),
        not_held=tuple(
            sorted([path for path, entry in history.state().items() if entry.kind == "lost"])
        ),
    )


def find(
    reference: str, timelines_kept: Iterable[KeptTimeline]
) -> tuple[KeptTimeline, Point] | None:
    """Return the point whose call's id begins so, or None if there is none.

    Raises:
        NoPointError: there are several.
    """
    found = [
        (one, listed.point)
        for one in timelines_kept
        for listed in one.points
        if listed.point.call.lower().startswith(reference.lower())
    ]
    if len(found) > 1:
        raise NoPointError(f"{len(found)} calls begin with {reference}: give more of the id")
    return found[0] if found else None


def roll_back(
    request: RollbackRequest,
    limits: Limits,
    now: Callable[[], datetime],
    confirm: Callable[[RollbackOutcome], bool],
    looking: ScanContext = lambda _: nullcontext(),
) -> RollbackOutcome:
    """Roll back, or simulate it.

    Args:
        request: the request.
        limits: those of the timeline; force goes beyond them.
        now: the time.
        confirm: gets the other undone calls, if there are any, or False if nothing is done.
        looking: is around what puts paths back, and is given the workspace at the starts of
            sessions.

    Raises:
        ConflictError: there is an obstacle; nothing was done.
        RollbackError: it failed, completely or in part.
    """
    if request.force:
        limits = replace(limits, max_files=1 << 40, max_bytes=1 << 50)
    with _errors():
        keeper = Keeper(
            request.directory, request.workspace, limits, session="", now=now, is_owner=False
        )
        try:
            with keeper.writing():
                return _TimelineRollback(keeper, request, now, looking).run(confirm)
        finally:
            keeper.close()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except TooManyFilesError:
        raise RollbackError(
            "the workspace has more files than the timeline may hold; --force goes on although "
            "that could not be undone"
        ) from None
    except TooManyBytesError:
        raise RollbackError(
            "the workspace is larger than the timeline may hold; --force goes on although that "
            "could not be undone"
        ) from None
    except TimeoutError:
        raise RollbackError("the timeline is in use; try again") from None
    except OSError as error:
        raise RollbackError(f"{error.filename or 'the timeline'}: {error.strerror}") from None


class _TimelineRollback(Struct, eq=False):
    keeper: Keeper
    request: RollbackRequest
    now: Callable[[], datetime]
    looking: ScanContext
    _replaced: list[str] = field(default_factory=list)
    _before: dict[str, Entry] = field(default_factory=dict)
    """What calls replaced in caches, as it was when the rollback began."""
    _cached: dict[str, Entry] = field(default_factory=dict)
    """The same, as it is at the last look."""

    def run(self, confirm: Callable[[RollbackOutcome], bool]) -> RollbackOutcome:
        keeper, request = self.keeper, self.request
        number = request.point.number
        if keeper.history.point(number) is None:
            raise NoPointError("the point was dropped meanwhile: look at the list of points again")
        self._look()
        plan = self._plan()
        outcome = self._outcome(plan)
        if request.dry_run or not (plan.steps or plan.lost):
            return outcome
        if plan.obstacles and not request.force:
            raise ConflictError(
                "nothing was put back, because of what came later",
                outcome.conflicts,
            )
        if keeper.scanner.full and not request.force:
            raise RollbackError("no space is left to copy present files; --force overwrites them")
        if (outcome.others or outcome.nobodys) and request.rewind and not confirm(outcome):
            return outcome
        return self._apply(plan, outcome)

    def _look(self) -> None:
        """Scan everything: writes through a memory mapping leave the time unchanged."""
        keeper = self.keeper
        under_way = keeper.history.unsettled()
        keeper.scanner.read_again(keeper.history.ever_touched())
        keeper.note_untold(keeper.look(everything=True, contents=True), under_way)
        # The directories were closed after the changes that are found in them now.
        keeper.open_up([*keeper.scanner.known.unheld("")], under_way)

    def _plan(self) -> RollbackPlan:
        history, number = self.keeper.history, self.request.point.number
        calls = {point.number for point in history.points() if point.number > number}
        replaced = history.replaced({number, *calls} if self.request.rewind else {number})
        self._replaced = [one.path for one in replaced]
        self._before = self._cached = self.keeper.cached.states(
            self._replaced, copy=True, below=False
        )
        now = self._present()
        if self.request.rewind:
            plan = rewind(history, number, now)
        else:
            plan = take_back(history, number, now, self._says_the_same, force=self.request.force)
        # Paths that are excluded today may have been copied under other settings.
        return plan.without(self.keeper.scanner.left_out)

    def _says_the_same(self, path: str, then: Entry, now: Entry) -> bool:
        """Return whether git only noted the times of files: any `git status` does that."""
        if not f"/{path}".endswith("/index") or "/.git/" not in f"/{path}" or then.mode != now.mode:
            return False
        try:
            read = self.keeper.blobs.read
            return says_the_same(read(then.content), read(now.content))
        except (OSError, DamagedError):
            return False

    def _present(self) -> dict[str, Entry]:
        return dict(self.keeper.scanner.known.all()) | self._cached

    def _outcome(self, plan: RollbackPlan) -> RollbackOutcome:
        history, number = self.keeper.history, self.request.point.number
        nobodys = {
            Change(path, kind)
            for delta in history.since(number)
            if not delta.calls
            for path, kind in delta.counted()
        }
        return RollbackOutcome(
            plan=plan,
            id=None,
            others=tuple([point for point in history.points() if point.number in plan.others]),
            nobodys=tuple(sorted(nobodys)) if self.request.rewind else (),
            conflicts=tuple([self._said(one) for one in plan.obstacles]),
            unseen=history.unseen(number),
        )

    def _said(self, one: Obstacle) -> str:
        if one.calls is None:
            return f"{one.path} {one.why}"
        calls = [p.call for p in self.keeper.history.points() if p.number in one.calls]
        return f"{one.path} {one.why}, by {', '.join(calls) or 'no call that is known'}"

    def _apply(self, plan: RollbackPlan, outcome: RollbackOutcome) -> RollbackOutcome:
        keeper, request = self.keeper, self.request
        own = Point(
            number=keeper.history.next,
            kind="rollback",
            call=os.urandom(16).hex(),
            tool=f"{'to ' if request.rewind else ''}{request.point.call}",
            at=self.now(),
        )
        if not keeper.add(own):
            raise RollbackError("the timeline cannot be written: nothing was put back")
        staging = Staging(request.directory, keeper.root)
        stayed: list[str] = []
        aside: dict[str, str] = {}
        failed: dict[str, str] = {}
        try:
            with self.looking(keeper.history.starts()):
                # Once without force: what somebody changed meanwhile is not overwritten.
                for _ in range(_ROUNDS if request.force else 1):
                    steps = again(plan, failed, self._present()) if failed else plan
                    application = Application(
                        keeper.root,
                        keeper.blobs,
                        staging,
                        steps,
                        self._present(),
                        force=request.force,
                    )
                    application.apply()
                    stayed += application.stayed
                    aside |= application.aside
                    failed = self._compared(plan, own.number, stayed) | application.failed
                    if not failed:
                        break
        finally:
            staging.close()
            with suppress(OSError, TooManyFilesError, TooManyBytesError):
                keeper.note(keeper.look(everything=True), {own.number})
                after = keeper.cached.states(self._replaced, copy=False, below=False)
                keeper.note_replaced(own.number, self._before, after)
                keeper.settled(own.number)
        return replace(
            outcome,
            id=own.call,
            stayed=tuple(dict.fromkeys(stayed)),
            aside=tuple(aside.items()),
            failed=tuple(sorted(failed.items())),
        )

    def _compared(self, plan: RollbackPlan, own: int, stayed: Collection[str]) -> dict[str, str]:
        """Return the paths that are not as planned: another process may have exchanged them."""
        keeper = self.keeper
        keeper.scanner.read_again([step.path for step in plan.steps])
        keeper.note(keeper.look(everything=True), {own})
        self._cached = keeper.cached.states(self._replaced, copy=True, below=False)
        present = self._present()
        return {
            step.path: "was changed by another process while it was put back"
            for step in plan.steps
            if not is_same(plan.target.get(step.path), present.get(step.path))
            and step.path not in stayed
        }
