"""The one place where rooms are joined.

`serve` reads everything first, so that a mistake in a file starts nothing; then starts the servers'
processes; then imports the SDK, which takes half a second that the servers need anyway.
"""

import gc
import logging
import os
import signal
import sys
import uuid
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

import anyio

from ironcurtain_proxy.administration.lint_annotations import LiveTools
from ironcurtain_proxy.administration.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.administration.roots import initial_roots
from ironcurtain_proxy.administration.settings import Settings, load_settings
from ironcurtain_proxy.audit.hanging import end_process
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.settings import LogSettings
from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.downstream.environment import child_environment
from ironcurtain_proxy.downstream.hardening import hide_from_debuggers
from ironcurtain_proxy.downstream.options import DownstreamOptions
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.settling import settle, tidy
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.information.facts import FactReader
from ironcurtain_proxy.information.git import GitRemotes
from ironcurtain_proxy.information.live_catalogue import LiveCatalogue
from ironcurtain_proxy.information.mounts import MountTable
from ironcurtain_proxy.information.paths import PathReader
from ironcurtain_proxy.information.resolver import Resolver, ToolSource
from ironcurtain_proxy.information.spelling import Speller
from ironcurtain_proxy.mediation import Mediator, World
from ironcurtain_proxy.model.call import RequestId
from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.reply import Reply
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.ports import ProgressListener
from ironcurtain_proxy.wire.pipes import claim_stdio, open_reader, open_writer

_log: Final = logging.getLogger("ironcurtain_proxy")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SystemClock:
    """The time as the machine has it."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)  # noqa: TID251  the one clock

    def monotonic(self) -> float:
        """Seconds."""
        return monotonic()


class RandomIds:
    """Random names for calls."""

    def new(self) -> RequestId:
        """A fresh id."""
        return RequestId(str(uuid.uuid4()))  # noqa: TID251  the one source of ids

    def new_escalation(self) -> EscalationId:
        """A fresh id."""
        return EscalationId(str(uuid.uuid4()))  # noqa: TID251  the one source of ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """One proxy, put together, its servers' processes started."""

    settings: Settings
    loaded: LoadedPolicy
    audit: AuditLog
    servers: DownstreamServers
    catalogue: LiveCatalogue
    mediator: Mediator

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
    ) -> Reply:
        """Carry one call, as soon as it is known which tools there are."""
        await self.catalogue.ready()
        return await self.mediator.handle(exposed_name, params, on_progress)


def serve(environ: MutableMapping[str, str], config: Path | None = None) -> int:
    """Serve MCP on standard input and output until the agent leaves or a signal comes.

    Returns:
        The exit code: 0, or 128 + N after signal N.

    Raises:
        ConfigurationError: something cannot be used; nothing was started.
    """
    hide_from_debuggers()
    settings = load_settings(environ, config)
    loaded = load_policy(settings)
    for problem in (*settings.warnings, *loaded.warnings):
        sys.stderr.write(f"ironcurtain-proxy: {problem}\n")
    _refuse_what_is_not_there(settings)
    read, write = claim_stdio()
    proxy = assemble(settings, loaded, environ)
    _configure_logging(settings)
    try:
        proxy.servers.start_processes()
        _import_heavy()
        return anyio.run(_live, proxy, read, write)
    finally:
        proxy.audit.close()
        tidy(_state_of(settings))


def assemble(settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str]) -> Proxy:
    """Join the rooms. Opens the audit log; starts nothing."""
    audit = AuditLog.open(
        settings.audit.path,
        LogSettings(
            redaction=settings.audit.redact,
            fsync=settings.audit.fsync,
            write_deadline=settings.audit.write_deadline_seconds,
            max_bytes=settings.audit.max_bytes,
        ),
        on_hang=end_process,
    )
    for notice in audit.notices:
        sys.stderr.write(f"ironcurtain-proxy: {notice}\n")
    workspace = None if settings.workspace is None else str(settings.workspace)
    servers = DownstreamServers(_settled(settings), _downstream_options(settings, environ))
    catalogue = LiveCatalogue(settings.servers, loaded.annotations, servers.tools)
    remotes = {spec.name: GitRemotes(child_environment(spec, environ)) for spec in settings.servers}
    speller = Speller(
        home=str(settings.home),
        workspace=workspace,
        cwd=None,
        alias=settings.container_workspace_dir,
    )
    resolver = Resolver(
        ToolSource(
            lookup=catalogue.lookup,
            remotes=remotes.__getitem__,
            trusted=loaded.policy.trusted_servers,
        ),
        FactReader(PathReader(speller)),
        MountTable(),
    )
    mediator = Mediator(
        world=World(
            tools=catalogue,
            facts=resolver,
            servers=servers,
            recorder=audit,
            clock=SystemClock(),
            ids=RandomIds(),
        ),
        policy=loaded.policy,
        session=settings.session,
        breaker=Breaker(settings.breaker.threshold, settings.breaker.window_seconds),
    )
    return Proxy(
        settings=settings,
        loaded=loaded,
        audit=audit,
        servers=servers,
        catalogue=catalogue,
        mediator=mediator,
    )


