"""Which processes came of one process, and whether they are gone.

Processes are watched by pidfd: the kernel says when one ends, and a pid that was given to another
process meanwhile is not mistaken for it.
"""

import os
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

DEADLINE: Final = 20.0
MARK: Final = "E2E_MARK"
"""A variable in the environment of every scripted server, and so of all that it starts."""


def children(pid: int) -> set[int]:
    """Every process that one has started itself."""
    return {child for child, parent in _parents().items() if parent == pid}


def descendants(pid: int) -> set[int]:
    """Every process below one, however deep."""
    parents = _parents()
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                # After the last `)`: state, then the parent. The name before it may hold anything.
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return parents


def marked(mark: str) -> set[int]:
    """Every living process whose environment carries the mark."""
    wanted = f"{MARK}={mark}".encode()
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and wanted in _environment(entry).split(b"\0")
    }


def _environment(entry: Path) -> bytes:
    # Empty for a zombie, and gone or forbidden for processes that are not ours.
    with suppress(OSError):
        return (entry / "environ").read_bytes()
    return b""


class Watch:
    """A set of processes, from now until they have ended."""

    def __init__(self, pids: set[int]) -> None:
        self._open = dict(_open(pids))

    def survivors(self) -> set[int]:
        """Wait until all have ended. Returns those that had not when the deadline passed."""
        end = time.monotonic() + DEADLINE
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
