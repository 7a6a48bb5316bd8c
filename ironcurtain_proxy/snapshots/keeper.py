"""The timeline of one workspace: its points, the changes between them, and copies of files.

Theory of operation: a point is made before each call that may change the workspace. The scanner
compares the workspace with its last known state; each difference is noted in the history for the
calls in progress, and the content that a file had is kept as a copy, named by its digest.

    mark ── look ── note ──▶ point 12     call     settle ── look ── note ──▶ changes of point 12
             │                                                 │
             └──────── copies of contents (blobs) ◀────────────┘

The state of the workspace at a point follows from the differences noted since. History is a log on
the disk, guarded by a lock, so that a rollback in another process sees it whole; a process that
finds the log changed reads it again. Points of a process that was killed are settled at the next
start. The oldest points are dropped first when a limit of bytes, points or age is reached, and with
them the copies that no later point needs. One thread at a time may use a `Keeper`.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.reply import Change, NotHeld, PathNotHeld, PointId
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.snapshots.applying import set_mode_of
from ironcurtain_proxy.snapshots.closed_places import known_until, with_found
from ironcurtain_proxy.snapshots.history import (
    Delta,
    Difference,
    Entry,
    History,
    Point,
    ReplacedEntries,
    ReplacedEntry,
    SettledCall,
    TimelineRecord,
    directories_above,
    is_among,
    kind_of_change,
)
from ironcurtain_proxy.snapshots.log import Blobs, Log
from ironcurtain_proxy.snapshots.opening import (
    LARGEST_PART,
    OpenedRoot,
    too_large,
    too_many,
)
from ironcurtain_proxy.snapshots.reading import InTheWayError, Reader
from ironcurtain_proxy.snapshots.scanning import (
    CachedPaths,
    Scanner,
    StoppedError,
    TooManyBytesError,
    TooManyFilesError,
)

_LOCK_SECONDS: Final = 60.0
_MOST_POINTS: Final = 2000
_MOST_UNSEEN: Final = 100


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a timeline."""

    max_bytes: int = 2 << 30
    """Bytes of copies; one file may have a quarter of them."""
    max_files: int = 200_000
    """Files, directories and links of the workspace."""
    caches: frozenset[str] = frozenset()
    """Names of directories that are left alone."""
    keep: timedelta = timedelta(days=14)
    left_out: frozenset[RealPath] = frozenset()
    """Paths that are neither copied nor restored: keys, and the proxy's own files."""


