"""The family of a log: the configured log, and the logs of other proxies beside it.

A second proxy finds the log in use and writes its own log `audit.jsonl.4711`, with its own chain.
The commands read all logs of the family, so that no user has to know which one has a call. Reads
only.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.files import rotated_paths

_MEMBER: Final = re.compile(r"(?:\.([1-9]\d{0,9}))?(?:\.0\d{5})?")
_NUMBER: Final = re.compile(
    r"(?:([1-9]\d{0,9}|x[0-9a-f]{3,32}(?:\.[1-9]\d{0,9})?):)?(\d{1,18})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Member:
    """One log with its rotated files."""

    path: Path
    process: str = ""
    """The client of a log that stands beside the named one: its process, `4711`. For a log in
    another place: `x3f2`, `x3f2.4711`."""

    def changed(self) -> float:
        """The time of the last write to one of its files, in seconds since 1970."""
        times = []
        for path in (self.path, *rotated_paths(self.path)[-1:]):
            try:
                times.append(path.stat().st_mtime)
            except FileNotFoundError:
                continue
        return max(times, default=0.0)


def family(log: Path) -> tuple[Member, ...]:
    """The log itself and those beside it, by the numbers of their processes.

    Raises:
        OSError: the directory cannot be read.
    """
    found: set[str] = set()
    try:
        names = os.listdir(log.parent)  # noqa: PTH208  names alone are needed
    except (FileNotFoundError, NotADirectoryError):
        names = []
    for name in names:
        member = _MEMBER.fullmatch(name, len(log.name)) if name.startswith(log.name) else None
        if member is not None:
            found.add(member[1] or "")
    others = sorted(found - {""}, key=int)
    own = [Member(log)] if "" in found or not others else []
    return (*own, *[Member(log.with_name(f"{log.name}.{one}"), one) for one in others])


def is_member(path: Path, log: Path) -> bool:
    """Return whether a path is a log itself, or one of another process beside it."""
    return path.name.startswith(log.name) and bool(_MEMBER.fullmatch(path.name, len(log.name)))


def read_number(text: str) -> tuple[str | None, int] | None:
    """Read a line's number: the label of its log (None if it has none) and the number."""
    found = _NUMBER.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def newest_first(members: tuple[Member, ...]) -> Iterator[tuple[Member, float]]:
    """The logs with the time of their last change."""
    timed = [(member, member.changed()) for member in members]
    yield from sorted(timed, key=lambda one: one[1], reverse=True)
