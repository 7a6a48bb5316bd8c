"""The start of a server from its configuration: environment, directory, sandbox, standard error.

It needs no event loop. What the sandbox of a process restricts is probed once for each process.

A server does not run in the workspace or in the proxy's directory, which are often the same: `npx`
takes programs from `node_modules` there, and Python imports modules from there, and the agent may
have written either. Every path that the agent sends is made absolute, so no server needs to run
there; relative paths in its command are resolved before.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.downstream.conversation import AnswerCapacity
from ironcurtain_proxy.downstream.environment import (
    Masker,
    child_environment,
    missing_container_variables,
    secrets_of,
)
from ironcurtain_proxy.downstream.eras import ROOTS
from ironcurtain_proxy.downstream.process import ServerProcess, StderrDrain, kill_orphans, spawn
from ironcurtain_proxy.downstream.session_log import OutputLimit, SessionLog, printable
from ironcurtain_proxy.errors import ConfigurationError, ServerUnavailableError
from ironcurtain_proxy.jsonrpc.codec import MirroredPaths
from ironcurtain_proxy.jsonrpc.pipes import MAX_LINE, LineSink, LineSource, open_wire
from ironcurtain_proxy.jsonrpc.sending import Batch
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.server import SandboxRestrictions, ServerSpec
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.sandbox.directory import Launch, unsafe_no_sandbox

if TYPE_CHECKING:
    from ironcurtain_proxy.downstream.load import Load
    from ironcurtain_proxy.sandbox.launch import Confinement
    from ironcurtain_proxy.sandbox.standstill import Standstill
    from ironcurtain_proxy.sandbox.watchman import Watchman

# --- options

ServerState: TypeAlias = Literal["starting", "ready", "restarting", "failed", "stopped"]
"""`restarting`: it was ready and ended. `failed`: the last attempt to start it came to nothing; it
is tried again. `stopped`: we are closing."""


LOGINS: Final = "logins"
"""The directory below `~/.ironcurtain` with the tokens of servers that are reached over HTTP."""


class DownstreamOptions(Struct, frozen=True, kw_only=True):
    """Settings that hold for every server. Durations are seconds."""

    call_timeout: float = 300.0
    """The deadline of one call."""
    start_deadline: float = 10.0
    """The wait of a list for servers that are starting."""
    call_start_deadline: float = 50.0
    """The wait of a call for its server; below the 60 seconds after which clients give up."""
    initialize_timeout: float = 60.0
    """Seconds for `initialize`, and for each page of tools."""
    list_timeout: float = 30.0
    """Seconds for all pages of a list of resources or prompts."""
    max_message_bytes: int = MAX_LINE
    """The most bytes of one message, in either direction."""
    session_log: Path | None = None
    """The session log, or None if the output of servers is discarded."""
    workspace: str | None = None
    """Working directory of servers that name none. Absolute; None: the proxy's own."""
    confinements: Mapping[str, "Confinement"] = field(default_factory=dict)
    """The confinement of each server; a server that is missing here runs unconfined."""
    watchman: "Watchman | None" = None
    """Looks after what second instances may write besides, or None if nobody does."""
    state: Path | None = None
    """The session's directory, with servers' own directories; removed with the session."""
    logins: Path | None = None
    """The directory of the tokens of servers that are reached over HTTP, or None if there are
    none."""
    failures: int = logging.WARNING
    """How a server that does not start is logged. Its status says why, too."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The proxy's environment, of which a server gets the base variables only."""

    def is_own_directory(self, directory: str | None) -> bool:
        """Return whether a working directory was made for its server."""
        return directory is not None and Path(directory).parent == self.state


async def _nothing(*_: object) -> None:
    return


async def _roots_only(_server: str, _caller: Caller | None) -> Mapping[str, Json]:
    return ROOTS


class Hooks(Struct, kw_only=True):
    """Callbacks for events of servers; set by `wiring` before the servers run."""

    on_tools_changed: Callable[[bool], Awaitable[None]] = _nothing
    """Called when the tools have changed, or a server is ready again; with whether it tells so."""
    on_log: Callable[[str, Mapping[str, Json]], Awaitable[None]] = _nothing
    """Called with a server's name and the raw `params` of its `notifications/message`."""
    on_notice: Callable[[str, str, Mapping[str, Json]], Awaitable[None]] = _nothing
    """Called with a server's name, and the method and raw `params` of a notification."""
    on_question: (
        Callable[
            [str, str, Mapping[str, Json], Sequence[Caller | None]], Awaitable[Mapping[str, object]]
        ]
        | None
    ) = None
    """Answers a question of a server's own; see `QuestionHandler`, or None if all are refused."""
    capabilities: Callable[[str, Caller | None], Awaitable[Mapping[str, Json]]] = _roots_only
    """Gives the client capabilities for a server, of the client of one request."""
    roots: Callable[[str], Sequence[Mapping[str, Json]]] = lambda _: ()
    """Gives the roots of a server."""
    capacity: AnswerCapacity = field(default_factory=AnswerCapacity)
    """The capacity for large answers of all servers."""
    batch: Batch = field(default_factory=Batch)
    """Gets the lines of each read of a server's pipe."""


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The state of a server."""

    state: ServerState
    error: str = ""
    """The reason why the server is not running, or why it last ended. Without secrets."""
    tools: int = 0
    starts: int = 0
    pid: int | None = None
    """The guardian's process."""
    sandboxed: bool = False


