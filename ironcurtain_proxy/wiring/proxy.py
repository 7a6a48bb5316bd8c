"""One proxy put together from its settings: everything but the agent's side.

Servers over HTTP, checked against the policy and this machine before the start.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.agent.asking import AskedClient
from ironcurtain_proxy.agent.replies import is_own
from ironcurtain_proxy.audit.known_logs import note_log
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.redaction import redacted
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.eras import ROOTS
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.starting import LOGINS, DownstreamOptions, with_directories
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.live_catalogue import LiveCatalogue, ToolLists
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.jsonrpc.sending import Batch
from ironcurtain_proxy.lasting import lasting
from ironcurtain_proxy.mediation.calls import Calls, OwnTools, by_name
from ironcurtain_proxy.mediation.judge import Overlay
from ironcurtain_proxy.mediation.operations import Operations, ServerQuestions
from ironcurtain_proxy.mediation.outcome import Results, refuse_later
from ironcurtain_proxy.mediation.session import Session, SessionSettings
from ironcurtain_proxy.model.condition_reading import host_matches
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.server import RemoteEndpoint, ResultRules, ServerSpec, roots_told
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_process import RandomIds, SystemClock
from ironcurtain_proxy.pins.book import PinBook
from ironcurtain_proxy.ports import FactGatherer, PreparedViews, Recorder, Servers, World
from ironcurtain_proxy.sandbox.installed import beyond_agents, without_launcher
from ironcurtain_proxy.sessions import SessionLock, hold_session
from ironcurtain_proxy.wiring.call_facts import (
    command_argument,
    origins_for,
    overlay_for,
    resolver_for,
)
from ironcurtain_proxy.wiring.confinement import (
    machine_of,
    with_own_path,
    with_own_place,
)
from ironcurtain_proxy.wiring.containment import containment_of
from ironcurtain_proxy.wiring.reloading import Reloading, candidate_of
from ironcurtain_proxy.wiring.reviewers import (
    AddedChannels,
    Reviewers,
    grant_ending,
    grant_ttl,
    patience,
    reviewers_beside,
)
from ironcurtain_proxy.wiring.shared import (
    Shared,
    follow_acceptance,
    open_log,
    pins_of,
    shared_parts,
)

if TYPE_CHECKING:
    from ironcurtain_proxy.sandbox.launch import Confinement
    from ironcurtain_proxy.sandbox.probe import Available
    from ironcurtain_proxy.sandbox.watchman import Watchman
    from ironcurtain_proxy.snapshots.workspace_timeline import WorkspaceTimeline
    from ironcurtain_proxy.telemetry import Telemetry
    from ironcurtain_proxy.wiring.views import ShellViews


# --- remote


def refuse_closed_hosts(settings: Settings, policy: Policy) -> None:
    """Refuse URLs that the policy closes, and secrets that the credentials lack.

    Raises:
        ConfigurationError: a rule denies the host, or a secret is not there.
    """
    for spec, endpoint in _remote(settings):
        rule = next((one for one in policy.rules if _closes(one, spec, endpoint)), None)
        if rule is not None:
            raise ConfigurationError(
                f'server "{spec.name}": rule {rule.name} of the policy denies {endpoint.host}: '
                "change the rule, or remove the server"
            )
        from ironcurtain_proxy.downstream.remote.logins import (  # noqa: PLC0415  seldom needed
            headers_of,
            secret_of,
        )

        headers_of(spec, endpoint)
        if endpoint.oauth is not None:
            secret_of(endpoint.oauth, spec.credentials, spec.name)


def remote_hosts(settings: Settings) -> Mapping[str, str]:
    """Return the hosts of the servers that are reached over HTTP, by server."""
    return {spec.name: endpoint.host for spec, endpoint in _remote(settings)}


def unused_proxies(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the servers for which the environment names a proxy that is not used, in words."""
    # Read by `check` alone.
    from urllib.request import proxy_bypass  # noqa: PLC0415

    direct = {"no": environ.get("no_proxy") or environ.get("NO_PROXY", "")}
    for spec, endpoint in _remote(settings):
        kinds = (f"{urlsplit(endpoint.url).scheme}_proxy", "all_proxy")
        names = [name for kind in kinds for name in (kind, kind.upper()) if environ.get(name)]
        if names and endpoint.proxy is None and not proxy_bypass(endpoint.host, direct):
            unused = f"{names[0]} is not used for {spec.name}"
            yield f'{unused}: name the proxy in "proxy" of its entry, if it is the only way out'


