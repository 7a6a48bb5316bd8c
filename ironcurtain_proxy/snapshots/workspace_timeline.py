"""The port `Timeline` of a workspace: one scan at a time, each in a thread."""

import logging
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import Change, NotHeld, PathNotHeld, PointId
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.snapshots.keeper import Keeper, Limits
from ironcurtain_proxy.snapshots.opening import TimelineLock, claim, remove_old
from ironcurtain_proxy.snapshots.scanning import (
    StoppedError,
    TooManyBytesError,
    TooManyFilesError,
)

_LOGGER: Final = logging.getLogger(__name__)
_PATIENCE: Final = 5.0
"""Seconds of the first look after which it is spoken of; after twice as long again, and so on."""
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
            started = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell_progress)
                await self._one_at_a_time(self._first)
                tasks.cancel_scope.cancel()
            while True:
                await anyio.sleep(max(_IDLE_SECONDS, _SHARE * (anyio.current_time() - started)))
                started = anyio.current_time()
                await self._one_at_a_time(self._verify)
        finally:
            # A thread cannot be cancelled, so it is asked to end.
            self._keeper.scanner.progress.stop = True

    async def _tell_progress(self) -> None:
        """Report progress of a long first scan, for which calls wait, until cancelled."""
        pause = _PATIENCE
        while True:
            await anyio.sleep(pause)
            _LOGGER.warning(
                "the workspace is read for the first time: %d files and directories so far; calls "
                "that change it wait for that",
                self.looked_at,
            )
            pause *= 2

    def _first(self) -> None:
        _suppressed(lambda: remove_old(self._parent, self._limits.keep, self._now().timestamp()))
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

    async def transact(
        self,
        call: RequestId,
        server: str,
        tool: str,
        paths: Collection[str],
        apply: Callable[[], Collection[str]],
        *,
        may_drop: bool,
    ) -> tuple[PointId, tuple[Change, ...]] | NotHeld:
        """Make a point of exactly what `apply` changes."""
        done: tuple[PointId, tuple[Change, ...]] | NotHeld = NotHeld("the proxy is ending")
        job = partial(self._keeper.transact, call, server, tool, paths, apply, may_drop=may_drop)
        # What a thread has begun to apply is noted, whoever is cancelled.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                done = await anyio.to_thread.run_sync(job)
        return done

    async def end_call(self, point: PointId) -> tuple[Change, ...] | NotHeld:
        """Note what changed since the call's point."""
        # A cancelled call may have changed files.
        found: tuple[Change, ...] | NotHeld = ()
        with anyio.CancelScope(shield=True):
            async with self._lock:
                found = await anyio.to_thread.run_sync(self._keeper.end_call, point)
        return found

    async def unheld(self, path: RealPath) -> tuple[PathNotHeld, ...]:
        """Return the parts of this path that could not be restored if the next call deleted it."""
        async with self._lock:
            return await anyio.to_thread.run_sync(self._keeper.unheld, path)

    def close(self) -> None:
        """Close everything, after the end of `run`."""
        self._keeper.close()
        self._claim.release()


def _suppressed(job: Callable[[], None]) -> None:
    try:
        job()
    except (TooManyFilesError, TooManyBytesError, StoppedError, OSError):
        return
    except Exception:
        # What cannot be held is said by the next point.
        _LOGGER.exception("the workspace could not be read")