# --- the start

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
        """The guardian's process, or None if it is no process of ours."""

    @property
    def last_words(self) -> str:
        """The last output of the server, or empty if there is none or it is unknown."""

    async def open(self, max_line: int, batch: Batch) -> tuple[LineSource, LineSink]:
        """Return the wire to it. Once."""

    def learn(self, mirrored: Mapping[str, MirroredPaths]) -> None:
        """Note which arguments of which tools stand in headers."""

    def has_session(self) -> bool:
        """Return whether it can be answered later on what it asks within a call."""

    async def watch(self) -> None:
        """Do background work beside the conversation, until cancelled."""

    async def close(self) -> None:
        """End it, and wait until that is done."""

    def ending(self) -> str:
        """Return the end of the server, in words."""


class Started(Struct, frozen=True):
    """A server process, with its log drain and its sandbox."""

    spec: ServerSpec
    process: ServerProcess
    drain: StderrDrain
    launch: Launch
    log: SessionLog
    load: "Load | None" = None
    """The load of its sandbox on the machine, or None if the load is not bounded."""
    still: "Standstill | None" = None
    """The standstill of its sandbox between calls, or None if it is not confined."""
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
        """Return the pipes of the process."""
        return await open_wire(*self.process.take_wire(), max_line=max_line, batch=batch)

    def learn(self, mirrored: Mapping[str, MirroredPaths]) -> None:
        """Do nothing: messages to a process have no headers."""

    def has_session(self) -> bool:
        """Return True: the pipes of a process stay open."""
        return True

    async def watch(self) -> None:
        """End its remaining processes once its guardian was killed, and bound its load."""
        async with anyio.create_task_group() as group:
            if self.load is not None:
                group.start_soon(self._bound, self.load)
            await end_if_bereaved(self.process, self.limiter)

    async def _bound(self, load: "Load") -> None:
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

    def _look(self, load: "Load") -> float:
        seconds = load.look()
        if self.still is not None:
            # A process may have ended, by this look or by the kernel: then the system lets stopped
            # ones of its group go on, and they are stopped again.
            self.still.keep()
        return seconds

    async def close(self) -> None:
        """End the process."""
        await run_sync(self.end, _GRACE, limiter=self.limiter)

    def ending(self) -> str:
        """Return the end of the process, in words; a missing command is named."""
        if self.load is not None and self.load.last:
            return self.load.last
        if self.still is not None and self.still.last:
            return self.still.last
        status, why, command = self.process.exit_status, self.process.ending(), self.spec.command
        if status not in {126, 127}:
            return why
        if shutil.which(command, path=self.spec.env.get("PATH")):
            # A shell ends so, too, where its script is missing, and a sandbox hides directories.
            why = f"it exited with status {status}, as where a file is not found or cannot be run"
        return f"{why}: {printable(command)}"

    def end(self, grace: float) -> int:
        """End the process, as `ServerProcess.end`, and its drain. Blocks."""
        if self.still is not None:
            from ironcurtain_proxy.sandbox.restrictions import readers  # noqa: PLC0415  imported at the start of it

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
    confinement = options.confinements.get(spec.name)
    launch = unsafe_no_sandbox(spec) if confinement is None else _confined(spec, confinement)
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
    if confinement is None:
        return Started(spec, process, drain, launch, log)
    return Started(spec, process, drain, launch, log, *_held(process.pid, confinement))


def _held(process: int, confinement: "Confinement") -> "tuple[Load | None, Standstill | None]":
    from ironcurtain_proxy.downstream.load import load_of  # noqa: PLC0415  see `_confined`
    from ironcurtain_proxy.sandbox.standstill import standstill_of  # noqa: PLC0415  the same

    limits = confinement.profile.limits
    # The commands of our own shell end with their calls, and change nothing by themselves.
    still = standstill_of(process, limits.processes) if confinement.views is None else None
    return load_of(process, limits, confinement.writable), still


