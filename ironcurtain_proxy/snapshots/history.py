"""The history of a workspace: its oldest state, its last, and the comparison of states."""

import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.model.reply import Change, ChangeKind

# --- the history

# --- entry


EntryKind: TypeAlias = Literal["file", "directory", "link", "pipe", "special", "lost"]
"""`special`: a socket or a device, which holds nothing and is not made again. `lost`: it is there
and is not held, such as a file that cannot be read."""


class Entry(NamedTuple):
    """A path. A tuple, because a workspace has many of them."""

    kind: EntryKind
    mode: int
    """Permissions, with setuid, setgid and sticky."""
    size: int
    """Bytes that its copy takes."""
    inode: int
    names: int
    """The number of hard links, including those outside of the workspace."""
    ctime_ns: int
    """Set by the kernel only, unlike the time of modification."""
    mtime_ns: int
    content: str
    """The digest of a file, the target of a link, why a `lost` one is not held."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Extended ones of a file or directory: names, and values in hexadecimal."""


Tree: TypeAlias = Mapping[str, Entry]
"""The entries by path below the workspace, such as `src/a.py`."""


def without(tree: Tree, left_out: frozenset[str]) -> Tree:
    """Return the tree without these paths and all below them."""
    if not left_out:
        return tree
    return {path: entry for path, entry in tree.items() if not is_among(path, left_out)}


def is_among(path: str, places: frozenset[str]) -> bool:
    """Return whether a path is one of these, or below one."""
    return path in places or any(above in places for above in directories_above(path))


def parent_of(path: str) -> str:
    """Return the directory that a path is in, or empty if the workspace itself."""
    return path.rpartition("/")[0]


def directories_above(path: str) -> Iterator[str]:
    """Yield all directories that a path is in below the workspace, the nearest first."""
    above = parent_of(path)
    while above:
        yield above
        above = parent_of(above)


def kind_of_change(before: Entry | None, after: Entry | None) -> ChangeKind | None:
    """Return the change of a path, or None if none that counts.

    The time of modification does not count. Another inode does where hard links are concerned: one
    of them may have been cut.
    """
    if before is None or after is None:
        gone: ChangeKind | None = "deleted" if after is None else "created"
        return None if before is after else gone
    if before.kind == "lost" and (before.inode, before.ctime_ns) == (after.inode, after.ctime_ns):
        return None  # it is held by now, or still not
    if _is_another(before, after):
        return "changed"
    return "mode" if before.mode != after.mode else None


def _is_another(before: Entry, after: Entry) -> bool:
    was_cut = before.inode != after.inode and max(before.names, after.names) > 1
    # Only its time of change shows whether a file that is not held was written to.
    return was_cut or before.kind == "lost" or _substance(before) != _substance(after)


def _substance(entry: Entry) -> tuple[object, ...]:
    if entry.kind == "directory":
        return entry.kind, entry.attributes
    return entry.kind, entry.size, entry.content, entry.attributes


def is_shut(entry: Entry | None) -> bool:
    """Return whether it is a directory that its owner cannot look into."""
    return entry is not None and entry.kind == "directory" and entry.mode & _LOOK != _LOOK


def mates(tree: Iterable[tuple[str, Entry]]) -> dict[str, frozenset[str]]:
    """Return the names in the workspace that share a file, for each of them."""
    # A plan joins what was with what is, where a number may have become another file's meanwhile.
    alike: dict[tuple[int, str], list[str]] = {}
    shared: set[tuple[int, str]] = set()
    for path, entry in tree:
        if entry.kind == "file":
            key = entry.inode, entry.content
            alike.setdefault(key, []).append(path)
            if entry.names > 1:
                shared.add(key)
    groups = [frozenset(alike[key]) for key in shared]
    return {path: together for together in groups if len(together) > 1 for path in together}


# --- history


PointKind: TypeAlias = Literal["call", "rollback"]

_LOOK: Final = stat.S_IRUSR | stat.S_IXUSR
"""What the owner of a directory needs to look into it."""
_TICK: Final = timedelta(milliseconds=20)
"""A file system's times may lag so far behind the clock."""


class Point(Struct, frozen=True, kw_only=True):
    """The workspace as it was before a call, or before a rollback."""

    number: int
    kind: PointKind = "call"
    call: str
    """The id of the request; of a rollback an id of its own."""
    server: str = ""
    tool: str = ""
    """The tool; for a rollback: the calls that it undid."""
    session: str = ""
    at: datetime


class NotedChange(Struct, frozen=True):
    """The change of a path, with its new state."""

    path: str
    kind: ChangeKind | None
    """The kind of change; None: the content is unchanged. It is the same file under more or fewer
    names, or another file with the same content."""
    after: Entry | None


