"""The current state of the workspace, and its differences from the last scan.

A scan reads what the kernel reported, and places that a hostile process may change without an
event: places of recent changes, and directories of tools (`.git`, `.claude`). The whole workspace
is scanned after missed events, and from time to time.

Paths that the scanner leaves alone, such as those in `node_modules`, are read only where a caller
names them: what a transaction changes, and the programs of an environment. Anything that the
scanner knows is left to it, so that no path has two states.
"""

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from itertools import islice
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.snapshots.history import (
    Difference,
    Entry,
    Known,
    directories_above,
    is_among,
    joined,
    parent_of,
    weight,
    without,
)
from ironcurtain_proxy.snapshots.opening import PASSED, Events, OpenedRoot
from ironcurtain_proxy.snapshots.reading import FullError, Reader, is_as_seen

# --- paths that are left alone

_MOST_COPIED: Final = 20_000
NOT_COPIED: Final = "it was made in a directory of caches, whose new files are not copied"
_TOO_MUCH: Final = "more lay in a directory of caches than is copied"
_PROGRAMS: Final = ("bin", ".bin", "Scripts")
"""The directories of a cache whose files people and tools start by name."""
_MOST_PROGRAMS: Final = 1000
_NOT_KEPT: Final = "it lies in a directory of caches"


class CachedPaths(Struct, eq=False):
    """Reads paths that the scanner does not know."""

    root: OpenedRoot
    """The workspace."""
    reader: Reader
    """Copies contents."""
    known: Callable[[str], Entry | None]
    """The state of a path that the scanner looks at, or None if it does not."""
    left_out: frozenset[str]
    """Paths that are neither copied nor restored."""
    most_bytes: int
    """The most bytes that are copied at once."""

    def states(self, paths: Iterable[str], *, copy: bool, below: bool = True) -> dict[str, Entry]:
        """Return the states of these paths, of the directories above, and of all below.

        Args:
            paths: paths below the workspace. Those that are not there, and those that the scanner
                knows, are missing from the answer.
            below: whether to look into directories.
            copy: whether contents are copied, so that they can be put back; up to 20,000 files.
        """
        found: dict[str, Entry] = {}
        why_not = self._budget(found) if copy else _not_copied
        waiting: list[str] = []
        for path in dict.fromkeys(paths):
            self._add_above(path, found)
            entry = self.known(path) or found.get(path) or self._read(path, why_not())
            if entry is not None and not is_among(path, self.left_out):
                self._take(path, entry, found, waiting)
        done: set[str] = set()
        while waiting and below:
            directory = waiting.pop()
            if directory not in done:
                done.add(directory)
                for path, entry in self._below(directory, why_not, found):
                    self._take(path, entry, found, waiting)
        return found

    def _take(self, path: str, entry: Entry, found: dict[str, Entry], waiting: list[str]) -> None:
        if self.known(path) is None:
            found[path] = entry
        if entry.kind == "directory":
            waiting.append(path)

    def _budget(self, found: Sized) -> Callable[[], str | None]:
        """Return what says why the next file is not copied, or None if it is."""
        most = self.reader.copied + self.most_bytes
        return lambda: (
            None if len(found) < _MOST_COPIED and self.reader.copied < most else _TOO_MUCH
        )

    def programs(self, caches: Iterable[str]) -> dict[str, Entry]:
        """Return what caches are and the programs in them, as the file system describes them."""
        found: dict[str, Entry] = {}
        for cache in caches:
            entry = self._read(cache, _NOT_KEPT)
            if entry is None or entry.kind != "directory":
                continue
            found[cache] = entry
            for name in _PROGRAMS:
                programs = self._below(joined(cache, name), lambda: _NOT_KEPT, {})
                found |= dict(islice(programs, _MOST_PROGRAMS))
        return found

    def _add_above(self, path: str, found: dict[str, Entry]) -> None:
        for above in directories_above(path):
            if above in found or self.known(above) is not None:
                return
            entry = self._read(above, None)
            if entry is not None:
                found[above] = entry

    def _read(self, path: str, why_not: str | None) -> Entry | None:
        with suppress(OSError), self.root.directory(parent_of(path), PASSED) as parent:
            return self._read_in(parent, path.rpartition("/")[2], why_not)
        return None

    def _read_in(self, parent: int, name: str, why_not: str | None) -> Entry:
        """Read one name.

        Raises:
            OSError: it is not there.
        """
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and why_not is not None:
            return self.reader.unheld(status, why_not)
        try:
            return self.reader.read(parent, name, status)[0]
        except FullError:
            return self.reader.unheld(status, "no space was left for a copy")

    def _below(
        self, directory: str, why_not: Callable[[], str | None], done: Container[str]
    ) -> Iterator[tuple[str, Entry]]:
        with suppress(OSError), self.root.directory(directory) as descriptor:
            if os.fstat(descriptor).st_dev != self.root.device:
                return
            for name in os.listdir(descriptor):  # noqa: PTH208  by its descriptor
                path = joined(directory, name)
                if path in self.left_out:
                    continue
                known = self.known(path)
                if known is not None:
                    yield path, known
                elif path not in done:
                    with suppress(OSError):
                        yield path, self._read_in(descriptor, name, why_not())