class Keeper:
    """Makes points, and finds the changes since."""

    def __init__(
        self,
        directory: Path,
        workspace: RealPath,
        limits: Limits,
        *,
        session: str,
        now: Callable[[], datetime],
        is_owner: bool = True,
    ) -> None:
        """Keep the timeline of a workspace in a directory of its own, in that of all timelines.

        `is_owner`: no call is under way but what is marked here; others, such as a rollback, only
        visit.

        Raises:
            OSError: one of the two cannot be opened.
        """
        self.root = OpenedRoot(str(workspace))
        self.workspace = workspace
        self.blobs = Blobs(directory / "copies")
        self.history = History()
        self.log = Log(directory)
        self.scanner = Scanner(
            self.root,
            Reader(self.blobs, limits.max_bytes // LARGEST_PART),
            caches=limits.caches,
            max_files=limits.max_files,
            max_bytes=limits.max_bytes,
        )
        own = RealPath.from_text(str(directory.resolve().parent.parent))
        self.scanner.left_out = frozenset(
            [
                "/".join(path.parts[len(workspace.parts) :])
                for path in (own, *limits.left_out)
                if path.is_within(workspace) and path != workspace
            ]
        )
        self.cached = CachedPaths(
            self.root,
            self.scanner.reader,
            self.scanner.known.get,
            left_out=self.scanner.left_out,
            most_bytes=limits.max_bytes // LARGEST_PART,
        )
        self._programs: dict[str, Entry] = {}
        """The programs in caches at the last point."""
        self._limits = limits
        self._session = session
        self._now = now
        self._behind = False
        self._is_owner = is_owner
        self._begun = False
        self._open: set[int] = set()
        """The points of calls in progress in this process."""
        self._unasked: set[int] = set()
        """Those that nobody approved."""
        self._late: set[int] = set()
        """The points of ended calls that could not be settled."""
        self._since_full: set[int] = set()
        """Calls that ended since the last complete scan."""
        self.seconds_waited = _LOCK_SECONDS

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock, with the current history.

        Raises:
            TimeoutError, OSError: it cannot be had.
        """
        with self.log.locked(self.seconds_waited):
            if self.log.is_foreign():
                found = self.log.read()
                if found is None and self._is_owner:
                    found = History()
                    self.log.replace(found)
                elif found is None:
                    raise FileNotFoundError
                self.history, self._behind = found, False
                self.scanner.assume(found.state(), found.ever())
                if self._is_owner:
                    self.blobs.keep(found.digests())
                    self._drop_old()
            elif self._behind:
                self.log.replace(self.history)
                self._behind = False
            yield

    def begin(self) -> None:
        """Scan the workspace for the first time. Points wait for it.

        Raises:
            TooManyFilesError, TooManyBytesError, StoppedError, OSError: it cannot be held as it is.
        """
        with self.writing():
            self._begin()

    def _begin(self) -> None:
        if self._begun:
            return
        # The process of these calls was killed: their changes are noted now.
        left = self.history.unsettled()
        self.note(self.look(), left)
        for number in sorted(left):
            self.settled(number)
        self._begun = True

    def mark(
        self, call: str, server: str, tool: str, *, may_drop: bool = True
    ) -> PointId | NotHeld:
        """Make the point before a call; `may_drop`: may drop this session's oldest points."""
        try:
            with self.writing():
                return self._marked(call, server, tool, may_drop=may_drop)
        except (TooManyFilesError, TooManyBytesError, StoppedError, OSError) as error:
            return NotHeld(self._why_not(error))

    def _marked(
        self,
        call: str,
        server: str,
        tool: str,
        opened: frozenset[str] = frozenset(),
        *,
        may_drop: bool,
    ) -> PointId | NotHeld:
        if not self.root.is_in_place():
            return NotHeld("the workspace was moved or replaced")
        self._begin()
        # A look that a storm of renames outran did not see all that the call had changed by then.
        self.note_untold(self.look(), self._open)
        self._open_up(opened)
        for number in sorted(self._late):
            self.settled(number)
        self._late.clear()
        if self.scanner.full:
            return NotHeld("no space is left for copies of files")
        if not self._drop(others_only=not may_drop):
            if not may_drop:
                return NotHeld("earlier calls of this session could not be taken back any more")
            raise TooManyBytesError
        point = Point(
            number=self.history.next,
            call=call,
            server=server,
            tool=tool,
            session=self._session,
            at=self._now(),
        )
        if not self.add(point):
            return NotHeld("the timeline cannot be written")
        self._programs = self.cached.programs(self.scanner.caches_met)
        self._open.add(point.number)
        if not may_drop:
            self._unasked.add(point.number)
        return PointId(str(point.number))

    def _why_not(self, error: Exception) -> str:
        match error:
            case TooManyFilesError():
                return too_many(self._limits.max_files)
            case TooManyBytesError():
                return too_large(self._limits.max_bytes)
            case TimeoutError():
                return "a rollback is under way"
            case OSError():
                return f"the workspace or its timeline cannot be used: {error.strerror}"
            case _:
                return "the proxy is ending"

    def add(self, point: Point) -> bool:
        """Record a point. Return False if it cannot be recorded, and does not exist."""
        self.history.add(point)
        written = self._write(point)
        if not written:
            self.history.records.pop()
        return written

    def end_call(self, point: PointId) -> tuple[Change, ...] | NotHeld:
        """Note the changes of the call."""
        number = int(point)
        try:
            with self.writing():
                found = self.look(contents=True)
                self.note(found, self._open)
                if self._close_to_others(found):
                    self.note(self.look(), self._open)
                self._since_full.add(number)
                self._note_programs(number)
                self.settled(number, unseen=tuple(sorted(self.scanner.caches_met)[:_MOST_UNSEEN]))
                # Points of this session are dropped only before a call, which is then asked about.
                self._drop(others_only=True)
        except (TooManyFilesError, TooManyBytesError, StoppedError, OSError) as error:
            # Its changes are noted when the workspace can be held again.
            self._late.add(number)
            return NotHeld(self._why_not(error))
        return self.history.changes(number)

    def _close_to_others(self, changed: Iterable[Difference]) -> bool:
        """Take away that others of the machine may write where they could not. Return if any."""
        if not self._open <= self._unasked:
            return False
        opened = [
            (one.path, one.after)
            for one in changed
            if one.after is not None
            and one.after.kind != "link"
            and one.after.mode & ~(one.before.mode if one.before else 0) & stat.S_IWOTH
        ]
        for path, entry in opened:
            above, _, name = path.rpartition("/")
            is_it = partial(_has_inode, entry.inode)
            # Gone, or something else by now: the next look tells.
            with suppress(OSError, InTheWayError), self.root.directory(above) as parent:
                set_mode_of(parent, name, entry.mode & ~stat.S_IWOTH, is_it)
        return bool(opened)

    def transact(
        self,
        call: str,
        server: str,
        tool: str,
        paths: Collection[str],
        apply: Callable[[], Collection[str]],
        *,
        may_drop: bool = True,
    ) -> tuple[PointId, tuple[Change, ...]] | NotHeld:
        """Make a point of exactly what `apply` changes; see `ports.Timeline.transact`."""
        failure: BaseException | None = None
        point: PointId | NotHeld | None = None
        late: Collection[str] = ()
        try:
            with self.writing():
                point = self._marked(call, server, tool, frozenset(paths), may_drop=may_drop)
                if isinstance(point, NotHeld):
                    return point
                before = self.cached.states(paths, copy=True)
                if not may_drop and (why := self._why_lost(paths, before)) is not None:
                    self.settled(int(point))
                    return NotHeld(f"a part of what it replaces is not held: {why}")
                try:
                    late = apply()
                except BaseException as error:  # noqa: BLE001  raised again when its part is noted
                    failure = error
                self._note_transaction(int(point), frozenset(paths), frozenset(late), before)
        except (TooManyFilesError, TooManyBytesError, StoppedError, OSError) as error:
            if isinstance(point, str):
                # What is known of it is noted when the workspace can be held again.
                self._late.add(int(point))
            return NotHeld(self._why_not(error))
        finally:
            self.root.opens = self.scanner.reader.opens = False
        if failure is not None:
            raise failure
        return point, self.history.changes(int(point))

    def _open_up(self, paths: frozenset[str]) -> None:
        """Look into what is closed to its owner at, in or around these paths.

        A call that closed it is no reason for the next one to fail: without us it would not.
        """
        if not paths:
            return
        around = {above for path in paths for above in directories_above(path)}
        lost = self.scanner.known.unheld("")
        self.open_up([one for one in lost if one in around or is_among(one, paths)], self._open)

    def open_up(self, lost: Collection[str], others: frozenset[int] | set[int]) -> None:
        """Open what is closed to its owner for the time of each look, from now on.

        `lost` is looked into now; other changes that this finds are those of `others`.
        """
        self.root.opens = self.scanner.reader.opens = True
        if lost:
            below = [f"{path}/" for one in lost for path in self.scanner.known.below(one)]
            self.scanner.read_again([*lost, *below])
            self.note(self.look(opened=lost), others)

    def _why_lost(self, paths: Collection[str], cached: Mapping[str, Entry]) -> str | None:
        """Return why something at, below or around these paths is not held, or None if all is."""
        lost = self.scanner.unheld("")
        lost |= {path: entry.content for path, entry in cached.items() if entry.kind == "lost"}
        places, changed = frozenset(lost), frozenset(paths)
        for path, why in lost.items():
            if is_among(path, changed):
                return why
        around = (above for path in paths for above in directories_above(path) if above in places)
        return next((lost[above] for above in around), None)

    def _note_transaction(
        self,
        number: int,
        paths: frozenset[str],
        late: frozenset[str],
        before: Mapping[str, Entry],
    ) -> None:
        ended_ns = time.time_ns()
        above = {place for path in paths for place in directories_above(path)}
        own: list[Difference] = []
        others: list[Difference] = []
        for one in self.look():
            # Another process may have changed other paths meanwhile.
            is_own = is_among(one.path, paths) and not is_among(one.path, late)
            (own if is_own or one.path in above else others).append(one)
        self.note(own, {number})
        # Of what somebody has written since, only the result is known: so nobody takes it back.
        others += [one for one in own if one.after and one.after.ctime_ns > ended_ns]
        self.note(others, self._open - {number})
        self.note_replaced(number, before, self.cached.states(paths, copy=False))
        self.settled(number)

    def note_replaced(
        self, number: int, before: Mapping[str, Entry], after: Mapping[str, Entry]
    ) -> None:
        """Record what a call changed where the scanner does not look."""
        entries = [
            ReplacedEntry(path, before.get(path), after.get(path))
            for path in sorted(before.keys() | after.keys())
            if self.scanner.known.get(path) is None
        ]
        changed = {one.path for one in entries if one.kind is not None}
        needed = frozenset(above for path in changed for above in directories_above(path)) | changed
        if changed:
            record = ReplacedEntries(number, tuple([one for one in entries if one.path in needed]))
            self.history.add(record)
            self._write(record)

    def _note_programs(self, number: int) -> None:
        now = self.cached.programs(self.scanner.caches_met)
        if self._close_to_others([Difference(p, self._programs.get(p), now[p]) for p in now]):
            now = self.cached.programs(self.scanner.caches_met)
        both = self._programs.keys() | now.keys()
        changed = {p for p in both if kind_of_change(self._programs.get(p), now.get(p)) is not None}
        self.note_replaced(
            number,
            {path: entry for path, entry in self._programs.items() if path in changed},
            {path: entry for path, entry in now.items() if path in changed},
        )
        self._programs = now

    def verify(self) -> None:
        """Scan everything, for changes without events.

        Raises:
            TooManyFilesError, TooManyBytesError, StoppedError, OSError: see `begin`.
        """
        with self.writing():
            # The changes that the kernel reports came after these calls.
            self.note(self.look(), self._open)
            found = self.look(everything=True, contents=True)
            self.note_untold(found, self._open | self._since_full)
            self._since_full.clear()
            self._drop_old()

    def unheld(self, path: RealPath) -> tuple[PathNotHeld, ...]:
        """Return the parts that could not be restored after a deletion."""
        if not path.is_within(self.workspace):
            return (PathNotHeld(path, "it lies outside the workspace"),)
        try:
            with self.writing():
                self.note(self.look(), self._open)
        except (TooManyFilesError, TooManyBytesError, StoppedError, OSError) as error:
            return (PathNotHeld(path, self._why_not(error)),)
        found = self.scanner.unheld("/".join(path.parts[len(self.workspace.parts) :]))
        top = self.workspace.parts
        lost = sorted(found.items())
        return tuple([PathNotHeld(RealPath((*top, *one.split("/"))), why) for one, why in lost])

    def look(
        self, *, everything: bool = False, contents: bool = False, opened: Collection[str] = ()
    ) -> list[Difference]:
        """Return the differences since the last scan; `opened`: what we open for it.

        What was there already where we could not look is none.

        Raises:
            TooManyFilesError, TooManyBytesError, StoppedError, OSError: see `Scanner.look`.
        """
        closed = opened or frozenset(self.scanner.known.unlisted)
        try:
            found = self.scanner.look(everything=everything, contents=contents)
        except (TooManyFilesError, TooManyBytesError):
            self.blobs.keep(self._needed())
            raise
        if not (closed and found):
            return found
        until = None if opened else known_until(self.history, self._now())
        others = with_found(self.history, closed, found, until)
        if len(others) < len(found):
            self._rewrite()
        return others

    def note(self, differences: list[Difference], calls: frozenset[int] | set[int]) -> None:
        """Record the differences as changes of these calls."""
        first = not self.history.records and not self.history.base
        if first:
            self.history.base = dict(self.scanner.known.all())
            self._rewrite()
            return
        self.scanner.hold({one.path: one.before for one in differences if one.before})
        changes = [noted for one in differences if (noted := one.noted()) is not None]
        if changes:
            delta = Delta(frozenset(calls), tuple(changes))
            self.history.add(delta)
            self._write(delta)

    def note_untold(self, differences: list[Difference], others: frozenset[int] | set[int]) -> None:
        """Record differences that the kernel may not have told of, such as those by a hard link.

        They are changes of the calls that were in progress at the time of change; where there was
        none, or a write left the time unchanged, of `others`.
        """
        by_calls: dict[frozenset[int], list[Difference]] = {}
        windows = self.history.windows(self._now()) if differences else []
        for one in differences:
            before, after = one.before, one.after
            is_timed = after is not None and (before is None or before.ctime_ns != after.ctime_ns)
            moment = after.ctime_ns if after is not None and is_timed else -1
            found = frozenset([call for start, end, call in windows if start <= moment <= end])
            by_calls.setdefault(found or frozenset(others), []).append(one)
        for calls, those in by_calls.items():
            self.note(those, calls)

    def settled(self, number: int, *, unseen: tuple[str, ...] = ()) -> None:
        """Record the end of a call, and the caches that were not looked into."""
        self._open.discard(number)
        self._unasked.discard(number)
        record = SettledCall(number, self._now(), unseen)
        self.history.add(record)
        self._write(record)

    def _write(self, record: TimelineRecord) -> bool:
        # After a record that cannot be written, the next occasion writes all of them: a point, or
        # the end of a call, is wrong without the changes before it.
        if not self._behind:
            self._behind = True
            with suppress(OSError):
                self.log.append(record)
                self._behind = False
        return not self._behind

    def _needed(self) -> set[str]:
        seen = {entry.content for _, entry in self.scanner.known.all() if entry.kind == "file"}
        return self.history.digests() | seen

    def _drop(self, *, others_only: bool) -> bool:
        """Drop the oldest points until the rest fits. Return False if it does not, without any.

        `others_only`: only those of other sessions; one more point has to fit.
        """
        if not self._drop_many(others_only=others_only):
            return False
        while self.blobs.stored > self._limits.max_bytes:
            ended = [p for p in self.history.points() if p.number not in self._open]
            if others_only:
                ended = [p for p in ended if p.session != self._session]
            if not ended:
                if not others_only or not self.history.points():
                    self._without(0)
                return self.blobs.stored <= self._limits.max_bytes
            before = len(self.history.points())
            self._without(max(1, len(ended) // 4))
            if len(self.history.points()) == before:
                return False
        return True

    def _drop_many(self, *, others_only: bool) -> bool:
        points = self.history.points()
        most = len(points) - _MOST_POINTS + others_only
        if most > 0:
            own = [n for n, point in enumerate(points) if point.session == self._session]
            count = most + _MOST_POINTS // 4
            self._without(min([count, *own]) if others_only else count)
        return not others_only or len(self.history.points()) < _MOST_POINTS

    def _drop_old(self) -> None:
        limit = self._now() - self._limits.keep
        old = 0
        for point in self.history.points():
            if point.at > limit:
                break
            old += 1
        if old:
            self._without(old)

    def _without(self, count: int) -> None:
        for index, point in enumerate(self.history.points()[:count]):
            if point.number in self._open:
                count = index
                break
        self.history = self.history.without_oldest(count)
        self._rewrite()
        self.blobs.keep(self._needed())

    def _rewrite(self) -> None:
        self._behind = True
        with suppress(OSError):
            self.log.replace(self.history)
            self._behind = False

    def close(self) -> None:
        """Give everything back."""
        self.scanner.close()
        self.root.close()


def _has_inode(inode: int, status: os.stat_result) -> bool:
    return status.st_ino == inode
