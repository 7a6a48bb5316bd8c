"""The port `Timeline` of a workspace: one scan at a time, each in a thread."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.timeline import Change, NotHeld, PointId, Unheld
from ironcurtain_proxy.snapshots.timeline.keeper import Keeper, Limits
from ironcurtain_proxy.snapshots.timeline.places import TimelineLock, claim, remove_old
from ironcurtain_proxy.snapshots.timeline.scanning import (
    ManyBytesError,
    StoppedError,
    TooManyError,
)

_IDLE_SECONDS: Final = 10.0
_SHARE: Final = 50
"""The largest part of the time for complete scans."""


class WorkspaceTimeline:
    """Points in time of one workspace."""

    def __init__(
        self,
        state_directory: Path,
        workspace: RealPath,
        limits: Limits,
        *,
        session: str,
        now: Callable[[], datetime],
    ) -> None:
        """Keep it in a directory of the proxy's state.

        Raises:
            OSError: the workspace cannot be opened, or the directory not be used.
        """
        self._parent = state_directory
        self._limits = limits
        self._now = now
        self._claim: TimelineLock = claim(state_directory, workspace)
        try:
            self._keeper = Keeper(
                self._claim.directory, workspace, limits, session=session, now=now
            )
        except BaseException:
            self._claim.release()
            raise
        self._lock = anyio.Lock()

    @property
    def looked_at(self) -> int:
        """The files and directories that the current scan has read."""
        return self._keeper.scanner.progress.looked_at

    async def run(self) -> None:
        """Scan the workspace, and scan it again from time to time.

        Runs until it is cancelled. The next point reports what cannot be held.
        """
        try:
            job = self._first
            while True:
                started = anyio.current_time()
                await self._one_at_a_time(job)
                await anyio.sleep(max(_IDLE_SECONDS, _SHARE * (anyio.current_time() - started)))
                job = self._verify
        finally:
            # A thread cannot be cancelled, so it is asked to end.
            self._keeper.scanner.progress.stop = True

    def _first(self) -> None:
        remove_old(self._parent, self._limits.keep, self._now().timestamp())
        _suppressed(self._keeper.begin)

    def _verify(self) -> None:
        _suppressed(self._keeper.verify)

    async def _one_at_a_time(self, job: Callable[[], None]) -> None:
        async with self._lock:
            await anyio.to_thread.run_sync(job, abandon_on_cancel=False)

    async def mark(
        self, call: RequestId, server: str, tool: str, *, may_drop: bool
    ) -> PointId | NotHeld:
        """Make the point before a call."""
        job = partial(self._keeper.mark, call, server, tool, may_drop=may_drop)
        async with self._lock:
            return await anyio.to_thread.run_sync(job)

    async def settle(self, point: PointId) -> tuple[Change, ...] | NotHeld:
        """Note what changed since the call's point."""
        # A cancelled call may have changed files.
        found: tuple[Change, ...] | NotHeld = ()
        with anyio.CancelScope(shield=True):
            async with self._lock:
                found = await anyio.to_thread.run_sync(self._keeper.settle, point)
        return found

    async def unheld(self, path: RealPath) -> tuple[Unheld, ...]:
        """The parts of this path that could not be restored if the next call deleted it."""
        async with self._lock:
            return await anyio.to_thread.run_sync(self._keeper.unheld, path)

    def close(self) -> None:
        """Close everything, after the end of `run`."""
        self._keeper.close()
        self._claim.release()


def _suppressed(job: Callable[[], None]) -> None:
    try:
        job()
    except (TooManyError, ManyBytesError, StoppedError, OSError):
        return