def _remote(settings: Settings) -> Iterator[tuple[ServerSpec, RemoteEndpoint]]:
    for spec in settings.servers:
        if spec.remote is not None:
            yield spec, spec.remote


def _closes(rule: Rule, spec: ServerSpec, endpoint: RemoteEndpoint) -> bool:
    """Return whether a rule denies every call to the host of a server."""
    return (
        rule.effect == "deny"
        and rule.tools is None
        and (rule.servers is None or spec.annotations in rule.servers)
        and rule.domains is not None
        and host_matches(endpoint.host, rule.domains.allowed)
    )


# --- proxy


_log: Final = logging.getLogger(__name__)
_A_DAY: Final = 86400.0


class AgentTools(Servers, ToolLists, Protocol):
    """The tools that an agent's client carries out itself, in place of servers."""

    specs: Sequence[ServerSpec]
    """Our own shell, if it is to run the client's commands."""
    wire: str
    """The socket at which it fetches them."""

    def hold_commands(self, shell: DownstreamServers, views: PreparedViews) -> PreparedViews:
        """Let our own shell run them. Return its views, of the calls that have one."""

    def telling(self, facts: FactGatherer) -> FactGatherer:
        """Add to the facts of a call what its client says of it."""

    def noting(self, recorder: Recorder) -> Recorder:
        """Add the same to its records."""


