"""The state of the workspace at the last scan, by directory."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.snapshots.timeline.history import Entry, kind_of_change

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
