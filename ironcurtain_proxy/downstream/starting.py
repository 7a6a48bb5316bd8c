"""The start of a server from its configuration: environment, directory, sandbox, standard error.

Needs no event loop.
"""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from msgspec import Struct, field

from ironcurtain_proxy.downstream.allowance import OutputLimit
from ironcurtain_proxy.downstream.environment import (
    child_environment,
    missing_container_variables,
    secrets_of,
)
from ironcurtain_proxy.downstream.load import Load, load_of
from ironcurtain_proxy.downstream.masking import Masker
from ironcurtain_proxy.downstream.options import DownstreamOptions
from ironcurtain_proxy.downstream.orphans import kill_orphans
from ironcurtain_proxy.downstream.process import ServerProcess, spawn
from ironcurtain_proxy.downstream.session_log import SessionLog, printable
from ironcurtain_proxy.downstream.stderr import StderrDrain
from ironcurtain_proxy.errors import ConfigurationError, ServerUnavailableError
from ironcurtain_proxy.jsonrpc.batch import Batch
from ironcurtain_proxy.jsonrpc.headers import MirroredPaths
from ironcurtain_proxy.jsonrpc.pipes import open_wire
from ironcurtain_proxy.jsonrpc.wire import LineSink, LineSource
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.launch import Launch, confine
from ironcurtain_proxy.sandbox.standstill import Standstill, standstill_of
from ironcurtain_proxy.sandbox.walls import readers

_LOGGER: Final = logging.getLogger(__name__)

_SAY_AGAIN: Final = 60.0
"""Seconds between two warnings of killed processes; the session log has all of them."""

_DRAIN: Final = 0.5
"""Seconds to wait for the last words of a server that has ended."""

_GRACE: Final = 0.5
"""Seconds for a server to end by itself after its input is closed."""


class Life(Protocol):
    """One life of a server, from its start to its end: a process, or a session over HTTP."""

    @property
    def sandboxed(self) -> bool:
        """Whether it is confined."""

    @property
    def pid(self) -> int | None:
        """The guardian's process; None: it is no process of ours."""

    @property
    def last_words(self) -> str:
        """The last output of the server; empty: none, or unknown."""

    async def open(self, max_line: int, batch: Batch) -> tuple[LineSource, LineSink]:
        """The wire to it. Once."""

    def learn(self, mirrored: Mapping[str, MirroredPaths]) -> None:
        """Note which arguments of which tools stand in headers."""

    async def watch(self) -> None:
        """Do background work beside the conversation, until cancelled."""

    async def close(self) -> None:
        """End it, and wait until that is done."""

    def ending(self) -> str:
        """The end of the server, in words."""


class Started(Struct, frozen=True):
    """A server process, with its log drain and its sandbox."""

    spec: ServerSpec
    process: ServerProcess
    drain: StderrDrain
    launch: Launch
    log: SessionLog
    load: Load | None = None
    """The load of its sandbox on the machine; None: the load is not bounded."""
    still: Standstill | None = None
    """The standstill of its sandbox between calls; None: it is not confined."""
    # Its own, or ending a server would queue behind other folders' threads.
    limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    @property
    def sandboxed(self) -> bool:
        """Whether the process is confined."""
        return self.launch.sandboxed

    @property
    def pid(self) -> int:
        """The guardian's process."""
        return self.process.pid

    @property
    def last_words(self) -> str:
        """The last output of the process."""
        return self.drain.last_words

    async def open(self, max_line: int, batch: Batch) -> tuple[LineSource, LineSink]:
        """The pipes of the process."""
        return await open_wire(*self.process.take_wire(), max_line=max_line, batch=batch)

    def learn(self, mirrored: Mapping[str, MirroredPaths]) -> None:
        """Do nothing: messages to a process have no headers."""

    async def watch(self) -> None:
        """End its remaining processes once its guardian was killed, and bound its load."""
        async with anyio.create_task_group() as group:
            if self.load is not None:
                group.start_soon(self._bound, self.load)
            await end_if_bereaved(self.process, self.limiter)

    async def _bound(self, load: Load) -> None:
        limiter = CapacityLimiter(1)
        said = -_SAY_AGAIN
        while True:
            seconds = await run_sync(self._look, load, limiter=limiter)
            what = load.take_news()
            if what:
                text = f'server "{self.spec.name}": {what}; see its "limits"'
                self.log.write(self.spec.name, f"(proxy) {text}")
                if anyio.current_time() - said >= _SAY_AGAIN:
                    said = anyio.current_time()
                    _LOGGER.warning("%s", text)
            await anyio.sleep(seconds)

    def _look(self, load: Load) -> float:
        seconds = load.look()
        if self.still is not None:
            # The end of a process, by that look or by the kernel, may wake others of its group.
            self.still.keep()
        return seconds

    async def close(self) -> None:
        """End the process."""
        await run_sync(self.end, _GRACE, limiter=self.limiter)

    def ending(self) -> str:
        """The end of the process, in words; a missing command is named."""
        missing = self.process.exit_status in {126, 127}
        if self.load is not None and self.load.last:
            return self.load.last
        if self.still is not None and self.still.last:
            return self.still.last
        why = self.process.ending()
        return f"{why}: {printable(self.spec.command)}" if missing else why

    def end(self, grace: float) -> int:
        """End the process, as `ServerProcess.end`, and its drain. Blocks."""
        if self.still is not None:
            self.still.finish(readers(self.process.pid, self.process.pipe))
        status = self.process.end(grace)
        self.launch.remove()
        self.drain.join(_DRAIN)
        return status


