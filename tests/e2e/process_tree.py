"""Which processes came of one process, and whether they are gone.

Processes are watched by pidfd: the kernel says when one ends, and a pid that was given to another
process meanwhile is not mistaken for it.
"""

import os
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from tests.program import PATIENCE

MARK: Final = "E2E_MARK"
"""A variable in the environment of every scripted server, and so of all that it starts."""


def children(pid: int) -> set[int]:
    """Every process that one has started itself."""
    return {child for child, parent in _parents().items() if parent == pid}


def descendants(pid: int) -> set[int]:
    """Every process below one, however deep."""
    return below({pid})


def below(pids: set[int], older: frozenset[str] = frozenset()) -> set[int]:
    """Every process below one of several, however deep, but for those of `running`."""
    parents = _parents(older)
    found = set(pids)
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - pids


def _parents(older: frozenset[str] = frozenset()) -> dict[int, int]:
    # After the last `)`: state, then the parent. The name before it may hold anything.
    return {
        pid: int(stat.rpartition(b")")[2].split(None, 2)[1])
        for pid, stat in _each("stat", older)
        if stat
    }


def marked(mark: str, older: frozenset[str] = frozenset()) -> set[int]:
    """Every living process whose environment carries the mark, but for those of `running`."""
    wanted = f"{MARK}={mark}".encode()
    return {
        pid for pid, environ in _each("environ", older)
        if wanted in environ and wanted in environ.split(b"\0")
    }  # fmt: skip


def running() -> frozenset[str]:
    """The ids of all processes, as they are called in `/proc`."""
    return frozenset(os.listdir("/proc"))  # noqa: PTH208


def _each(name: str, older: frozenset[str] = frozenset()) -> Iterator[tuple[int, bytes]]:
    """One file of each process. Empty for a zombie, and gone or forbidden where it is not ours.

    Each end of an installation looks three times through all processes: `pathlib` would take most
    of the time.
    """
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and entry not in older:
            with suppress(OSError), open(f"/proc/{entry}/{name}", "rb", 0) as file:  # noqa: PTH123
                yield int(entry), file.read()


class Watch:
    """A set of processes, from now until they have ended."""

    def __init__(self, pids: set[int]) -> None:
        self._open = dict(_open(pids))

    def survivors(self) -> set[int]:
        """Wait until all have ended. Returns those that had not when the deadline passed."""
        end = time.monotonic() + PATIENCE
        while self._open:
            ready, _, _ = select.select([*self._open], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                break
            for descriptor in ready:
                os.close(descriptor)
                del self._open[descriptor]
        left = set(self._open.values())
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()
        return left


def _open(pids: set[int]) -> Iterator[tuple[int, int]]:
    for pid in pids:
        with suppress(ProcessLookupError):
            yield os.pidfd_open(pid), pid