def _not_copied() -> str:
    return NOT_COPIED


# --- scanning

_RECENT: Final = 32
_CONTROL: Final = 300
"""The most directories of each kind that are scanned without an event."""
_LARGE: Final = 500
"""The most files of a directory that is scanned without an event."""
_LINKED: Final = 1000
"""The most files with several names; with more, the whole workspace is scanned."""


class TooManyFilesError(Exception):
    """The workspace has more files and directories than may be held."""


class TooManyBytesError(Exception):
    """The workspace has more bytes than may be held."""


class Progress(Struct):
    """The progress of a scan."""

    looked_at: int = 0
    stop: bool = False
    """Set from another thread: the proxy is ending."""


class StoppedError(Exception):
    """The proxy is ending."""


class Scanner(Struct, eq=False):
    """Scans the workspace, by directory."""

    root: OpenedRoot
    """The workspace."""
    reader: Reader
    """Reads and copies new files."""
    caches: frozenset[str]
    """Names of directories that are left alone, wherever they are."""
    max_files: int
    """The most files, directories and links."""
    max_bytes: int
    """The most bytes that may be copied."""
    left_out: frozenset[str] = frozenset()
    """The state of the proxy, where the workspace is around it."""
    events: Events = field(default_factory=Events)
    known: Known = field(default_factory=Known)
    full: bool = False
    """Whether the last scan found no space for a copy."""
    progress: Progress = field(default_factory=Progress)
    _again: dict[str, set[str]] = field(default_factory=dict)
    _recent: dict[str, None] = field(default_factory=dict)
    _control: tuple[str, ...] = ()
    caches_met: set[str] = field(default_factory=set)
    """Directories that were left alone because they are caches."""
    _held: set[str] = field(default_factory=set)
    """Directories with the name of a cache that were once held."""
    _seen: dict[str, dict[str, Entry]] = field(default_factory=dict)
    _seen_again: dict[str, set[str]] = field(default_factory=dict)
    _count: int = 0
    _bytes: int = 0
    _everything: bool = True
    _compares: bool = False
    """Whether the current scan compares contents."""

    def assume(self, tree: Mapping[str, Entry], ever: Iterable[Mapping[str, Entry]]) -> None:
        """Begin with the state of an earlier session; the next scan is complete.

        Args:
            tree: the state.
            ever: what was held before.
        """
        for earlier in ever:
            self.hold(earlier)
        self.known.assume(without(tree, self.left_out))
        self.read_again(self.known.lost)
        self.events.missed = True

    def hold(self, tree: Mapping[str, Entry]) -> None:
        """Scan the directories of an earlier state even if they look like caches by now."""
        for path, entry in tree.items():
            if entry.kind == "directory" and path.rpartition("/")[2] in self.caches:
                self._held.add(path)

    def read_again(self, paths: Iterable[str]) -> None:
        """Ignore the times of these files at the next scan."""
        for path in paths:
            directory, _, name = path.rpartition("/")
            self._again.setdefault(directory, set()).add(name)

    def look(self, *, everything: bool = False, contents: bool = False) -> list[Difference]:
        """Scan, and return the differences.

        Args:
            everything: whether places without an event are scanned, too.
            contents: whether a write that changed no time must be found. Where the file system
                does not set times at every write, every file is read again for that.

        Raises:
            TooManyFilesError, TooManyBytesError, StoppedError, OSError: nothing is noted, and
                everything is looked at the next time.
        """
        happened = self.events.happened()
        self._compares = contents and not self.root.sets_times
        everything |= self._compares
        many_links = len(self.known.linked) > _LINKED
        everything |= self.events.missed or many_links or not self.known.directories
        self.events.missed = True  # until it has been done
        if not everything:
            self._begin(everything=False)
            self._walk(self._suspects(happened))
            everything = self.known.has_new_links(self._seen)
        if everything:
            self._begin(everything=True)
            self._walk({"": None})
        found = self._take()
        self.events.missed = not self.events.can_tell
        return found

    def _begin(self, *, everything: bool) -> None:
        self._seen, self._seen_again, self.full = {}, {}, False
        self._everything = everything
        self._count = 0 if everything else len(self.known)
        self._bytes = 0 if everything else self.known.bytes
        self.progress.looked_at = 0
        if everything:
            self.known.unlisted.clear()

    def _suspects(self, happened: dict[str, set[str]]) -> dict[str, set[str] | None]:
        """Return the directories and names to scan, or None if all of them."""
        found: dict[str, set[str] | None] = {}
        linked: dict[str, set[str]] = {}
        for path in self.known.linked:
            linked.setdefault(parent_of(path), set()).add(path.rpartition("/")[2])
        for path in happened.keys() | self._again.keys() | linked.keys():
            names = set[str]().union(*[s.get(path, ()) for s in (happened, self._again, linked)])
            found[path] = None if "" in names else names
        for path in (*self._recent, *self._control):
            if len(self.known.directories.get(path, ())) <= _LARGE:
                found[path] = None
        return {path: names for path, names in found.items() if path in self.known.directories}

    def _walk(self, start: Mapping[str, set[str] | None]) -> None:
        waiting = list(start)
        while waiting:
            if self.progress.stop:
                raise StoppedError
            path = waiting.pop()
            if path in self._seen:
                continue
            try:
                with self.root.directory(path) as descriptor:
                    waiting += self._visit(path, descriptor, start.get(path))
            except PermissionError:
                self._not_listed(path)
            except OSError:
                if not path:
                    raise
                # Gone, or a link by now: the parent's events report it.
                self._seen[path] = {}

    def _visit(self, path: str, descriptor: int, names: set[str] | None) -> list[str]:
        """Scan a directory. Returns its subdirectories that must be scanned, too."""
        if os.fstat(descriptor).st_dev != self.root.device:
            self._not_listed(path)
            return []
        self.known.unlisted.discard(path)
        # Before it is listed, so that later changes are reported.
        self.events.watch(path, descriptor)
        if names is None:
            now = self._listed(path, descriptor)
        else:
            now = self._named(path, descriptor, names)
        self._seen[path] = now
        known = self.known.directories.get(path, {})
        return [
            below
            for name, entry in now.items()
            if entry.kind == "directory"
            and (
                not self.events.is_watched(below := joined(path, name))
                or self._everything
                or known.get(name) is not entry
            )
        ]

    def _listed(self, path: str, descriptor: int) -> dict[str, Entry]:
        known, again = self.known.directories.get(path, {}), self._again.get(path, ())
        each = weight(path)
        if not self._everything:
            self._count -= len(known) * each
        now: dict[str, Entry] = {}
        with os.scandir(descriptor) as found:
            for one in found:
                name = one.name
                try:
                    status = one.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                old = known.get(name)
                if (
                    old is not None
                    and old[5] == status.st_ctime_ns
                    and old[3] == status.st_ino
                    and name not in again
                    and (
                        not self._compares
                        or old[0] != "file"
                        or self.reader.is_unchanged(descriptor, name, old)
                    )
                ):
                    now[name] = old
                    self._bytes += old[2] if self._everything else 0
                else:
                    self._look_at(path, descriptor, name, status, now)
                    # The same state is the same object: only what differs is noted.
                    if now.get(name) == old is not None:
                        now[name] = old
                if len(now) * each + self._count > self.max_files:
                    raise TooManyFilesError
        self._count += len(now) * each
        self.progress.looked_at += len(now)
        return now

    def _named(self, path: str, descriptor: int, names: set[str]) -> dict[str, Entry]:
        """Scan only some names of a directory, which may have very many."""
        now = dict(self.known.directories[path])
        each = weight(path)
        others = self._count - len(now) * each
        for name in names:
            old = now.pop(name, None)
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if (
                old is not None
                and is_as_seen(old, status)
                and name not in self._again.get(path, ())
            ):
                now[name] = old
            else:
                self._look_at(path, descriptor, name, status, now)
            if len(now) * each + others > self.max_files:
                raise TooManyFilesError
        self._count = others + len(now) * each
        return now

    def _look_at(
        self, path: str, descriptor: int, name: str, status: os.stat_result, now: dict[str, Entry]
    ) -> None:
        below = joined(path, name)
        if below in self.left_out:
            return
        if stat.S_ISDIR(status.st_mode):
            # What was held stays held: a call could make it look like a cache.
            held = below in self.known.directories or below in self._held
            if not held and is_cache(path, name, descriptor, self.caches):
                self.caches_met.add(below)
                return
        try:
            entry, again = self.reader.read(descriptor, name, status)
        except FileNotFoundError:
            return
        except FullError:
            entry, again = self.reader.unheld(status, "no space was left for a copy"), True
            self.full = True
        now[name] = entry
        self._bytes += entry.size
        if self._bytes > self.max_bytes:
            raise TooManyBytesError
        if again:
            self._seen_again.setdefault(path, set()).add(name)

    def _not_listed(self, path: str) -> None:
        """Keep the last state of a directory that cannot be listed: it may return unchanged."""
        self.known.unlisted.add(path)
        self._seen[path] = {}
        for below in self.known.below(path):
            self._seen[below] = self.known.directories[below]

    def _take(self) -> list[Difference]:
        known = self.known
        is_first = not known.directories
        gone = known.gone(self._seen, everything=self._everything)
        for path in gone:
            self.events.forget(path)
        found = known.take(self._seen, gone)
        if self._everything:
            self._again = {}
            self._control = tuple(
                [path for path in known.directories if _is_control(path)][:_CONTROL]
            )
        for path in self._seen:
            self._again.pop(path, None)
        self._again.update(self._seen_again)
        if not is_first:
            self._remember([parent_of(one.path) for one in found])
        self._seen = {}
        return found

    def _remember(self, directories: Iterable[str]) -> None:
        """Remember a recent change: a memory mapping may change the file again without an event."""
        for path in directories:
            self._recent.pop(path, None)
            self._recent[path] = None
        for path in list(self._recent)[:-_RECENT]:
            del self._recent[path]

    def unheld(self, path: str) -> dict[str, str]:
        """Return the parts of a path that could not be restored, with the reasons.

        It is empty if all could.
        """
        found = self.known.unheld(path)
        if not found and path and self.known.get(path) is None and self._is_there(path):
            # A cache: a directory around it counts as complete without it.
            return {path: "it is left alone"}
        return found

    def _is_there(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        try:
            with self.root.directory(directory, PASSED) as descriptor:
                os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Watch nothing any more."""
        self.events.close()


def _is_control(path: str) -> bool:
    hidden = path.startswith(".") or "/." in path
    return hidden and "objects" not in path.split("/")


_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "target": (
        *("Cargo.toml", "pom.xml", "build.sbt", "project.clj", "dbt_project.yml"),
        *("target/CACHEDIR.TAG", "target/.rustc_info.json"),
    ),
    "venv": ("venv/pyvenv.cfg", "venv/CACHEDIR.TAG"),
}
"""The files that prove an ambiguous name to be a cache: one of them lies beside it."""


def is_cache(path: str, name: str, parent: int, caches: frozenset[str]) -> bool:
    """Return whether a directory is a cache, whose content can be made again; it is not scanned.

    A name alone does not show it. Below a repository it is the name of a branch (`target/x` is a
    file of `.git/refs/heads/target`), and `target` and `venv` are names that people give to
    sources.

    Args:
        path: where it lies, below the workspace; empty: in the workspace itself.
        name: what it is called.
        parent: a descriptor of the directory that it lies in.
        caches: the names of caches.
    """
    if name not in caches or any(one.lower().endswith(".git") for one in path.split("/")):
        return False
    signs = _BESIDE.get(name)
    return signs is None or any(_is_there(sign, parent) for sign in signs)


def _is_there(name: str, parent: int) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=parent, follow_symlinks=False)
        return True
    return False