async def _live(proxy: Proxy, read: int, write: int) -> int:
    from ironcurtain_proxy.agent.server import AgentServer  # noqa: PLC0415  see `_import_heavy`
    from ironcurtain_proxy.agent.transport import AgentTransport  # noqa: PLC0415

    limit = proxy.settings.max_message_bytes
    agent = AgentServer(
        handle_call=proxy.handle,
        list_tools=proxy.catalogue.listing,
        set_log_level=proxy.servers.set_log_level,
        transport=AgentTransport(await open_reader(read, max_line=limit), await open_writer(write)),
    )

    async def tools_changed() -> None:
        await proxy.catalogue.refresh()
        await agent.tools_changed()

    async def logged(_server: str, params: Mapping[str, Json]) -> None:
        await agent.log_message(params)

    annotation_names = {spec.name: spec.annotations for spec in proxy.settings.servers}

    def roots(server: str) -> list[Mapping[str, Json]]:
        found = initial_roots(proxy.loaded.policy, annotation_names[server])
        return [{"uri": root.uri, "name": root.name} for root in found]

    proxy.servers.hooks.on_tools_changed = tools_changed
    proxy.servers.hooks.on_log = logged
    proxy.servers.hooks.roots = roots
    ended_by: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, tasks.cancel_scope, ended_by)
        await tasks.start(proxy.servers.run)
        await agent.serve()
        tasks.cancel_scope.cancel()
    return 128 + ended_by[0] if ended_by else 0


async def _end_on_signal(scope: anyio.CancelScope, ended_by: list[int]) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as received:
        async for number in received:
            ended_by.append(number)
            scope.cancel()


def _import_heavy() -> None:
    """Import the SDK while the servers are starting.

    Its thousands of classes are no garbage: collecting among them costs a tenth of the time, and
    frozen they are never looked at again.
    """
    gc.disable()
    import ironcurtain_proxy.agent.server  # noqa: F401, PLC0415  after the servers were started

    gc.freeze()
    gc.enable()


def list_live_tools(settings: Settings) -> LiveTools:
    """Start the servers, list their tools, and stop them again."""
    servers = DownstreamServers(_settled(settings), _downstream_options(settings, os.environ))
    servers.start_processes()
    try:
        return anyio.run(_list_tools, servers)
    finally:
        tidy(_state_of(settings))


async def _list_tools(servers: DownstreamServers) -> LiveTools:
    async with anyio.create_task_group() as tasks:
        await tasks.start(servers.run)
        found = await servers.tools()
        tasks.cancel_scope.cancel()
    return LiveTools(
        definitions=tuple(tool for tools in found.values() for tool in tools),
        answered=frozenset(
            name for name, status in servers.status().items() if status.state == "ready"
        ),
    )


def _settled(settings: Settings) -> tuple[ServerSpec, ...]:
    return tuple(settle(spec, _state_of(settings), Path.cwd()) for spec in settings.servers)


def _state_of(settings: Settings) -> Path:
    return settings.state_dir / "sessions" / settings.session


def _downstream_options(settings: Settings, environ: Mapping[str, str]) -> DownstreamOptions:
    return DownstreamOptions(
        call_timeout=settings.escalation_timeout_seconds,
        max_message_bytes=settings.max_message_bytes,
        session_log=settings.session_log,
        environment=dict(environ),
    )


def _refuse_what_is_not_there(settings: Settings) -> None:
    if not settings.servers:
        raise ConfigurationError(
            "no servers are configured: set MCP_SERVERS_CONFIG, or mcpServers in "
            "~/.ironcurtain/config.json (see `ironcurtain-proxy serve --help`)"
        )
    confined = [spec.name for spec in settings.servers if spec.sandbox is not False]
    if settings.sandbox_policy == "enforce" and confined:
        raise ConfigurationError(
            'sandboxPolicy is "enforce", but this version cannot confine servers: '
            f'set "sandbox": false for {", ".join(confined)} if you trust them'
        )
    if confined:
        sys.stderr.write(
            "ironcurtain-proxy: warning: servers run unconfined, with all rights of this user "
            f"(sandboxPolicy is warn): {', '.join(confined)}\n"
        )


def _configure_logging(settings: Settings) -> None:
    """One line for people on standard error; everything, with tracebacks, in the session log."""
    brief = logging.StreamHandler()
    brief.setLevel(logging.WARNING)
    brief.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[brief], force=True)
    try:
        full = logging.FileHandler(settings.session_log, encoding="utf-8")
    except OSError:
        return
    full.setFormatter(logging.Formatter("%(asctime)s ironcurtain-proxy %(message)s"))
    logging.getLogger().addHandler(full)


class _OneLine(logging.Formatter):
    """Leaves tracebacks to the session log."""

    def format(self, record: logging.LogRecord) -> str:
        """The message alone."""
        return f"ironcurtain-proxy: {record.getMessage()}".replace("\n", " ")
