"""All servers behind the proxy, and the forwarding of authorized calls to them.

The `params` of a request are built from the arguments that were judged.

A server over HTTP may have forgotten the session of a call. It took nothing then, so the call is
sent once more where nothing can run twice. It was authorized for the tool as it was: where the
greeted server describes it otherwise, the call is not sent.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from ironcurtain_proxy.downstream.connection import LEGACY_AGE, SUBSCRIBING
from ironcurtain_proxy.downstream.eras import ServerDescription
from ironcurtain_proxy.downstream.process import become_subreaper
from ironcurtain_proxy.downstream.roots import needed_roots, retry_while_outside
from ironcurtain_proxy.downstream.second_instances import SecondInstances
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.downstream.starting import DownstreamOptions, Hooks, ServerStatus
from ironcurtain_proxy.downstream.supervisor import Supervisor
from ironcurtain_proxy.errors import (
    CallLostError,
    CallTimedOutError,
    ConfigurationError,
    DownstreamError,
    ServerUnavailableError,
    SessionForgottenError,
)
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import ProgressListener
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.server import (
    SandboxRestrictions,
    ServerSpec,
    ToolDefinition,
    ToolResult,
)
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.sandbox.directory import remove_abandoned

if TYPE_CHECKING:
    from ironcurtain_proxy.downstream.gate import Gate
    from ironcurtain_proxy.sandbox.denials import Closed
    from ironcurtain_proxy.sandbox.launch import Confinement

# --- resending


_PATIENCE: Final = 10.0
"""Seconds for the server to be greeted again, and to list its tools."""
_LOOK_AGAIN: Final = 0.02


async def send_again_if_forgotten(
    supervisor: Supervisor, call: AuthorizedCall, send: Callable[[], Awaitable[ToolResult]]
) -> ToolResult:
    """Send a call, and once more if its session was forgotten.

    Raises:
        DownstreamError: the server is not there, failed, or took too long.
    """
    starts, described = supervisor.status().starts, _described(supervisor, call)
    try:
        return await send()
    except SessionForgottenError:
        if call.method != "tools/call" or described is None:
            raise
        with anyio.move_on_after(_PATIENCE):
            while not _is_back(supervisor, starts):  # noqa: ASYNC110  nobody tells
                await anyio.sleep(_LOOK_AGAIN)
        if not _is_back(supervisor, starts) or _described(supervisor, call) != described:
            raise
    return await send()


def _is_back(supervisor: Supervisor, starts: int) -> bool:
    status = supervisor.status()
    return status.starts > starts and status.state == "ready"


def _described(supervisor: Supervisor, call: AuthorizedCall) -> Mapping[str, Json] | None:
    return next((tool.raw for tool in supervisor.tools if tool.name == call.tool), None)


# --- wire params


def wire_params(call: AuthorizedCall) -> dict[str, Json]:
    """Return the `params` of one request."""
    params, arguments = dict(call.params), dict(call.arguments)
    match call.method:
        case "tools/call":
            params["name"] = call.tool
            if arguments or "arguments" in params:
                params["arguments"] = arguments
        case "prompts/get":
            if arguments or "arguments" in params:
                params["arguments"] = arguments
        case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
            params["uri"] = arguments["uri"]
        case "completion/complete":
            return _completion(params, arguments)
        case "elicitation/create" | "sampling/createMessage":
            params |= arguments
        case _:
            assert_never(call.method)
    return params


def _completion(params: dict[str, Json], arguments: dict[str, Json]) -> dict[str, Json]:
    argument = params.get("argument")
    name = str(argument.get("name")) if isinstance(argument, Mapping) else ""
    params["argument"] = {"name": name, "value": arguments.pop(name, "")}
    params.pop("context", None)
    if arguments:
        params["context"] = {"arguments": arguments}
    return params


# --- servers


_LOGGER: Final = logging.getLogger(__name__)


class DownstreamServers:
    """Implements `ports.Servers`.

    In this order: construct, set `hooks`, `start_processes` (as early as can be), `run`.
    """

    def __init__(self, specs: Sequence[ServerSpec], options: DownstreamOptions) -> None:
        self.hooks = Hooks()
        self._confinements = dict(options.confinements)
        options = replace(options, confinements=self._confinements)
        self._options = options
        self._gates: dict[str, Gate] = {}
        self._log = SessionLog(options.session_log)
        if self._log.fault:
            _LOGGER.warning("no session log: %s", self._log.fault)
        self._first_wait: float | None = None
        """The loop's time of the first wait for a server."""
        self.second_instances = SecondInstances(options, lambda: self.hooks, self._log)
        """Second instances, for approved calls."""
        self._supervisors = {
            spec.name: Supervisor(spec, options, self.hooks, self._log, self._announce)
            for spec in specs
        }

    def start_processes(self) -> None:
        """Start all processes, without a wait. Needs no event loop.

        Remains of a proxy that was killed with all its guardians are ended and removed first.
        `run` reports servers that cannot be started. Processes that `run` never takes over end
        with the proxy.
        """
        become_subreaper()
        remove_abandoned()
        self._open_gates()
        for supervisor in self._supervisors.values():
            try:
                supervisor.start_process()
            except (ConfigurationError, DownstreamError, OSError) as error:
                _LOGGER.debug("%s", error)

    def _open_gates(self) -> None:
        """Open the gates of sandboxes without network."""
        for name, confinement in self._confinements.items():
            if not confinement.profile.has_network and confinement.views is None:
                from ironcurtain_proxy.downstream.gate import Gate  # noqa: PLC0415  needed here alone

                try:
                    gate = Gate.open()
                except OSError as error:
                    # srt's own proxy refuses as well; the host is then unknown.
                    _LOGGER.debug("no gate for %s: %s", name, error)
                    return
                self._gates[name] = gate
                self._confinements[name] = replace(confinement, gate=gate.port)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep all servers running until cancelled; then end them, within about 3 seconds."""
        try:
            async with anyio.create_task_group() as group:
                for supervisor in self._supervisors.values():
                    group.start_soon(supervisor.run)
                group.start_soon(self.second_instances.run)
                for gate in self._gates.values():
                    group.start_soon(gate.run)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._log.close()

    async def tools(self) -> Mapping[str, tuple[ToolDefinition, ...]]:
        """Return the tools of each server, in configuration order; none of a missing server.

        Waits as `until_settled` does. `hooks.on_tools_changed` announces later servers.
        """
        for name in self._supervisors:
            await self.until_settled(name)
        return self.tools_now()

    def tools_now(self) -> Mapping[str, tuple[ToolDefinition, ...]]:
        """Return the tools of each server, without a wait."""
        return {name: supervisor.tools for name, supervisor in self._supervisors.items()}

    async def list_old_again(self) -> None:
        """List the tools of each server again whose list is old. Nobody waits for a slow one."""
        async with anyio.create_task_group() as group:
            for supervisor in self._supervisors.values():
                group.start_soon(supervisor.list_if_old)

    def last(self, method: str) -> float:
        """Return for how many seconds a client may show a list of all servers."""
        return min([one.lasts(method) for one in self._supervisors.values()], default=LEGACY_AGE)

    async def list_again(self, server: str) -> None:
        """List the tools of a server again, unless that was done just now: one may be new."""
        await self._supervisor(server).list_if_old(for_new=True)

    async def until_settled(self, server: str) -> None:
        """Wait until a server is ready or has failed, as long as a list waits.

        Raises:
            ServerUnavailableError: there is no such server.
        """
        await self._wait_for(self._supervisor(server).settled, self._options.start_deadline)

    async def until_started(self, server: str) -> str:
        """Wait until a server is ready or has failed again, as long as a call waits.

        A call waits longer than a list, and for further starts: the list is announced again when a
        late server has started, but a call that is refused is lost.

        Returns:
            The message for the agent if the server has not started, or empty if it has.

        Raises:
            ServerUnavailableError: there is no such server.
        """
        supervisor = self._supervisor(server)
        await self._wait_for(supervisor.tried, self._options.call_start_deadline)
        match supervisor.status().state:
            case "starting":
                return f'The server "{server}" is still starting: call again in a few seconds.'
            case "failed":
                return (
                    f'The server "{server}" did not start, and is tried again. '
                    f"The reason, for the user: {supervisor.why_missing}."
                )
            case "ready" | "restarting" | "stopped":
                return ""
            case unexpected:
                assert_never(unexpected)

    async def _wait_for(self, event: anyio.Event, seconds: float) -> None:
        # The time runs from the first wait for any server: one that hangs delays calls only once.
        if self._first_wait is None:
            self._first_wait = anyio.current_time()
        with anyio.CancelScope(deadline=self._first_wait + seconds):
            await event.wait()

    def missing(self) -> list[str]:
        """Return what the agent is told of the servers that did not start."""
        return [
            f"The server {name} did not start, so its tools are missing: {one.why_missing}."
            for name, one in self._supervisors.items()
            if one.why_missing
        ]

    async def introductions(self, seconds: float) -> Mapping[str, ServerDescription]:
        """Return the descriptions of the servers that start within some seconds."""
        with anyio.move_on_after(seconds):
            for supervisor in self._supervisors.values():
                await supervisor.settled.wait()
        return {
            name: supervisor.greeted
            for name, supervisor in self._supervisors.items()
            if supervisor.settled.is_set()
        }

    @property
    def names(self) -> Sequence[str]:
        """The names of all servers, in configuration order."""
        return tuple(self._supervisors)

    async def entries(
        self, server: str, method: str, keys: tuple[str, str]
    ) -> Sequence[Mapping[str, Json]]:
        """Return the entries of another list of a server than its tools.

        None if it has no such list.

        Raises:
            DownstreamError: the server is missing, or does not list them in time.
        """
        connection = self._supervisor(server).connection
        if not connection.has(method.partition("/")[0]) and len(self._supervisors) > 1:
            return ()  # alone it is asked all the same: some have what they do not declare
        with anyio.move_on_after(self._options.list_timeout):
            found = await connection.list_entries(method, keys, self._options.list_timeout)
            return tuple(found.values())
        raise CallTimedOutError(f'server "{server}" takes too long to answer {method}')

    def forward(
        self,
        call: AuthorizedCall,
        on_progress: ProgressListener | None = None,
        *,
        roots: Sequence[str] = (),
        opening: SandboxOpening | None = None,
    ) -> Awaitable[ToolResult]:
        """Send the call to its server and wait for the answer, which is returned unchanged.

        Args:
            call: the authorized call.
            on_progress: gets the progress notifications.
            roots: directories, absolute and real, that the server is let into for this call. If it
                refuses the call because it did not know of them yet, it gets the call again.
            opening: what was approved beyond what the server's sandbox lets it do: the call goes to
                a second instance that is let into exactly this.

        Raises:
            DownstreamError: the server is not there, failed, or took too long.
        """
        first = self._supervisors.get(call.server) or self._supervisor(call.server)
        if opening is not None:
            return self._send_to_second(first, opening, call, on_progress, roots)
        confinement = self._options.confinements.get(call.server)
        if roots:
            return self._send_to(first, confinement, call, on_progress, roots)
        if first.spec.remote is None:
            return self._send(first, confinement, call, on_progress, may_open=True)
        send = partial(self._send, first, confinement, call, on_progress)
        return send_again_if_forgotten(first, call, send)

    async def _send_to_second(
        self,
        first: Supervisor,
        opening: SandboxOpening,
        call: AuthorizedCall,
        on_progress: ProgressListener | None,
        roots: Sequence[str],
    ) -> ToolResult:
        async with self.second_instances.use(first, opening) as second_instance:
            return await self._send_to(
                second_instance.supervisor, second_instance.confinement, call, on_progress, roots
            )

    async def _send_to(
        self,
        supervisor: Supervisor,
        confinement: "Confinement | None",
        call: AuthorizedCall,
        on_progress: ProgressListener | None,
        roots: Sequence[str],
    ) -> ToolResult:
        send = partial(self._send, supervisor, confinement, call, on_progress)
        async with supervisor.open_roots(roots) as opened:
            if not opened:
                return await send()
            return await retry_while_outside(
                send, supervisor.tell_roots_again, only_reads=supervisor.only_reads(call.tool)
            )

    @asynccontextmanager
    async def open_roots(self, server: str, directories: Sequence[str]) -> AsyncIterator[None]:
        """Add directories, absolute and real, to a server's roots for the time of the block.

        On entry, a server that asks for roots has read them. Concurrent calls share directories.
        A server without other roots gets none: they would replace its own arguments.

        Raises:
            ServerUnavailableError: there is no such server.
        """
        async with self._supervisor(server).open_roots(directories):
            yield

    async def _send(
        self,
        supervisor: Supervisor,
        confinement: "Confinement | None",
        call: AuthorizedCall,
        on_progress: ProgressListener | None,
        *,
        may_open: bool = False,
    ) -> ToolResult:
        params = wire_params(call)
        connection = supervisor.connection
        closed_by = confinement if confinement is not None and supervisor.is_sandboxed else None
        gate = None if confinement is None or confinement.gate is None else self._gates[call.server]
        before = 0 if gate is None else gate.count
        load = supervisor.load
        ended = 0 if load is None else load.ended
        timeout = self._options.call_timeout
        try:
            result = await connection.call(params, timeout, on_progress, call.method, call.caller)
        except CallLostError as error:
            if load is None or load.ended == ended:
                raise
            raise CallLostError(f"{error}: {load.last}") from None
        # A rule may allow one file, which a server takes for no root, or name no directory.
        if may_open and result.has_failed and (roots := needed_roots(result, call.request)):
            return await self._send_to(supervisor, confinement, call, on_progress, roots)
        if load is not None and load.ended > ended and result.result is not None:
            from ironcurtain_proxy.sandbox.denials import told_of_limits  # noqa: PLC0415  only for servers in a sandbox

            result = result.with_result(told_of_limits(result.result, load.last), "")
        if result.has_failed or call.method in SUBSCRIBING:
            result = self._noted(supervisor, call, result)
        if closed_by is None:
            return result
        from ironcurtain_proxy.sandbox.denials import Closed  # noqa: PLC0415  only for servers in a sandbox
        from ironcurtain_proxy.sandbox.shell_setup import with_report  # noqa: PLC0415  the same

        result, refused = with_report(result) if closed_by.views is not None else (result, "")
        closed = Closed.to(closed_by.profile, call.request)
        host = refused if gate is None else gate.asked_since(before, closed_by.profile.forbids)
        if host and not closed.hosts:
            closed = replace(closed, hosts=(host,))
        answer = _annotated(result, closed)
        return replace(answer, refused_host=host) if host else answer

    def _noted(
        self, supervisor: Supervisor, call: AuthorizedCall, result: ToolResult
    ) -> ToolResult:
        """Note a subscription, and mark a failure that names the server's own directory."""
        if result.error is None and call.method in SUBSCRIBING:
            supervisor.note_subscription(call.method, str(call.arguments["uri"]))
        cwd = supervisor.spec.cwd or ""
        if not (result.has_failed and cwd and self._options.is_own_directory(cwd)):
            return result
        from ironcurtain_proxy.sandbox.denials import told_of_directory  # noqa: PLC0415  few calls need it

        return told_of_directory(result, cwd)

    def opening(
        self,
        server: str,
        request: AccessRequest,
        hosts: Sequence[str] = (),
        paths: Sequence[RealPath] = (),
        programs: Sequence[str] = (),
    ) -> SandboxOpening | str | None:
        """Return the opening that a call needs in its server's sandbox.

        None: it needs none, or the server is not confined. A text: access that no approval opens,
        and the setting that does.
        """
        confinement, supervisor = self._options.confinements.get(server), self._supervisor(server)
        if confinement is None:
            return None
        from ironcurtain_proxy.sandbox.second_instance import (  # noqa: PLC0415  few calls need one
            opening_for,
            with_reads,
        )

        home = self._options.environment.get("HOME", "/")
        profile = confinement.profile
        found = opening_for(supervisor.spec, profile, request, hosts, home, paths)
        return with_reads(found, supervisor.spec, profile, programs)

    def is_sandboxed(self, server: str) -> bool:
        """Return whether the process that serves this server now is confined."""
        supervisor = self._supervisors.get(server)
        return supervisor is not None and supervisor.is_sandboxed

    async def restrictions(self, server: str) -> SandboxRestrictions | None:
        """Return the restrictions of that process, as probed, or None if it is not confined."""
        supervisor = self._supervisors.get(server)
        return None if supervisor is None else await supervisor.restrictions()

    async def stand_still(self, server: str) -> None:
        """Stop the processes of a server's sandbox whenever nothing is under way, until `release`.

        On return they are stopped, unless something is under way.
        """
        supervisor = self._supervisors.get(server)
        if supervisor is not None and supervisor.standing is not None:
            await supervisor.standing.require()

    def release(self, server: str) -> None:
        """Let the processes of a server's sandbox run between calls."""
        supervisor = self._supervisors.get(server)
        if supervisor is not None and supervisor.standing is not None:
            supervisor.standing.release()

    def end_writers(self, why: str) -> None:
        """End all processes of the sandboxes that write at once. Their servers start again."""
        for name, one in self._options.confinements.items():
            if one.views is None and (load := self._supervisors[name].load) is not None:
                load.end(why)

    def status(self) -> Mapping[str, ServerStatus]:
        """Return the state of each server."""
        return {name: supervisor.status() for name, supervisor in self._supervisors.items()}

    def hosts_refused(self) -> Mapping[str, tuple[str, ...]]:
        """Return the hosts that each server without a network tried to reach."""
        return {name: gate.hosts for name, gate in self._gates.items() if gate.hosts}

    async def notify_roots_changed(self, server: str) -> None:
        """Tell a server that `hooks.roots` would answer differently now."""
        self._supervisor(server).notify_roots_changed()

    async def set_log_level(self, level: str) -> None:
        """Set the log level of all servers that have one, including those that start later."""
        async with anyio.create_task_group() as group:
            for supervisor in self._supervisors.values():
                group.start_soon(supervisor.set_log_level, level)

    def _supervisor(self, server: str) -> Supervisor:
        try:
            return self._supervisors[server]
        except KeyError:
            raise ServerUnavailableError(f'there is no server "{server}"') from None

    async def _announce(self, is_told: bool) -> None:  # noqa: FBT001  private
        try:
            await self.hooks.on_tools_changed(is_told)
        except Exception as error:  # noqa: BLE001  the agent's trouble must not end a server
            _LOGGER.warning("a change of tools was not passed on: %s", type(error).__name__)


def _annotated(answer: ToolResult, closed: "Closed") -> ToolResult:
    """Return the answer of a confined server; an error that its sandbox caused is marked."""
    from ironcurtain_proxy.sandbox.denials import (  # noqa: PLC0415  as above
        annotated,
        annotated_error,
        refused_host,
    )

    if answer.result is not None:
        host = refused_host(answer.result, closed)
        result = annotated(answer.result, closed)
        # Unchanged, it keeps its encoded JSON.
        is_as_given = result is answer.result and not host
        return answer if is_as_given else answer.with_result(result, host)
    error = answer.error
    return answer if error is None else ToolResult(error=annotated_error(error, closed))