def _confined(spec: ServerSpec, confinement: "Confinement") -> Launch:
    # What is imported later would need descriptors when there may be none.
    from ironcurtain_proxy.sandbox import (  # noqa: PLC0415  a server without a sandbox needs none
        denials,  # noqa: F401
        launch,
        restrictions,  # noqa: F401
        standstill,  # noqa: F401
    )

    return launch.confine(spec, confinement)


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


# --- probing


_SECONDS: Final = 10.0
"""The most time that closing files in a running sandbox may take."""


class Prober:
    """Probes the processes of one server."""

    def __init__(self, spec: ServerSpec, options: DownstreamOptions) -> None:
        self._spec = spec
        self._options = options
        self._known: tuple[Started, SandboxRestrictions] | None = None
        self._stamp: tuple[tuple[int, int], ...] = ()
        """The state of the places with credentials at the last probe."""

    def is_about(self, started: Life | None) -> bool:
        """Return whether the result is of this process, not of an earlier one."""
        return self._known is not None and self._known[0] is started

    async def restrictions(self, started: Started) -> SandboxRestrictions | None:
        """Return the restrictions of a process.

        It is None if it is not confined, or the probe failed.
        """
        if not self.is_about(started) or self._stamp != self._stamp_now():
            # After a failed probe the next call tries again: the process may have just begun.
            self._known = None
            found = await run_sync(self._probe, started)
            self._known = None if found is None else (started, found)
        if self._known is None:
            return None
        confinement, restrictions = self._options.confinements[self._spec.name], self._known[1]
        own = confinement.private
        return (
            restrictions
            if own is None
            else replace(restrictions, is_full=await run_sync(own.is_full))
        )

    def _stamp_now(self) -> tuple[tuple[int, int], ...]:
        confinement = self._options.confinements.get(self._spec.name)
        hidden = None if confinement is None else confinement.credentials
        return () if hidden is None else hidden.stamp()

    def _probe(self, started: Started) -> SandboxRestrictions | None:
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

    def _look(self, started: Started, confinement: "Confinement") -> SandboxRestrictions | None:
        from ironcurtain_proxy.sandbox.restrictions import restrictions_of  # noqa: PLC0415  see `_confined`

        hidden = confinement.credentials
        own = self._spec.cwd if self._options.is_own_directory(self._spec.cwd) else None
        return restrictions_of(
            started.process.pid,
            started.process.pipe,
            None if own is None else RealPath.from_text(os.path.realpath(own)),
            may_reach=confinement.profile.has_network,
            private=confinement.private,
            folders=confinement.folders,
            credentials=() if hidden is None else tuple(hidden.existing()),
        )


def _close(process: int, paths: Sequence[str]) -> bool:
    """Cover paths in all sandboxes below a process; whether that was done everywhere."""
    from ironcurtain_proxy.sandbox import closing  # noqa: PLC0415  only its file is needed

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


# --- working directory


def with_directories(
    spec: ServerSpec, state: Path, written_in: Path, *, make: bool = True
) -> ServerSpec:
    """Give a server a working directory of its own, unless the operator named one.

    Args:
        spec: as configured.
        state: the session's directory; the server gets `<name>.cwd` in it.
        written_in: what relative paths in the command were meant in: arguments that name something
            that exists there are made absolute, as is a command with a slash.
        make: make the directory, or False if only say where it would be.

    Raises:
        ConfigurationError: the directory cannot be made.
    """
    if spec.cwd is not None or spec.remote is not None:
        return spec
    home = state / f"{spec.name}.cwd"
    try:
        if make:
            make_private(home)
    except OSError as error:
        raise ConfigurationError(
            f"{home}: the working directory of server {spec.name} cannot be made "
            f"({error.strerror}): name one that exists as its cwd in mcpServers, or set HOME to a "
            "directory that you may write to"
        ) from None
    command = str(written_in / spec.command) if _is_relative_path(spec.command) else spec.command
    args = tuple(_absolute(argument, written_in) for argument in spec.args)
    return replace(spec, cwd=str(home), command=command, args=args)


def make_private(directory: Path) -> None:
    """Make a directory and its missing parents, for this user only."""
    for place in (*reversed(directory.parents), directory):
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)


def tidy(state: Path) -> None:
    """Remove unused directories of `settle`, and the session's directory if it is empty."""
    with suppress(OSError):
        for home in state.glob("*.cwd"):
            with suppress(OSError):
                home.rmdir()
        state.rmdir()


def _absolute(argument: str, written_in: Path) -> str:
    if not (_is_relative_path(argument) or argument.startswith(".")) or "\0" in argument:
        return argument
    try:
        place = written_in / argument
        return str(place) if place.exists() else argument
    except OSError:
        return argument


def _is_relative_path(text: str) -> bool:
    return "/" in text and not text.startswith(("/", "-"))