class Delta(Struct, frozen=True):
    """The changes between two scans."""

    calls: frozenset[int]
    """The points of the calls in progress; empty: no known call."""
    changes: tuple[NotedChange, ...]

    def counted(self) -> Iterator[tuple[str, ChangeKind]]:
        """Yield the changes of content."""
        for noted in self.changes:
            if noted.kind is not None:
                yield noted.path, noted.kind


class ReplacedEntry(Struct, frozen=True):
    """A path that the scanner leaves alone, before and after a call. None: it was not there."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def kind(self) -> ChangeKind | None:
        """The kind of change, or None for an unchanged directory that holds a changed file."""
        before, after = self.before, self.after
        if before is not None and after is not None and before.kind == "file":
            # Only the old content is copied, so the two contents cannot be compared.
            is_same = (before.inode, before.ctime_ns) == (after.inode, after.ctime_ns)
            return None if is_same else "changed"
        return kind_of_change(before, after)


class ReplacedEntries(Struct, frozen=True):
    """What one call changed where the scanner does not look, such as in `node_modules`."""

    call: int
    entries: tuple[ReplacedEntry, ...]


class SettledCall(Struct, frozen=True):
    """The end of a call, whose changes that the kernel told of are all noted before this."""

    number: int
    at: datetime | None = None
    """None: an earlier version of the program did not write it."""
    unseen: tuple[str, ...] = ()
    """Directories of caches that the call may have changed and that were not looked into."""


TimelineRecord: TypeAlias = Point | Delta | ReplacedEntries | SettledCall


class DroppedPoints(Struct, frozen=True, kw_only=True):
    """The points that are no longer kept."""

    points: int = 0
    until: datetime | None = None
    """The time of the last dropped point."""


class History(Struct):
    """The past of one workspace."""

    base: dict[str, Entry] = field(default_factory=dict)
    """The workspace before the first record."""
    records: list[TimelineRecord] = field(default_factory=list)
    dropped: DroppedPoints = field(default_factory=DroppedPoints)
    next: int = 1
    """The number of the next point."""

    def add(self, record: TimelineRecord) -> None:
        """Add a record."""
        self.records.append(record)
        if isinstance(record, Point):
            self.next = max(self.next, record.number + 1)

    def points(self) -> list[Point]:
        """Return the oldest first."""
        return [record for record in self.records if isinstance(record, Point)]

    def point(self, number: int) -> Point | None:
        """Return the point with this number, if it is kept."""
        found = [point for point in self.points() if point.number == number]
        return found[0] if found else None

    def unsettled(self) -> frozenset[int]:
        """Return the points of calls without a known end."""
        settled = {record.number for record in self.records if isinstance(record, SettledCall)}
        return frozenset([point.number for point in self.points()]) - settled

    def windows(self, now: datetime) -> list[tuple[int, int, int]]:
        """Return when each call was in progress: its beginning, its end, its number.

        Times are nanoseconds, as the kernel gives a path's time of change. Those in progress end
        now.
        """
        ends = {one.number: one.at for one in self.records if isinstance(one, SettledCall)}
        return [
            (_nanoseconds(point.at - _TICK), _nanoseconds(end), point.number)
            for point in self.points()
            if (end := ends.get(point.number, now)) is not None
        ]

    def state(self, before: int | None = None) -> dict[str, Entry]:
        """Return the workspace at a point, or None if at the last scan."""
        tree = dict(self.base)
        for record in self.records:
            if isinstance(record, Point) and record.number == before:
                break
            if isinstance(record, Delta):
                for noted in record.changes:
                    if noted.after is None:
                        tree.pop(noted.path, None)
                    else:
                        tree[noted.path] = noted.after
        return tree

    def ever(self) -> Iterator[Mapping[str, Entry]]:
        """Yield every known state of every path, in several trees."""
        yield self.base
        for delta in self._deltas():
            yield {noted.path: noted.after for noted in delta.changes if noted.after is not None}

    def starts(self) -> list[dict[str, Entry]]:
        """Return the workspace before the first call of each session."""
        first = {point.session: point.number for point in reversed(self.points()) if point.session}
        return [self.state(number) for number in first.values()]

    def changes(self, number: int) -> tuple[Change, ...]:
        """Return the changes of a call over all scans, each path once."""
        kinds: dict[str, ChangeKind] = {}
        for delta in self._deltas():
            if number in delta.calls:
                for path, kind in delta.counted():
                    joined = _joined(kinds.pop(path, None), kind)
                    if joined is not None:
                        kinds[path] = joined
        for one in self.replaced({number}):
            if one.kind is not None:
                kinds[one.path] = one.kind
        return tuple(sorted([Change(path, kind) for path, kind in kinds.items()]))

    def replaced(self, calls: Collection[int]) -> list[ReplacedEntry]:
        """Return what these calls changed where the scanner does not look, each path once."""
        found: dict[str, ReplacedEntry] = {}
        for record in self.records:
            if isinstance(record, ReplacedEntries) and record.call in calls:
                for one in record.entries:
                    first = found.get(one.path, one)
                    found[one.path] = ReplacedEntry(one.path, first.before, one.after)
        return list(found.values())

    def unseen(self, number: int) -> tuple[str, ...]:
        """Return the directories that a call may have changed and that were not looked into."""
        settled = [one for one in self.records if isinstance(one, SettledCall)]
        return next((one.unseen for one in settled if one.number == number), ())

    def left(self, number: int) -> dict[str, Entry | None]:
        """Return the paths that a call changed, as it left them. None: it removed that."""
        changed = [delta.changes for delta in self._deltas() if number in delta.calls]
        return {noted.path: noted.after for changes in changed for noted in changes}

    def touched(self, number: int) -> frozenset[str]:
        """Return all paths that a call changed, including those that it changed back."""
        return frozenset(
            [
                path
                for delta in self._deltas()
                if number in delta.calls
                for path, _ in delta.counted()
            ]
        )

    def others(self, number: int) -> dict[str, frozenset[int]]:
        """Return the numbers of other calls that changed each path since a point.

        It is empty if no known call.
        """
        found: dict[str, frozenset[int]] = {}
        for delta in self.since(number):
            if delta.calls != {number}:
                for path, _ in delta.counted():
                    found[path] = found.get(path, frozenset()) | (delta.calls - {number})
        return found

    def since(self, number: int) -> Iterator[Delta]:
        """Yield the changes since a point."""
        reached = False
        for record in self.records:
            if isinstance(record, Point) and record.number == number:
                reached = True
            elif reached and isinstance(record, Delta):
                yield record

    def ever_touched(self) -> Iterator[str]:
        """Yield every path with a known change."""
        for delta in self._deltas():
            for noted in delta.changes:
                if noted.after is not None and noted.after.kind == "file":
                    yield noted.path

    def digests(self) -> set[str]:
        """Return the digests of the needed contents."""
        found = {entry.content for entry in self.base.values() if entry.kind == "file"}
        for delta in self._deltas():
            found |= {
                noted.after.content
                for noted in delta.changes
                if noted.after is not None and noted.after.kind == "file"
            }
        for record in self.records:
            if isinstance(record, ReplacedEntries):
                both = [state for one in record.entries for state in (one.before, one.after)]
                found |= {one.content for one in both if one is not None and one.kind == "file"}
        return found

    def without_oldest(self, count: int) -> "History":
        """Return the history without the oldest points; the others can still be restored."""
        points = self.points()
        if count <= 0 or not points:
            return self
        count = min(count, len(points))
        gone = points[:count]
        kept = points[count] if count < len(points) else None
        start = self.records.index(kept) if kept is not None else len(self.records)
        return History(
            base=self.state(kept.number if kept is not None else None),
            records=[*_without(self.records[start:], {point.number for point in gone})],
            dropped=DroppedPoints(points=self.dropped.points + len(gone), until=gone[-1].at),
            next=self.next,
        )

    def _deltas(self) -> Iterator[Delta]:
        for record in self.records:
            if isinstance(record, Delta):
                yield record


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)


def _without(records: Iterable[TimelineRecord], gone: set[int]) -> Iterator[TimelineRecord]:
    for record in records:
        if isinstance(record, Delta):
            yield Delta(record.calls - gone, record.changes)
        elif isinstance(record, ReplacedEntries):
            if record.call not in gone:
                yield record
        elif not (isinstance(record, SettledCall) and record.number in gone):
            yield record


def _joined(first: ChangeKind | None, second: ChangeKind) -> ChangeKind | None:
    """Return two changes of one path as one, or None if they cancel out."""
    match first, second:
        case None, _:
            return second
        case "created", "deleted":
            return None
        case "created", _:
            return "created"
        case "deleted", _:
            return "changed"
        case _, "mode":
            return first
        case _:
            return second


# --- the state at the last scan

_USUAL: Final = 256
"""Characters of a path that counts once."""


class Difference(Struct, frozen=True):
    """A changed path."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def counts(self) -> bool:
        """Whether more than the time changed."""
        return kind_of_change(self.before, self.after) is not None

    def noted(self) -> NotedChange | None:
        """Return it as it is recorded, or None if it is not."""
        before, after = self.before, self.after
        kind = kind_of_change(before, after)
        if kind is None and before is not None and after is not None:
            told = "inode", "names", "content"
            alike = all(getattr(before, name) == getattr(after, name) for name in told)
            if alike or after.kind == "directory":
                return None
        return NotedChange(self.path, kind, after)


