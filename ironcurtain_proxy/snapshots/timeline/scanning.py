"""The workspace as it is now, and what is different from when it was last looked at.

What the kernel told of is looked at, and besides it what a hostile process may change untold: where
changes were found lately, and the directories that tools keep for themselves (`.git`, `.claude`).
Everything is looked at where events were missed, and now and then.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.snapshots.timeline.entry import Entry, is_as_seen, kind_of_change
from ironcurtain_proxy.snapshots.timeline.events import Events
from ironcurtain_proxy.snapshots.timeline.opening import PASSED, Root
from ironcurtain_proxy.snapshots.timeline.reading import FullError, Reader

_RECENT: Final = 32
_CONTROL: Final = 300
"""How many directories of each kind are looked at untold."""
_LARGE: Final = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """A path that is not as it was seen."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def counts(self) -> bool:
        """Whether it is more than a new time."""
        return kind_of_change(self.before, self.after) is not None


class TooManyError(Exception):
    """The workspace has more files and directories than may be held."""


class ManyBytesError(Exception):
    """The workspace has more bytes than may be held."""


@dataclass(slots=True)
class Progress:
    """How far a look has come."""

    looked_at: int = 0
    stop: bool = False
    """Set from another thread: the proxy is ending."""


class StoppedError(Exception):
    """The proxy is ending."""