def start_server(
    spec: ServerSpec, options: DownstreamOptions, log: SessionLog, ration: OutputLimit
) -> Started:
    """Start one server.

    Raises:
        ConfigurationError: it cannot work as it is configured, and trying again is no use.
        ServerUnavailableError: no process could be made.
    """
    environment = child_environment(spec, options.environment)
    missing = missing_container_variables(spec, environment)
    if missing:
        raise ConfigurationError(
            f'server "{spec.name}" passes on {", ".join(missing)}, which is not set: '
            "set it in its env or in SERVER_CREDENTIALS"
        )
    cwd = spec.cwd or options.workspace or os.getcwd()  # noqa: PTH109  a string is wanted
    if not Path(cwd).is_dir():
        raise ServerUnavailableError(
            f'server "{spec.name}" could not be started: its working directory does not exist'
        )
    launch = confine(spec, options.confinements.get(spec.name))
    sandbox = None if launch.directory is None else launch.directory.path
    try:
        process = spawn(
            spec,
            environment={**environment, **launch.environment},
            cwd=sandbox or cwd,
            argv=launch.argv,
            inherited=launch.descriptors,
            directory=sandbox,
        )
    except ServerUnavailableError:
        launch.remove()
        raise
    finally:
        launch.close()
    try:
        masker = Masker(secrets_of(spec))
        drain = StderrDrain(spec.name, process.take_stderr(), masker, log, ration)
    except RuntimeError:
        process.end(0)
        launch.remove()
        raise ServerUnavailableError(
            f'server "{spec.name}" could not be started: the system has no thread left'
        ) from None
    confinement = options.confinements.get(spec.name)
    if confinement is None:
        return Started(spec, process, drain, launch, log)
    limits = confinement.profile.limits
    load = load_of(process.pid, limits, confinement.writable)
    # The commands of our own shell end with their calls, and change nothing by themselves.
    still = standstill_of(process.pid, limits.processes) if confinement.views is None else None
    return Started(spec, process, drain, launch, log, load, still)


_ORPHANS = 1.0
"""Seconds to look for remaining processes."""


async def end_if_bereaved(process: ServerProcess, limiter: CapacityLimiter) -> None:
    """Wait for the guardian's end, then end the remaining processes if it was killed.

    A server dies with its guardian, but the processes that it started do not: a sandbox keeps the
    pipes open and would continue to answer. At their end the pipes close. Linux only.
    """
    if sys.platform != "linux":
        return
    try:
        guardian = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        await anyio.wait_readable(guardian)
    finally:
        os.close(guardian)
    status = process.exit_status
    if status is not None and status < 0:
        await run_sync(kill_orphans, _ORPHANS, limiter=limiter)
