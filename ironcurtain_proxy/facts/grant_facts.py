"""The directories among a call's resolved paths, for remembered approvals."""

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

import anyio
import anyio.to_thread

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest, PathValue

_DEADLINE: Final = 5.0
"""Seconds, as for all facts of a call."""

_MAX_THREADS: Final = 4
"""The most lookups at once. One that hangs keeps its thread."""

_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


class DirectoryFinder:
    """Finds the directories among the paths of a call. One for each session."""

    def __init__(self, deadline: float = _DEADLINE) -> None:
        """Set the deadline of one call in seconds."""
        self._deadline = deadline
        self._limiter = anyio.CapacityLimiter(_MAX_THREADS)

    async def find(self, request: AccessRequest) -> frozenset[RealPath] | None:
        """The directories of `directories_of`; None: the deadline has passed.

        In a thread, because a network file system can hang. The call waits for a reviewer anyway,
        so the cost of a thread does not matter.
        """
        if not any(True for _ in _paths(request)):
            return frozenset()
        with anyio.move_on_after(self._deadline):
            return await anyio.to_thread.run_sync(
                directories_of, request, abandon_on_cancel=True, limiter=self._limiter
            )
        return None


def directories_of(request: AccessRequest) -> frozenset[RealPath]:
    """The paths of a call that are, or may be, directories.

    Too many directories make the remembered pattern narrower, never wider.
    """
    return frozenset(path for path in _paths(request) if _may_be_directory(path))


def directories_to_open(
    request: AccessRequest, directories: frozenset[RealPath]
) -> tuple[str, ...]:
    """The directories that a server needs among its roots for a call, each once.

    Args:
        request: the call.
        directories: its paths that are directories.
    """
    found = (path if path in directories else RealPath(path.parts[:-1]) for path in _paths(request))
    return tuple(dict.fromkeys(map(str, found)))


def _paths(request: AccessRequest) -> Iterator[RealPath]:
    return (
        value.path
        for fact in request.arguments
        for value in fact.values
        if isinstance(value, PathValue)
    )


def _may_be_directory(path: RealPath) -> bool:
    try:
        return stat.S_ISDIR(os.stat(str(path)).st_mode)  # noqa: PTH116  microseconds
    except OSError as error:
        return error.errno not in _NOTHING_THERE
    except ValueError:
        return True