class Proxy(Struct, kw_only=True):
    """The parts of one proxy, joined. Nothing runs yet."""

    settings: Settings
    loaded: LoadedPolicy
    audit: AuditLog
    shared: Shared
    servers: DownstreamServers
    catalogue: LiveCatalogue
    reviewers: Reviewers
    calls: Calls
    operations: Operations
    client: AskedClient
    """The agent's client, for questions of servers."""
    questions: ServerQuestions
    overlay: Overlay
    pins: PinBook
    telemetry: "Telemetry | None" = None
    """The telemetry, or None if no spans and metrics are sent."""
    holds: tuple[SessionLock, ...]
    """Locks on the session's directories, which prevent their removal."""
    watchman: "Watchman | None" = None
    """The watch over confined servers, or None if none of them may write anywhere."""
    timeline: "WorkspaceTimeline | None" = None
    """The timeline, or None if no call can be taken back."""
    views: "ShellViews | None" = None
    """The views of our own shell, or None if it has none, or is not there."""
    reloading: Reloading
    on_tools_changed: Callable[[bool], Awaitable[None]] | None = None
    """Notifies the agent, with whether a server has told of it."""
    on_policy_changed: Callable[[], Awaitable[None]] | None = None
    """Notifies the agent that other prompts and resources may be listed."""
    _has_listed: bool = False

    def note_client(self, name: str) -> None:
        """Note the name that the agent's client gives itself."""
        self.calls.journal.client.name = name

    def note_log(self) -> None:
        """Let `audit` find this log wherever it is, and miss it if it is removed or replaced."""
        try:
            note_log(self.settings.state_dir, self.audit.path)
        except (OSError, ConfigurationError) as error:
            _log.warning("`audit` finds this log by its name only: %s", error)

    async def list_tools(self) -> list[Json]:
        """Return the tools that the agent is shown: the servers' tools and the proxy's own."""
        await self.servers.list_old_again()
        tools = [tool for tool in await self.catalogue.listing() if not is_own(tool)]
        self._has_listed = True
        return [*tools, *self.calls.own.listing(may_hold=self._may_hold_now())]

    def _may_hold_now(self) -> bool:
        """Return whether a call may be held: the mode is `held`, or somebody can be asked."""
        if self.settings.escalation.mode == "held":
            return True
        return self.reviewers.questions.holds and self.reviewers.is_reachable()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run servers and reviewers until cancelled; then end them."""
        if not self.settings.show_denied_tools:
            self.catalogue.hides = self.operations.session.hides
        self.servers.hooks.roots = self._roots
        self.reloading.on_change = self._policy_changed
        self.servers.hooks.on_tools_changed = self._tools_changed
        self.servers.hooks.on_question = self.questions.handle
        self.servers.hooks.capabilities = self._capabilities
        try:
            async with anyio.create_task_group() as tasks:
                if self.views is not None:
                    tasks.start_soon(self.views.record_recovery, self.calls.journal)
                await tasks.start(self.servers.run)
                await tasks.start(self.reviewers.run)
                if self.watchman is not None:
                    tasks.start_soon(lasting, "the watch of control places", self._watch)
                if self.timeline is not None:
                    tasks.start_soon(self.timeline.run)
                accepted = partial(
                    follow_acceptance, self.pins, self.catalogue, self._tools_changed
                )
                tasks.start_soon(lasting, "the look at accepted changes", accepted)
                tasks.start_soon(lasting, "the look at the policy", self.reloading.run)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._end()
            if self.telemetry is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self.telemetry.close)

    async def _watch(self) -> None:
        if self.watchman is not None:
            # Without containment nothing is judged by what comes often.
            self.watchman.on_race = (
                self.servers.end_writers if self.settings.containment.undo else None
            )
            await self.watchman.run()

    def _end(self) -> None:
        if self.watchman is not None:
            self.watchman.end()
        if self.timeline is not None:
            self.timeline.close()
        if self.views is not None:
            self.views.close()
        from ironcurtain_proxy.sandbox.private_tmp import remove_private  # noqa: PLC0415  not at a start

        remove_private(self.settings.session_dir)

    async def _tools_changed(self, is_told: bool = False) -> None:  # noqa: FBT001, FBT002  a hook
        before = self.catalogue.tools
        after = self.catalogue.refresh().tools
        known = {tool.server for tool in before}
        has_changed = before != tuple([tool for tool in after if tool.server in known])
        # An agent that has not asked for the list needs no notice of a server that started.
        if (self._has_listed or has_changed or is_told) and self.on_tools_changed is not None:
            await self.on_tools_changed(is_told)

    async def _policy_changed(self) -> None:
        await self.operations.forget_what_is_denied()
        for server in self.questions.names:
            await self.servers.notify_roots_changed(server)
        if self.on_policy_changed is not None:
            await self.on_policy_changed()

    async def _capabilities(self, server: str, caller: Caller | None) -> Mapping[str, Json]:
        """Return the client capabilities that a server is told."""
        return await self.client.mirrored(self.questions.allowed(server), ROOTS, caller)

    def _roots(self, server: str) -> list[Mapping[str, Json]]:
        spec = next(spec for spec in self.settings.servers if spec.name == server)
        found = roots_told(self.reloading.in_force.policy, spec)
        return [{"uri": root.uri, "name": root.name} for root in found]


def _with_views(
    confined: "Mapping[str, Confinement]", specs: Sequence[ServerSpec], settings: Settings
) -> "tuple[Mapping[str, Confinement], ShellViews | None]":
    if all(spec.builtin is None for spec in specs):
        return confined, None
    # Most sessions have no shell of ours, and start without it.
    from ironcurtain_proxy.wiring.views import with_views  # noqa: PLC0415

    return with_views(confined, specs, settings)


def _served(
    settings: Settings,
    environ: Mapping[str, str],
    sandbox: "Available | None",
    loaded: LoadedPolicy,
    own: AgentTools | None,
) -> "tuple[Sequence[ServerSpec], Mapping[str, Confinement], ShellViews | None]":
    """Return the servers to start, how each is confined, and the views of our own shell.

    For a client that is our own shell alone; without views the client runs its commands itself.
    """
    specs = settled(settings, environ) if own is None else own.specs
    confined: Mapping[str, Confinement] = {}
    if sandbox is not None:
        # Ten modules, which a session without a sandbox starts without.
        from ironcurtain_proxy.wiring.confining import confinements  # noqa: PLC0415  see above

        confined = confinements(sandbox, specs, settings, loaded.policy)
    confined, views = _with_views(confined, specs, settings)
    if own is None:
        return *with_own_path(specs, confined, environ, settings.workspace), views
    wired = {
        name: replace(one, views=replace(one.views, wire=own.wire))
        for name, one in confined.items()
        if one.views is not None
    }
    return [spec for spec in specs if spec.name in wired], wired, views


def _looked_after(
    confined: "Mapping[str, Confinement]", state_dir: Path
) -> "tuple[Watchman | None, Mapping[str, Confinement]]":
    """Return the watch over confined servers, and their confinements with what it closes."""
    if not confined:
        return None, confined
    # It brings ten modules, which no other server needs.
    from ironcurtain_proxy.sandbox.watchman import looked_after  # noqa: PLC0415

    return looked_after(confined, state_dir)


def _led(resolver: Resolver, watchman: "Watchman | None") -> Resolver:
    """Tell a resolver which files the user's own settings start; closed ones no call can write."""
    if watchman is not None:
        look = watchman.lookout
        resolver.leads = lambda path: path not in look.closed_files and look.leads.holds(path)
    return resolver


