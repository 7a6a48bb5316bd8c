"""Turns what the operator wrote about a server into a running process.

Knows environment, working directory, confinement and the drain of standard error; does not know
MCP. Needs no event loop.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ironcurtain_proxy.downstream.allowance import Ration
from ironcurtain_proxy.downstream.environment import (
    child_environment,
    missing_container_variables,
    secrets_of,
)
from ironcurtain_proxy.downstream.masking import Masker
from ironcurtain_proxy.downstream.options import DownstreamOptions
from ironcurtain_proxy.downstream.process import ServerProcess, spawn
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.downstream.stderr import StderrDrain
from ironcurtain_proxy.errors import ConfigurationError, ServerUnavailableError
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.launch import Launch, confine

_DRAIN = 0.5
"""Seconds to wait for the last words of a server that has ended."""


@dataclass(frozen=True, slots=True)
class Started:
    """A server process and what belongs to it."""

    process: ServerProcess
    drain: StderrDrain
    launch: Launch

    @property
    def sandboxed(self) -> bool:
        """Whether the process is confined."""
        return self.launch.sandboxed

    def end(self, grace: float) -> int:
        """End the process, as `ServerProcess.end`, and its drain. Blocks."""
        status = self.process.end(grace)
        self.launch.remove()
        self.drain.join(_DRAIN)
        return status


def start_server(
    spec: ServerSpec, options: DownstreamOptions, log: SessionLog, ration: Ration
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
    return Started(process, drain, launch)
