"""The watch over steering files where servers may write, while servers run.

Sandboxes close the steering files that exist at the start (`closed`). They cannot close files that
appear later: the watch finds these after each call, and between calls as soon as they appear. A
file that can run nothing stays, such as the files of a new clone. Any other is put back, and
reported.

A look costs as much as what has changed. The methods block, and may be called from any thread.
"""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from ironcurtain_proxy.model.audit import PutBack
from ironcurtain_proxy.sandbox.inotify import Event, Inotify
from ironcurtain_proxy.sandbox.known_places import (
    KnownPlace,
    has_one_name,
    inode_of,
    is_directory,
    joined,
    shown,
)
from ironcurtain_proxy.sandbox.leads import Leads
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles, let_in, restore
from ironcurtain_proxy.sandbox.steering import (
    HOOKS,
    NOT_SEARCHED,
    Item,
    SteeringPlace,
    inner_directories,
    is_accepted,
    is_bare,
    items_of,
    may_point,
    place_of,
)

MOST_DIRECTORIES: Final = 20_000
"""Each costs a kilobyte of the kernel's memory, and some of the start."""
_MOST_CLOSED: Final = 200
"""Each is a mount in every sandbox."""
_AT_ONCE: Final = 32
"""The most places without a closed file that are checked without an event, because writes through
a memory mapping cause none."""
_CAN: Final = "can make programs run outside every sandbox"
_MAKES_BARE: Final = frozenset({"HEAD", "objects", "refs", "commondir", "config", HOOKS})