def assemble(  # noqa: PLR0913  the ends of one proxy
    settings: Settings,
    loaded: LoadedPolicy,
    environ: Mapping[str, str],
    *,
    sandbox: "Available | None",
    ways: AddedChannels | None = None,
    in_process: bool = False,
    own: AgentTools | None = None,
    beside: Shared | None = None,
) -> Proxy:
    """Join the parts. Opens the audit log; starts nothing.

    Args:
        settings: what the operator said.
        loaded: the policy.
        environ: ours, of which servers get the base variables.
        sandbox: what servers are confined in; see `find_sandbox`.
        ways: the ways to reviewers besides the mailbox.
        in_process: another program's process, which a hanging disk must not end.
        own: the tools of the agent's client, which are served instead of servers.
        beside: the kernel that is running, whose other door this is.
    """
    refuse_closed_hosts(settings, loaded.policy)
    # First, before there is anything in the directory that could be removed.
    holds = hold_session(settings)
    batch = Batch() if beside is None else beside.batch
    audit = open_log(settings, batch, in_process=in_process) if beside is None else beside.audit
    specs, confined, views = _served(settings, environ, sandbox, loaded, own)
    watchman, confined = _looked_after(confined, settings.state_dir)
    options = replace(downstream_options(settings, environ, confined), watchman=watchman)
    # A client ends its own commands.
    servers = DownstreamServers(specs, replace(options, call_timeout=_A_DAY) if own else options)
    servers.hooks.batch = batch
    overlay = overlay_for(settings, confined)
    pins = pins_of(settings, loaded.bundle)
    catalogue = LiveCatalogue(
        settings.servers,
        loaded.annotations,
        own or servers,
        lambda server, tools: pins.listed(server, "tools", tools),
        has_prefix=settings.server_in_names,
    )
    clock = SystemClock()
    ways = ways or AddedChannels()
    shared = beside or shared_parts(settings, loaded, environ, ways, audit, batch)
    shared.closing.append(servers.second_instances.close)
    reviewers = shared.reviewers
    if beside is not None:
        reviewers = reviewers_beside(reviewers, settings, clock, ways)
    command = command_argument(overlay, catalogue.names)
    facts = _led(
        resolver_for(settings, loaded, catalogue.lookup, environ, command, confined), watchman
    )
    client = AskedClient(settings.escalation_timeout_seconds)
    facts.declares_view = catalogue.declares_view
    recorder: Recorder = audit
    if shared.telemetry is not None:
        recorder = shared.telemetry.observing(audit, clock)
    session = Session.begin(
        World(
            tools=catalogue,
            facts=facts if own is None else own.telling(facts),
            client=client,
            questions=reviewers.questions,
            servers=own or servers,
            recorder=recorder if own is None else own.noting(recorder),
            clock=clock,
            ids=RandomIds(),
            aftermath=None if reviewers.engine is None else reviewers.engine.reviewer,
            lookout=watchman,
            containment=containment_of(
                settings,
                settings.session_dir,
                shared.timeline,
                is_looked_after=all(one.views is not None for one in confined.values())
                or (watchman is not None and watchman.is_complete),
            ),
            timeline=shared.timeline,
            views=views if own is None or views is None else own.hold_commands(servers, views),
            pins=pins,
            origins=shared.origins,
        ),
        SessionSettings(
            session=shared.session,
            policy=loaded.policy,
            candidate=candidate_of(settings),
            overlay=overlay,
            patience=patience(settings),
            home=real(settings.home),
            grant_ttl=grant_ttl(settings),
            grant_ending=grant_ending(settings),
            named_meta=settings.forward_meta,
            hosts=remote_hosts(settings),
            edits=own is None,
            results=Results(
                {one.name: one.results for one in settings.servers if one.results != ResultRules()},
                redacted,
            ),
        ),
        approvals=shared.approvals,
        breaker=shared.breaker,
        signed=shared.signed,
    )
    facts.origins = origins_for(settings, session.in_force, shared.origins)
    reviewers.questions.on_refused_later = partial(refuse_later, session.journal)
    return Proxy(
        reloading=Reloading(
            settings=settings,
            loaded=loaded,
            in_force=session.in_force,
            catalogue=catalogue,
            journal=session.journal,
            questions=reviewers.questions,
            grants=reviewers.grants,
            annotate_prompts=facts.annotate_prompts,
            name_reviewers=shared.named.follow,
            managed_only=not settings.policy_reload,
        ),
        holds=holds,
        views=views,
        pins=pins,
        telemetry=shared.telemetry if beside is None else None,
        watchman=watchman,
        timeline=shared.timeline if beside is None else None,
        settings=settings,
        loaded=loaded,
        audit=audit,
        shared=shared,
        servers=servers,
        catalogue=catalogue,
        reviewers=reviewers,
        overlay=overlay,
        client=client,
        questions=ServerQuestions(
            session=session,
            client=client,
            names={spec.name: spec.annotations for spec in settings.servers},
        ),
        operations=Operations(naming=catalogue.naming, lists=servers, session=session),
        calls=Calls(
            tools=catalogue,
            renamed=catalogue.naming.result if catalogue.naming.has_prefix else None,
            journal=session.journal,
            mediator=session.mediator,
            own=OwnTools(
                journal=session.journal,
                call=session.mediator.handle,
                planner=session.planner,
                budgets=shared.approvals.budgets,
                clock=clock,
                questions=reviewers.questions,
                ready=catalogue.ready,
                plans=settings.overlay.capabilities.profile is not None,
                composites=by_name(settings.overlay.composites),
            ),
            grants=reviewers.grants,
            show=partial(reviewers.mailbox.publish_grants, shared.session),
        ),
    )


def settled(
    settings: Settings, environ: Mapping[str, str], *, make: bool = True
) -> tuple[ServerSpec, ...]:
    """Return the servers as they are started: each with a working directory of its own.

    Args:
        settings: what the operator said.
        environ: ours.
        make: make the directories, or False if only say where they would be.
    """
    known = [with_own_place(spec, settings, make=make) for spec in settings.servers]
    machine = machine_of(settings, environ)
    specs = [without_launcher(spec, machine) for spec in known]
    return tuple(
        [with_directories(spec, settings.session_dir, Path.cwd(), make=make) for spec in specs]
    )


def downstream_options(
    settings: Settings, environ: Mapping[str, str], confined: "Mapping[str, Confinement]"
) -> DownstreamOptions:
    """Return the options of every server."""
    return DownstreamOptions(
        call_timeout=settings.escalation_timeout_seconds,
        max_message_bytes=settings.max_message_bytes,
        session_log=settings.session_log,
        environment=beyond_agents(environ, settings.workspace),
        confinements=confined,
        state=settings.session_dir,
        logins=settings.state_dir / LOGINS,
    )
