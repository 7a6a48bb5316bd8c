"""Files that a command moved: they leave their old place if they come in at the new one.

To move a file is two changes. Where the new place is the user's by now, or a control place, the
file would be nowhere in the workspace if its old place lost it all the same.
"""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import Step

STAYS: Final = "it was moved to where it did not come in, and stays"
_ANY: Final = b"//"
"""Stands for all that the steps take away, where nobody knows what a file was made of."""
_READ: Final = b"//read"
"""Stands for those that somebody has read meanwhile, so that the time of it tells nothing."""


class Moves:
    """The files that a command took away, and those that it made of them."""

    def __init__(self) -> None:
        self._gone: dict[bytes, list[bytes]] = {}
        """The paths of the steps that take a file away, by what tells it from others."""
        self._made_of: dict[bytes, tuple[bytes, ...]] = {}
        """By the path of each file what tells which one it was."""
        self._own = set[bytes]()
        """Files that were changed where they are."""
        self.started_ns = 0
        """The time before the command began."""
        self._going: list[tuple[frozenset[bytes], bytes]] = []
        """What tells a file that goes from others but for its handle, and the step's path."""

    def goes(self, host: int, name: bytes, path: bytes) -> None:
        """Note that a step takes a file of the workspace away, or replaces it."""
        traces = _traces(host, name) | {_likeness(host, name)}
        if b".git" not in path.split(b"/"):
            # Git replaces its files, and nobody moves them.
            self._going.append((traces, path))
        for one in (files.handle(host, name), *traces):
            self._gone.setdefault(one, []).append(path)

    def comes(
        self, upper: int, name: bytes, path: bytes, origin: bytes | None, host: int | None
    ) -> None:
        """Note a file of the view. `origin`: what the overlay notes of it.

        To an ordinary user it notes only that the file has one: no name of the kernel's. Then it is
        known by what it kept of the file; and if it kept nothing, it may be any that goes.
        """
        if named := files.handle_in(origin or b""):
            self._made_of[path] = (named,)
        elif origin is None:
            self._made_of[path] = (_likeness(upper, name),)
        else:
            traces = _traces(upper, name)
            self._made_of[path] = (*traces, _ANY if _is_read(traces, self.started_ns) else _READ)
            if host is not None and not traces.isdisjoint(_traces(host, name)):
                self._own.add(path)

    def is_gone(self, path: bytes) -> bool:
        """Return whether a step takes the file away of which the one at a path was made."""
        return any(one in self._gone for one in self._made_of[path] if _is_sure(one))

    def look_into(self, host: int, steps: Iterable[Step]) -> None:
        """Note what is in the directories that are removed."""
        for step in steps:
            if step.act == "remove" and step.before and stat.S_ISDIR(step.before.mode):
                for one in files.inside(host, step.path):
                    self.goes(host, step.path + b"/" + one, step.path)

    def sources(self, steps: Iterable[Step]) -> dict[bytes, tuple[bytes, ...]]:
        """Return the paths to which files were moved, and the steps that take these away."""
        known = {step.path for step in steps}
        found = {
            path: {step for one in filter(_is_sure, kept) for step in self._gone.get(one, ())}
            & known - {path}
            for path, kept in self._made_of.items()
        }
        own = {path for path in self._own if not found[path]}
        unaccounted = self._unaccounted(known, own)
        for path, kept in self._made_of.items():
            likely = {step for traces, step in unaccounted if not traces.isdisjoint(kept)}
            found[path] |= likely - {path}
            if not found[path] and path not in own:
                found[path] = {_ANY, _READ}.intersection(kept)
        found[_ANY] = {step for _, step in unaccounted}
        found[_READ] = {step for one, step in unaccounted if _is_read(one, self.started_ns)}
        return {path: tuple(sorted(sources)) for path, sources in found.items() if sources}

    def _unaccounted(
        self, known: Collection[bytes], own: Collection[bytes]
    ) -> list[tuple[frozenset[bytes], bytes]]:
        """Return what takes a file away of which nobody knows where it is."""
        there = Counter(one for kept in self._made_of.values() for one in kept)
        gone = Counter(one for traces, _ in self._going for one in traces)
        return [
            (traces, path)
            for traces, path in self._going
            if path in known
            and path not in own
            and not any(there[one] >= gone[one] for one in filter(_is_sure, traces))
        ]


def staying(moved: Mapping[bytes, Iterable[bytes]], outside: Iterable[bytes]) -> set[bytes]:
    """Return the steps that may not be done, as what they take away does not come in.

    Args:
        moved: see `Changes`.
        outside: what does not come in, with all that it holds.
    """
    waiting, seen, found = [*outside], set[bytes](), set[bytes]()
    while waiting:
        seen.update(waiting)
        waiting = [
            source
            for path, sources in moved.items()
            if any(one in seen for one in _with_those_above(path))
            for source in sources
            if source not in seen
        ]
        found.update(waiting)
    return found - {_ANY, _READ}


def sources_of(moved: Mapping[bytes, Iterable[bytes]]) -> set[bytes]:
    """Return the steps that take files away of which it is known where they are now."""
    return {one for path in moved.keys() - {_ANY, _READ} for one in moved[path]} - {_ANY, _READ}


def is_another(
    above: int | None, name: bytes, origin: bytes | None, read_ns: int, started_ns: int
) -> bool:
    """Return whether somebody may have given the name of a directory to another one meanwhile.

    The files of another one may be old. To an ordinary user the kernel names no origin, but who
    renames a directory changes it and the one above it, and to add a file to it is another change.

    Args:
        above: the directory of the workspace that it is in.
        name: its name.
        origin: what the overlay notes of the first one.
        read_ns: when the first one was last read.
        started_ns: the time before the command began.
    """
    if above is None or (host := files.look(above, name)) is None:
        return False
    if named := files.handle_in(origin or b""):
        return files.handle(above, name) not in {b"", named}
    is_same = origin is not None and (
        os.fstat(above).st_ctime_ns <= started_ns
        or (host.st_atime_ns == read_ns and host.st_ctime_ns == host.st_mtime_ns)
    )
    return host.st_ctime_ns > started_ns and not is_same


def _with_those_above(path: bytes) -> Iterator[bytes]:
    while path:
        yield path
        path = path.rpartition(b"/")[0]


def _is_read(traces: Iterable[bytes], started_ns: int) -> bool:
    """Return whether a file was read since a time."""
    return any(int(one[2:]) > started_ns for one in traces if not _is_sure(one))


def _is_sure(trace: bytes) -> bool:
    """Return whether few files have this in common: many may have been read at one time."""
    return not trace.startswith(_ANY)


def _likeness(directory: int, path: bytes) -> bytes:
    """Return what a copy has in common with its file, as `mv` makes one of each in a directory."""
    status = os.stat(path, dir_fd=directory, follow_symlinks=False)
    return b"%s/%d/%d" % (path.rpartition(b"/")[2], status.st_size, status.st_mtime_ns)


def _traces(directory: int, path: bytes) -> frozenset[bytes]:
    """Return what the copy of an overlay keeps of its file: until it is changed, or until read."""
    status = files.look(directory, path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return frozenset()
    changed = b"/%d/%d" % (status.st_size, status.st_mtime_ns)
    return frozenset({changed, _ANY + b"%d" % status.st_atime_ns})