class Known:
    """Every scanned path."""

    def __init__(self) -> None:
        """Begin empty."""
        self.directories: dict[str, dict[str, Entry]] = {}
        self.lost: set[str] = set()
        """Paths that exist and are not held."""
        self.linked: set[str] = set()
        """Files with further names, under which they can change without an event."""
        self.unlisted: set[str] = set()
        """Directories that cannot be looked into, or are of another file system."""
        self.bytes = 0
        """The bytes of all copies."""

    def __len__(self) -> int:
        """Return the number of paths, of which long ones count as several."""
        return sum([len(found) * weight(path) for path, found in self.directories.items()])

    def get(self, path: str) -> Entry | None:
        """Return the state of a path."""
        directory, _, name = path.rpartition("/")
        return self.directories.get(directory, {}).get(name)

    def all(self) -> Iterator[tuple[str, Entry]]:
        """Yield all states."""
        for directory, found in self.directories.items():
            for name, entry in found.items():
                yield joined(directory, name), entry

    def below(self, directory: str) -> Iterator[str]:
        """Yield the directory and those below it."""
        waiting = [directory]
        while waiting:
            path = waiting.pop()
            if path in self.directories:
                yield path
                waiting += [
                    joined(path, name)
                    for name, entry in self.directories[path].items()
                    if entry.kind == "directory"
                ]

    def assume(self, tree: Mapping[str, Entry]) -> None:
        """Begin with the state of an earlier session."""
        self.directories = {"": {}} if tree else {}
        for path, entry in tree.items():
            directory, _, name = path.rpartition("/")
            self.directories.setdefault(directory, {})[name] = entry
            if entry.kind == "directory":
                self.directories.setdefault(path, {})
        # Somebody may have opened them since.
        self.unlisted = {path for path, entry in tree.items() if is_shut(entry)}
        self.lost = {path for path, entry in tree.items() if entry.kind == "lost"}
        self.linked = {path for path, entry in tree.items() if entry.names > 1}
        self.bytes = sum([entry.size for entry in tree.values()])

    def gone(self, seen: Mapping[str, Mapping[str, Entry]], *, everything: bool) -> set[str]:
        """Return the removed directories, with all below them."""
        if everything:
            return self.directories.keys() - seen.keys()
        found: set[str] = set()
        for path, now in seen.items():
            for name, entry in self.directories.get(path, {}).items():
                after = now.get(name)
                if entry.kind == "directory" and (after is None or after.kind != "directory"):
                    found.update(self.below(joined(path, name)))
        return found

    def has_new_links(self, seen: Mapping[str, Mapping[str, Entry]]) -> bool:
        """Return whether a file has got another name, so that its path before is unknown."""
        for path, now in seen.items():
            old = self.directories.get(path, {})
            for name, entry in now.items():
                before = old.get(name)
                if entry.names > 1 and entry is not before:
                    was = (0, 0) if before is None else (before.inode, before.names)
                    if was != (entry.inode, entry.names):
                        return True
        return False

    def take(self, seen: Mapping[str, dict[str, Entry]], gone: set[str]) -> list[Difference]:
        """Store a new state. Returns the differences."""
        found = [
            Difference(joined(path, name), entry, None)
            for path in gone
            for name, entry in self.directories.pop(path).items()
        ]
        self.unlisted -= gone
        for path, now in seen.items():
            if path not in gone:
                old = self.directories.get(path, {})
                self.directories[path] = now
                found += [
                    Difference(joined(path, name), old.get(name), now.get(name))
                    for name in old.keys() | now.keys()
                    if old.get(name) is not now.get(name)
                ]
        for one in found:
            self._account(one)
        return found

    def _account(self, one: Difference) -> None:
        if one.before is not None:
            self.bytes -= one.before.size
            self.lost.discard(one.path)
            self.linked.discard(one.path)
        if one.after is not None:
            self.bytes += one.after.size
            if one.after.kind == "lost":
                self.lost.add(one.path)
            if one.after.names > 1:
                self.linked.add(one.path)

    def unheld(self, path: str) -> dict[str, str]:
        """Return the parts at, below or around a path that were not copied, with the reasons."""
        found = dict.fromkeys(self.unlisted, "it cannot be looked into")
        found |= {one: entry.content for one in self.lost if (entry := self.get(one)) is not None}
        return {
            one: why
            for one, why in found.items()
            if not path or _is_at(one, path) or _is_at(path, one)
        }


def weight(directory: str) -> int:
    """Return the weight of a path in a directory: a deep tree has little in it and long paths."""
    return 1 + len(directory) // _USUAL


def joined(directory: str, name: str) -> str:
    """Return the path of a name in a directory."""
    return f"{directory}/{name}" if directory else name


def _is_at(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")
