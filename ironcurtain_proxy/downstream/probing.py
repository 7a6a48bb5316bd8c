"""The walls of a server's process, probed once for each process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from anyio.to_thread import run_sync

from ironcurtain_proxy.downstream.options import DownstreamOptions
from ironcurtain_proxy.downstream.starting import Life, Started
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.walls import Walls
from ironcurtain_proxy.sandbox import closing
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.walls import walls_of

_SECONDS: Final = 10.0
"""The most time that closing files in a running sandbox may take."""


class Prober:
    """Probes the processes of one server."""

    def __init__(self, spec: ServerSpec, options: DownstreamOptions) -> None:
        self._spec = spec
        self._options = options
        self._known: tuple[Started, Walls] | None = None
        self._stamp: tuple[tuple[int, int], ...] = ()
        """The state of the places with credentials at the last probe."""

    def is_about(self, started: Life | None) -> bool:
        """Whether the result is of this process, not of an earlier one."""
        return self._known is not None and self._known[0] is started

    async def walls(self, started: Started) -> Walls | None:
        """The walls of a process; None: it is not confined, or the probe failed."""
        if not self.is_about(started) or self._stamp != self._stamp_now():
            # After a failed probe the next call tries again: the process may have just begun.
            self._known = None
            found = await run_sync(self._probe, started)
            self._known = None if found is None else (started, found)
        if self._known is None:
            return None
        confinement, walls = self._options.confinements[self._spec.name], self._known[1]
        own = confinement.private
        return walls if own is None else replace(walls, is_full=await run_sync(own.is_full))

    def _stamp_now(self) -> tuple[tuple[int, int], ...]:
        confinement = self._options.confinements.get(self._spec.name)
        hidden = None if confinement is None else confinement.credentials
        return () if hidden is None else hidden.stamp()

    def _probe(self, started: Started) -> Walls | None:
        confinement = self._options.confinements.get(self._spec.name)
        if confinement is None or not started.sandboxed:
            return None
        # Before the look: what appears meanwhile changes it again.
        self._stamp = self._stamp_now()
        found = self._look(started, confinement)
        if found is None or not found.shown:
            return found
        # A program saved its login meanwhile. It is covered, and looked for again.
        if not _close(started.process.pid, [str(path) for path in found.shown]):
            return found
        return self._look(started, confinement)

    def _look(self, started: Started, confinement: Confinement) -> Walls | None:
        hidden = confinement.credentials
        own = self._spec.cwd if self._options.is_own_directory(self._spec.cwd) else None
        return walls_of(
            started.process.pid,
            started.process.pipe,
            None if own is None else RealPath.from_text(os.path.realpath(own)),
            may_reach=bool(confinement.profile.allowed_domains),
            private=confinement.private,
            folders=confinement.folders,
            credentials=() if hidden is None else tuple(hidden.existing()),
        )


def _close(process: int, paths: Sequence[str]) -> bool:
    """Cover paths in all sandboxes below a process; whether that was done everywhere."""
    with suppress(OSError, subprocess.TimeoutExpired):
        ran = subprocess.run(  # noqa: S603  a program of ours
            [sys.executable, "-I", "-S", closing.__file__, str(process), *paths],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
        return ran.returncode == 0
    return False
