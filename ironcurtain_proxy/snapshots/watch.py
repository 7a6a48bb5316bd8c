"""What a call changed beside what it said it would: looked for before and after it.

Names, kinds, sizes and times are compared, no content is read. It is a watch, not a wall: it tells
afterwards, within a bound of time and number, and says when it did not see all.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeAlias

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.places import LISTED, Parts, is_within, opened_directory, text_of

MOST_NAMED: Final = 100
"""Names in a report."""

_Fingerprint: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """How much is looked at, before and after the call each."""

    files: int = 20_000
    seconds: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What changed outside the declared paths; at most 100 names in all three together."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    more: int = 0
    """How many there were beyond those named."""
    complete: bool = True
    """Whether all of it could be looked at."""

    @property
    def is_none(self) -> bool:
        """Whether nothing was seen. It says little if it is not complete."""
        return not (self.created or self.changed or self.deleted)


class SideEffects:
    """One look before a call, to be compared with one after it.

    Other calls, and people, work in the same places: what changed is not said to be the call's.
    """

    def __init__(
        self,
        places: Sequence[RealPath],
        declared: Sequence[RealPath],
        limits: WatchLimits = WatchLimits(),
    ) -> None:
        """Look now. Blocks for at most the seconds of the limits: not for an event loop.

        Args:
            places: where to look: the workspace, a repository.
            declared: what the call may change, with all below; not looked at.
            limits: how much to look at.
        """
        self._places = [place.parts for place in places]
        self._declared = frozenset([path.parts for path in declared])
        self._limits = limits
        self._before = self._look()

    def report(self) -> Effects:
        """Look again, and say what is different."""
        before, now = self._before, self._look()
        found: dict[str, list[str]] = {"created": [], "changed": [], "deleted": []}
        more = 0
        for path, kind in _differences(before, now):
            if sum(map(len, found.values())) < MOST_NAMED:
                found[kind].append(text_of(path))
            else:
                more += 1
        return Effects(
            created=tuple(found["created"]),
            changed=tuple(found["changed"]),
            deleted=tuple(found["deleted"]),
            more=more,
            complete=before.complete and now.complete,
        )

    def _look(self) -> "_Look":
        look = _Look(self._declared, self._limits)
        for place in self._places:
            if not any(is_within(place, path) for path in self._declared):
                look.over(place)
        return look


class _Look:
    """What was seen at one time."""

    def __init__(self, declared: frozenset[Parts], limits: WatchLimits) -> None:
        self._declared = declared
        self._left = limits.files
        self._until = monotonic() + limits.seconds
        self.found: dict[Parts, _Fingerprint] = {}
        self.listed: set[Parts] = set()
        """Directories of which every name was seen."""
        self.complete = True

    def over(self, place: Parts) -> None:
        """Look at everything below a place, the nearest first."""
        waiting = [place]
        for directory in waiting:
            if directory in self.listed:
                continue
            if self._is_over():
                return
            waiting.extend(self._list(directory))

    def _is_over(self) -> bool:
        over = self._left <= 0 or monotonic() > self._until
        self.complete = self.complete and not over
        return over

    def _list(self, directory: Parts) -> list[Parts]:
        below: list[Parts] = []
        try:
            for path, found in self._names(directory):
                if self._is_over():
                    return below
                self._left -= 1
                self.found[path] = _fingerprint(found)
                if stat.S_ISDIR(found.st_mode):
                    below.append(path)
        except OSError:
            self.complete = False
            return below
        self.listed.add(directory)
        return below

    def _names(self, directory: Parts) -> Iterator[tuple[Parts, os.stat_result]]:
        with opened_directory(directory) as parent:
            descriptor = os.open(".", LISTED, dir_fd=parent)
        try:
            for name in sorted(os.listdir(descriptor)):  # noqa: PTH208  a descriptor
                path = (*directory, name)
                if path in self._declared:
                    continue
                try:
                    yield path, os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    continue
        finally:
            os.close(descriptor)


def _differences(before: _Look, now: _Look) -> Iterator[tuple[Parts, str]]:
    """Only in directories that were seen whole both times: what was not seen was not changed."""
    for path in sorted(before.found.keys() | now.found.keys()):
        old, new = before.found.get(path), now.found.get(path)
        if old == new:
            continue
        if old is None:
            if _was_seen(path, before):
                yield path, "created"
        elif new is None:
            if _was_seen(path, now):
                yield path, "deleted"
        else:
            yield path, "changed"


def _was_seen(path: Parts, look: _Look) -> bool:
    """Whether the path would have been found if it had been there."""
    for length in range(len(path) - 1, 0, -1):
        directory = path[:length]
        if directory in look.listed or directory in look.found:
            return directory in look.listed
    return False


def _fingerprint(found: os.stat_result) -> _Fingerprint:
    if stat.S_ISDIR(found.st_mode):
        # Its times change with its names, and those are looked at themselves.
        return (found.st_mode, found.st_ino)
    return (
        found.st_mode,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )
