"""What the paths of a call are on the disk, and what the session itself made below /tmp."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import anyio.to_thread

from ironcurtain_proxy.auto_confirm.engine.places import TEMPORARY, FilesFound
from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest, PathValue

_MOST: Final = 4096
"""The most entries that are remembered as the session's own."""


@dataclass(slots=True)
class SessionFiles:
    """The entries of `/tmp` that approved calls of one session made.

    An entry is the session's own if it did not exist when the engine approved the call that made
    it. What exists and was not made by it is another program's, whoever owns it.
    """

    _own: set[RealPath] = field(default_factory=set)
    _awaited: dict[EscalationId, frozenset[RealPath]] = field(default_factory=dict)
    """The entries that calls in progress may make."""

    async def found(self, request: AccessRequest) -> FilesFound:
        """What the paths of a call are now. Never fails."""
        paths = [*_paths(request)]
        own = frozenset(self._own)
        return await anyio.to_thread.run_sync(_found, paths, own)

    def approved(self, question: EscalationId, found: FilesFound) -> None:
        """Note what an approved call may make."""
        new = found.own - self._own
        if new and len(self._awaited) < _MOST:
            self._awaited[question] = new

    def ended(self, question: EscalationId, *, succeeded: bool | None) -> None:
        """Note what a call made; one that failed made nothing that is known."""
        new = self._awaited.pop(question, frozenset())
        if succeeded and len(self._own) < _MOST:
            self._own |= new


def _paths(request: AccessRequest) -> Iterator[RealPath]:
    for fact in request.arguments:
        yield from [value.path for value in fact.values if isinstance(value, PathValue)]


def _found(paths: Iterable[RealPath], made: frozenset[RealPath]) -> FilesFound:
    files: set[RealPath] = set()
    own: set[RealPath] = set()
    for path in paths:
        status = _status(path)
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            files.add(path)
        top = _entry_of(path)
        if top is not None and _is_own(top, made) and (status is None or _is_plain(status)):
            own.add(top)
    return FilesFound(files=frozenset(files), own=frozenset(own))


def _entry_of(path: RealPath) -> RealPath | None:
    """The entry of /tmp that a path lies in; None: it lies elsewhere."""
    for base in TEMPORARY:
        if path != base and path.is_within(base):
            return RealPath(path.parts[: len(base.parts) + 1])
    return None


def _is_own(top: RealPath, made: frozenset[RealPath]) -> bool:
    status = _status(top)
    if status is None:
        return True
    return top in made and status.st_uid == os.geteuid() and _is_plain(status)


def _is_plain(status: os.stat_result) -> bool:
    """Whether it is a directory, or a file of one name: no socket, device, pipe or link."""
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return is_file or stat.S_ISDIR(status.st_mode)


def _status(path: RealPath) -> os.stat_result | None:
    try:
        return os.lstat(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        # What cannot be looked at is nobody's that is known.
        return os.stat_result((0,) * 10)
