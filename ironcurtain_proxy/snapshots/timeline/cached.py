"""Paths that the scanner leaves alone, such as those in `node_modules`.

They are read only where a caller names them: what a transaction changes, and the programs of an
environment. Anything that the scanner knows is left to it, so that no path has two states.
"""

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Sized
from contextlib import suppress
from itertools import islice
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.snapshots.timeline.history import (
    Entry,
    directories_above,
    is_among,
    parent_of,
)
from ironcurtain_proxy.snapshots.timeline.known import joined
from ironcurtain_proxy.snapshots.timeline.opening import PASSED, OpenedRoot
from ironcurtain_proxy.snapshots.timeline.reading import FullError, Reader

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
