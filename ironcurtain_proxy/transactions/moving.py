"""Files that a command moved: they leave their old place if they come in at the new one.

To move a file is two changes. Where the new place is the user's by now, or a control place, the
file would be nowhere in the workspace if its old place lost it all the same.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import Step

STAYS: Final = "it was moved to where it did not come in, and stays"


class Moves:
    """The files that a command took away, and those that it made of them."""

    def __init__(self) -> None:
        self._gone: dict[bytes, list[bytes]] = {}
        """The paths of the steps that take a file away, by what tells it from others."""
        self._made_of: dict[bytes, bytes] = {}
        """By the path of each file what tells which one it was."""

    def goes(self, host: int, name: bytes, path: bytes) -> None:
        """Note that a step takes a file of the workspace away, or replaces it."""
        known = files.handle(host, name) or _likeness(host, name)
        for one in (known, _likeness(host, name, is_named=False)):
            self._gone.setdefault(one, []).append(path)

    def comes(self, upper: int, name: bytes, path: bytes, origin: bytes | None = None) -> None:
        """Note a file of the view. `origin`: what the overlay notes of it, if that was read.

        To an ordinary user it notes only that the file has one: no name of the kernel's.
        """
        if origin is None:
            origin = files.attribute(upper, name, files.ORIGIN)
        named = files.handle_in(origin or b"")
        self._made_of[path] = named or _likeness(upper, name, is_named=origin is None)

    def is_gone(self, path: bytes) -> bool:
        """Return whether a step takes the file away of which the one at a path was made."""
        return self._made_of[path] in self._gone

    def look_into(self, host: int, steps: Iterable[Step]) -> None:
        """Note what is in the directories that are removed."""
        for step in steps:
            if step.act == "remove" and step.before and stat.S_ISDIR(step.before.mode):
                for one in files.inside(host, step.path):
                    path = step.path + b"/" + one
                    self.goes(host, path, step.path)
                    self._gone.setdefault(_likeness(host, path), []).append(step.path)

    def sources(self, steps: Iterable[Step]) -> dict[bytes, tuple[bytes, ...]]:
        """Return the paths to which files were moved, and the steps that take these away."""
        known = {step.path for step in steps}
        found = {
            path: tuple([one for one in self._gone.get(of, ()) if one != path and one in known])
            for path, of in self._made_of.items()
        }
        return {path: sources for path, sources in found.items() if sources}


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
    return found


def _with_those_above(path: bytes) -> Iterator[bytes]:
    while path:
        yield path
        path = path.rpartition(b"/")[0]


def _likeness(directory: int, path: bytes, *, is_named: bool = True) -> bytes:
    """Return what a copy has in common with its file, as `mv` makes one of each in a directory."""
    status = os.stat(path, dir_fd=directory, follow_symlinks=False)
    name = path.rpartition(b"/")[2] if is_named else b""
    return b"%s/%d/%d" % (name, status.st_size, status.st_mtime_ns)