@dataclass(slots=True)
class SteeringLookout:
    """The watch for all servers of a proxy."""

    roots: tuple[str, ...]
    """The directories where confined servers may write; absolute and real."""
    keeper: RemovedFiles
    inotify: Inotify = field(default_factory=Inotify)
    elsewhere: tuple[str, ...] = ()
    """Further directories that servers may write to. They are not inspected."""
    closed_names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of a directory, the names that no server can change. What they hold is not inspected."""
    is_known: Callable[[str, Item], bool] = lambda _path, _item: False
    """Whether a new item is the user's own."""
    unseen: str = ""
    """The first reason why something is not looked after; empty: everything is."""
    _known: dict[str, KnownPlace] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _turn: int = field(default=0, init=False)
    """The position of the round through the places without a closed file."""
    _begun: bool = field(default=False, init=False)
    _leads: Leads = field(init=False)
    """The paths that the places lead to outside of them."""
    _stuck: set[str] = field(default_factory=set, init=False)
    """The files that could not be put back, each reported once."""
    _unsaid: list[PutBack] = field(default_factory=list, init=False)
    """The findings for the next `look`."""

    def __post_init__(self) -> None:
        self._leads = Leads(self.roots)

    def begin(self) -> None:
        """Accept the present files as the user's own. Called before any server runs."""
        for place in self._search(self.roots):
            self._learn(place, is_new=False)
        found = [(one.place, one.items) for one in self._known.values()]
        for place in self._leads.of_start(found):
            if place.path not in self._known:
                self._learn(place, is_new=False)
        self._begun = True

    def resume(self, places: Iterable[KnownPlace]) -> None:
        """Begin with an earlier state, in place of `begin`: check all present files against it."""
        self._begun = True
        self._known = {one.place.path: one for one in places}
        found = [(one.place, one.items) for one in self._known.values()]
        for place in [*self._leads.of_start(found), *self._search(self.roots)]:
            self._learn(place, is_new=True)
        for known in [*self._known.values()]:
            self._check(known)

    def places(self) -> tuple[KnownPlace, ...]:
        """The watched places with their present state."""
        return tuple(self._known.values())

    def closed(self) -> tuple[str, ...]:
        """The files and directories that sandboxes are to close, the outermost first."""
        found: list[str] = []
        for known in sorted(self._known.values(), key=lambda one: one.place.path.count("/")):
            names = [name for name in known.items if not name.startswith(f"{HOOKS}/")]
            if known.place.kind == "git":
                names.append(HOOKS)
            for name in names:
                path = joined(known.place.path, name)
                inode = inode_of(path)
                # A link has no content to close, and could be exchanged.
                if inode and len(found) < _MOST_CLOSED and not os.path.islink(path):  # noqa: PTH114  text
                    found.append(path)
                    if has_one_name(path):
                        known.closed[name] = inode
        return tuple(found)

    def is_quiet(self) -> bool:
        """Whether a check would find nothing, determined at nearly no cost."""
        if self._lock.locked() or self._unsaid or self.inotify.has_events():
            return False
        return all(known.closed for known in self._known.values())

    def look(self) -> tuple[PutBack, ...]:
        """Find new files, restore the earlier state, and report it once."""
        with self._lock:
            self._look()
            said, self._unsaid = tuple(self._unsaid), []
            return said

    def look_for_later(self) -> tuple[PutBack, ...]:
        """Look without reporting: the next `look` reports the findings again."""
        with self._lock:
            before = len(self._unsaid)
            self._look()
            return tuple(self._unsaid[before:])

    def _look(self) -> None:
        touched: dict[str, None] = {}
        for event in self.inotify.events():
            touched.update(dict.fromkeys(self._concerned(event)))
        if self.inotify.overflowed:
            self.inotify.overflowed = False
            for place in self._search(self.roots):
                self._learn(place, is_new=True)
            touched.update(dict.fromkeys(self._known))
        open_ = [path for path, known in self._known.items() if not known.closed]
        for _ in range(min(_AT_ONCE, len(open_))):
            self._turn = (self._turn + 1) % len(open_)
            touched[open_[self._turn]] = None
        for path in touched:
            known = self._known.get(path)
            if known is not None:
                self._check(known)

    def _concerned(self, event: Event) -> Iterable[str]:
        """The places that an event may have changed."""
        yield from self._holding(event.directory)
        if event.name not in NOT_SEARCHED:
            for place in self._come(event):
                for one in (place, *self._led_by(place)):
                    self._learn(one, is_new=True)
                    yield one.path

    def _led_by(self, place: SteeringPlace) -> Iterable[SteeringPlace]:
        """Places that a new or moved repository leads to."""
        former = self._former(inode_of(place.path))
        return self._leads.of_place(place, former.items if former else {})

    def _former(self, inode: tuple[int, int] | None) -> KnownPlace | None:
        return next((one for one in self._known.values() if one.inode == inode), None)

    def _place_of(self, directory: str, name: str) -> SteeringPlace | None:
        path = f"{directory}/{name}"
        if self._leads.holds(path):
            return SteeringPlace(path, "pointer")
        return place_of(directory, name)

    def _come(self, event: Event) -> Iterable[SteeringPlace]:
        """The places that may have appeared with an event."""
        owner = self._repository_around(event.directory)
        if owner is not None:
            yield from self._inner(owner, event)
            return
        if event.name in self.closed_names.get(event.directory, ()):
            return
        place = self._place_of(event.directory, event.name)
        if place is not None:
            yield place
            yield from self._inside(place)
        if event.name in _MAKES_BARE and is_bare(event.directory):
            yield SteeringPlace(event.directory, "git")
        if event.is_directory and (place is None or place.kind == "claude"):
            yield from self._search((f"{event.directory}/{event.name}",))

    def _inner(self, owner: str, event: Event) -> Iterable[SteeringPlace]:
        """The new submodules and worktrees of a repository."""
        path = f"{event.directory}/{event.name}"
        if not path.startswith((f"{owner}/modules", f"{owner}/worktrees")):
            return
        yield from self._inside(SteeringPlace(owner, "git"))

    def _inside(self, owner: SteeringPlace) -> Iterable[SteeringPlace]:
        for directory, is_repository in inner_directories(owner):
            self.inotify.add(directory)
            if is_repository:
                yield SteeringPlace(directory, "git")

    def _holding(self, directory: str) -> Iterable[str]:
        """The known places that have files in a directory."""
        parent, _, name = directory.rpartition("/")
        for path in (directory, parent if name == HOOKS else directory):
            if path in self._known:
                yield path

    def _repository_around(self, directory: str) -> str | None:
        """The `.git` directory that a directory is or lies in; None: there is none."""
        above = directory
        while above not in self.roots and above:
            if above.rpartition("/")[2].lower() == ".git":
                return above
            above = above.rpartition("/")[0]
        return None

    def _search(self, roots: Iterable[str]) -> Iterable[SteeringPlace]:  # noqa: C901  a walk
        """Watch all directories below, the outermost first, and give the places in them."""
        waiting = deque(roots)
        while waiting:
            directory = waiting.popleft()
            if self._begun:
                # A server may close its directory to the proxy, and open it again after the look.
                with suppress(OSError):
                    let_in(directory)
            if len(self.inotify) >= MOST_DIRECTORIES:
                self._miss("there are too many directories")
                continue
            if not self.inotify.add(directory):
                # Else it is gone or became a link; a new directory in its place causes an event.
                if is_directory(directory):
                    self._miss(_why_unseen(self.inotify.error, directory))
                continue
            names: set[str] = set()
            with suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    if self._is_closed(entry.path):
                        continue
                    names.add(entry.name)
                    place = self._place_of(directory, entry.name)
                    if place is not None:
                        yield place
                        yield from self._inside(place)
                        if place.kind == "claude":
                            waiting.append(entry.path)
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in NOT_SEARCHED:
                        waiting.append(entry.path)
            if "HEAD" in names and is_bare(directory):
                yield SteeringPlace(directory, "git")

    def _miss(self, why: str) -> None:
        if not self.unseen and self._begun:
            self._unsaid.append(PutBack(f"{why}: new files there that {_CAN} are not found"))
        self.unseen = self.unseen or why

    def _is_closed(self, path: str) -> bool:
        return any(
            path.startswith(f"{directory}/")
            and path.removeprefix(f"{directory}/").partition("/")[0] in names
            for directory, names in self.closed_names.items()
        )

    def _learn(self, place: SteeringPlace, *, is_new: bool) -> None:
        if self._is_closed(place.path):
            return
        if place.kind != "pointer":
            self._watch(place)
        inode = inode_of(place.path)
        known = self._known.get(place.path)
        if inode is None or (known is not None and known.inode == inode):
            return
        # A place that was moved keeps the state of what is in it.
        former = self._former(inode)
        if former is not None:
            stays = former.from_start and place.kind != "pointer"
            items = dict(former.items)
            new = replace(former, place=place, items=items, from_start=stays, closed={})
        else:
            items = {} if is_new else dict(items_of(place))
            new = KnownPlace(place, items, inode, from_start=not is_new, accepted=not is_new)
        self._known[place.path] = new

    def _watch(self, place: SteeringPlace) -> None:
        self.inotify.add(place.path, contents=True)
        if place.kind == "git":
            for name in (HOOKS, "modules", "worktrees"):
                self.inotify.add(f"{place.path}/{name}", contents=name == HOOKS)

    def _check(self, known: KnownPlace) -> None:
        place = known.place
        inode = inode_of(place.path)
        if inode is None:
            del self._known[place.path]
            return
        if known.inode != inode:
            known = KnownPlace(place, {}, inode, from_start=False, accepted=False)
            self._known[place.path] = known
        if place.kind != "pointer":
            self._watch(place)
        now = items_of(place)
        refused = [name for name, item in now.items() if not self._may_stay(known, name, item)]
        if not refused:
            known.items.update(now)
            known.accepted = True
        elif (whole := self._makes_a_repository(known)) is not None:
            self._put_back(whole, None)
            self._known.pop(place.path, None)
        else:
            for name in refused:
                self._undo(joined(place.path, name), known.items.get(name), now[name])

    def _undo(self, path: str, before: Item | None, now: Item) -> None:
        """Put back the earlier state of an item; of a directory, take what is new away."""
        added = now.added_to(before)
        if not added:
            # A file that was empty before was just being written: it is removed, not restored.
            is_state = before and before.content and not now.is_same(before)
            self._put_back(path, before if is_state else None)
        for one in added:
            self._put_back(f"{path}/{one}", None)

    def _makes_a_repository(self, known: KnownPlace) -> str | None:
        """The path whose removal ends a new repository; None: there is no such path."""
        path = known.place.path
        if known.accepted or known.place.kind != "git":
            return None
        around = self._repository_around(path)
        if around == path:
            return path
        # A bare repository may hold files of another kind: without `HEAD` it is a mere directory.
        return f"{path}/HEAD" if around is None and is_bare(path) else None

    def _may_stay(self, known: KnownPlace, name: str, item: Item) -> bool:
        holder = HOOKS if name.startswith(f"{HOOKS}/") else name
        closed = known.closed.get(holder)
        if closed is not None and closed == inode_of(joined(known.place.path, holder)):
            # Every sandbox closes it, so that only the user can have changed it.
            return True
        before = known.items.get(name)
        if self.is_known(joined(known.place.path, name), item):
            return True
        if known.place.kind == "pointer":
            # A pointer of a server's is checked each time: its target may be another file by now.
            if known.from_start and item.is_same(before):
                return True
            repositories = frozenset(one for one in self._known)
            writable = (*self.roots, *self.elsewhere)
            text = item.content or b""
            return not text.startswith(b"-> ") and may_point(
                text, known.place, writable, repositories
            )
        if item.is_same(before):
            return True
        # A clone writes its configuration in pieces, with looks in between. So in a repository that
        # came later every remote and branch counts as new.
        return is_accepted(known.place, name, before if known.from_start else None, item)

    def _put_back(self, path: str, before: Item | None) -> None:
        how = "put back" if before is not None else "removed"
        try:
            kept = self.keeper.take(path)
            if before is not None:
                restore(path, before)
        except OSError as error:
            why = (error.strerror or "unknown").lower()
            if path not in self._stuck:
                self._stuck.add(path)
                said = f"{shown(path)} {_CAN}, and could not be taken away: {why}"
                self._unsaid.append(PutBack(said))
            return
        self._stuck.discard(path)
        self._unsaid.append(PutBack(f"{shown(path)} {_CAN}, and was {how}", shown(kept)))

    def close(self) -> None:
        """Stop watching."""
        self.inotify.close()


def _why_unseen(error: int, directory: str) -> str:
    if error == errno.ENOSPC:
        return "no more directories can be watched (sysctl fs.inotify.max_user_watches)"
    return f"{shown(directory)} cannot be watched: {os.strerror(error).lower()}"