class Scanner:
    """Knows the workspace, by directory."""

    def __init__(
        self, root: Root, reader: Reader, *, caches: frozenset[str], max_files: int, max_bytes: int
    ) -> None:
        """Know nothing yet.

        Args:
            root: the workspace.
            reader: reads and copies what is new.
            caches: names of directories that are left alone, wherever they are.
            max_files: the most files, directories and links.
            max_bytes: the most bytes that may be copied.
        """
        self._root = root
        self._reader = reader
        self._caches = caches
        self._max_files = max_files
        self._max_bytes = max_bytes
        self.events = Events()
        self.directories: dict[str, dict[str, Entry]] = {}
        self.unlisted: set[str] = set()
        """Directories that cannot be looked into, or are of another file system."""
        self.left_out: dict[str, set[str]] = {}
        """The named caches, by the directory that they are in."""
        self.full = False
        """Whether the last look found no space left for a copy."""
        self.progress = Progress()
        self._again: dict[str, set[str]] = {}
        self._recent: dict[str, None] = {}
        self._control: tuple[str, ...] = ()
        self._seen: dict[str, dict[str, Entry]] = {}
        self._seen_again: dict[str, set[str]] = {}
        self._seen_left_out: dict[str, set[str]] = {}
        self._count = 0
        self._bytes = 0
        self._everything = True
        self.bytes = 0
        """What the copies of all that was seen take."""

    def get(self, path: str) -> Entry | None:
        """What was seen at a path."""
        directory, _, name = path.rpartition("/")
        return self.directories.get(directory, {}).get(name)

    def all(self) -> Iterator[tuple[str, Entry]]:
        """Everything that was seen."""
        for directory, found in self.directories.items():
            for name, entry in found.items():
                yield (f"{directory}/{name}" if directory else name), entry

    def assume(self, tree: dict[str, Entry]) -> None:
        """Begin with what an earlier session has seen; everything is looked at next."""
        self.directories = {"": {}} if tree else {}
        for path, entry in tree.items():
            directory, _, name = path.rpartition("/")
            self.directories.setdefault(directory, {})[name] = entry
            if entry.kind == "directory":
                self.directories.setdefault(path, {})
        self.events.missed = True

    def read_again(self, paths: Iterator[str]) -> None:
        """Do not believe the times of these files at the next look."""
        for path in paths:
            directory, _, name = path.rpartition("/")
            self._again.setdefault(directory, set()).add(name)

    def look(self, *, everything: bool = False) -> list[Difference]:
        """Find out what is different.

        Raises:
            TooManyError, ManyBytesError, StoppedError, OSError: nothing is taken note of, and
                everything is looked at the next time.
        """
        happened = self.events.happened()
        everything = everything or self.events.missed or not self.directories
        if not self.events.can_tell:
            everything = True
        self.events.missed = True  # until it has been done
        self._seen, self._seen_again, self.full = {}, {}, False
        self._seen_left_out = {}
        self._everything = everything
        self._count = 0 if everything else sum(map(len, self.directories.values()))
        self._bytes = 0 if everything else self.bytes
        self.progress.looked_at = 0
        if everything:
            self.unlisted.clear()
            self._walk({"": None}, everything=True)
        else:
            self._walk(self._suspects(happened), everything=False)
        found = list(self._take(everything=everything))
        if everything:
            self.bytes = self._bytes
        else:
            self.bytes += sum(_size(one.after) - _size(one.before) for one in found)
        self.events.missed = not self.events.can_tell
        return found

    def _suspects(self, happened: dict[str, set[str]]) -> dict[str, set[str] | None]:
        """Where to look, and at which names; None: all of them."""
        found: dict[str, set[str] | None] = {}
        for source in (happened, self._again):
            for path, names in source.items():
                found[path] = names | (found.get(path) or set())
        for path, names in found.items():
            if names is not None and "" in names:
                found[path] = None
        for path in (*self._recent, *self._control):
            if len(self.directories.get(path, ())) <= _LARGE:
                found[path] = None
        return {path: names for path, names in found.items() if path in self.directories}

    def _walk(self, start: dict[str, set[str] | None], *, everything: bool) -> None:
        waiting = list(start)
        while waiting:
            if self.progress.stop:
                raise StoppedError
            path = waiting.pop()
            if path in self._seen:
                continue
            try:
                descriptor = self._root.open(path)
            except PermissionError:
                self._not_listed(path)
                continue
            except OSError:
                if not path:
                    raise
                # Gone, or a link by now: its directory tells when it is looked at.
                self._seen[path] = {}
                self.events.missed = True
                continue
            try:
                if os.fstat(descriptor).st_dev != self._root.device:
                    self._not_listed(path)
                    continue
                self.unlisted.discard(path)
                is_watched = self.events.is_watched
                self.events.watch(path, descriptor)
                names = start.get(path)
                if names is None:
                    self._seen[path] = self._listed(path, descriptor)
                else:
                    self._seen[path] = self._named(path, descriptor, names)
            finally:
                os.close(descriptor)
            known = self.directories.get(path, {})
            for name, entry in self._seen[path].items():
                if entry.kind == "directory":
                    below = f"{path}/{name}" if path else name
                    if everything or known.get(name) is not entry or not is_watched(below):
                        waiting.append(below)

    def _listed(self, path: str, descriptor: int) -> dict[str, Entry]:
        known, again = self.directories.get(path, {}), self._again.get(path, ())
        if not self._everything:
            self._count -= len(known)
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
                ):
                    now[name] = old
                    self._bytes += old[2] if self._everything else 0
                else:
                    self._look_at(path, descriptor, name, status, now)
                if len(now) + self._count > self._max_files:
                    raise TooManyError
        self._count += len(now)
        self.progress.looked_at += len(now)
        return now

    def _named(self, path: str, descriptor: int, names: set[str]) -> dict[str, Entry]:
        """The same, where only some names need looking at: a directory may have very many."""
        now = dict(self.directories[path])
        if left_out := self.left_out.get(path, set()) - names:
            self._seen_left_out[path] = set(left_out)
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
        return now

    def _look_at(
        self, path: str, descriptor: int, name: str, status: os.stat_result, now: dict[str, Entry]
    ) -> None:
        if name in self._caches and stat.S_ISDIR(status.st_mode):
            self._seen_left_out.setdefault(path, set()).add(name)
            return
        try:
            entry, again = self._reader.read(descriptor, name, status)
        except FileNotFoundError:
            return
        except FullError:
            entry, again = self._reader.unheld(status, "no space was left for a copy"), True
            self.full = True
        now[name] = entry
        self._bytes += entry.size
        if self._bytes > self._max_bytes:
            raise ManyBytesError
        if again:
            self._seen_again.setdefault(path, set()).add(name)

    def _not_listed(self, path: str) -> None:
        """Keep what is known of it: it may come back as it was."""
        self.unlisted.add(path)
        waiting = [path]
        while waiting:
            path = waiting.pop()
            self._seen[path] = self.directories.get(path, {})
            waiting += [
                f"{path}/{name}" if path else name
                for name, entry in self._seen[path].items()
                if entry.kind == "directory"
            ]

    def _take(self, *, everything: bool) -> Iterator[Difference]:
        before = self.directories
        if everything:
            self.directories, self._again = {}, {}
            gone = before.keys() - self._seen.keys()
        else:
            gone = self._no_longer_there()
        for path in gone:
            self.events.forget(path)
            self.unlisted.discard(path)
            self.left_out.pop(path, None)
            for name, entry in before[path].items():
                yield Difference(f"{path}/{name}", entry, None)
        if not everything:
            for path in gone:
                del self.directories[path]
        for path, now in self._seen.items():
            if path in gone:
                continue
            old = before.get(path, {})
            self.directories[path] = now
            changed = [
                name for name in old.keys() | now.keys() if old.get(name) is not now.get(name)
            ]
            for name in changed:
                yield Difference(f"{path}/{name}" if path else name, old.get(name), now.get(name))
            if changed and before:
                self._recent.pop(path, None)
                self._recent[path] = None
        for path in list(self._recent)[:-_RECENT]:
            del self._recent[path]
        for path in self._seen:
            self._again.pop(path, None)
            self.left_out.pop(path, None)
        self.left_out.update(self._seen_left_out)
        self._again.update(self._seen_again)
        if everything:
            self._control = tuple(
                [path for path in self.directories if _is_control(path)][:_CONTROL]
            )
        self._seen = {}

    def _no_longer_there(self) -> set[str]:
        """The directories that are gone, with all that were below them."""
        gone: set[str] = set()
        for path, now in self._seen.items():
            for name, entry in self.directories.get(path, {}).items():
                after = now.get(name)
                if entry.kind == "directory" and (after is None or after.kind != "directory"):
                    gone.add(f"{path}/{name}" if path else name)
        if not gone:
            return gone
        waiting = list(gone)
        while waiting:
            path = waiting.pop()
            for name, entry in self.directories.get(path, {}).items():
                if entry.kind == "directory":
                    gone.add(f"{path}/{name}")
                    waiting.append(f"{path}/{name}")
        return gone & self.directories.keys()

    def holds(self, path: str) -> bool:
        """Whether what is at a path, and all below it, was seen and copied."""
        if any(not path or path == one or path.startswith(one + "/") for one in self.unlisted):
            return False
        entry = self.get(path)
        if path and entry is None:
            return not self._is_there(path)
        if entry is not None and entry.kind != "directory":
            return entry.kind != "lost"
        waiting = [path]
        while waiting:
            at = waiting.pop()
            if at in self.left_out or at in self.unlisted:
                return False
            for name, below in self.directories.get(at, {}).items():
                if below.kind == "lost":
                    return False
                if below.kind == "directory":
                    waiting.append(f"{at}/{name}" if at else name)
        return True

    def _is_there(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        try:
            with self._root.directory(directory, PASSED) as descriptor:
                os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Watch nothing any more."""
        self.events.close()


def _size(entry: Entry | None) -> int:
    return 0 if entry is None else entry.size


def _is_control(path: str) -> bool:
    hidden = path.startswith(".") or "/." in path
    return hidden and "objects" not in path.split("/")
