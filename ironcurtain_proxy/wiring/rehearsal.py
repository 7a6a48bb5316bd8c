"""The rehearsal of calls for `explain`, joined from the parts of `serve`.

A call is decided without servers, agent or record, by the same gathering of facts, judgement and
sandboxes. Only the annotations of the servers' tools are known here, neither their hints nor their
current schemas.

`containment_report` finds the servers whose calls containment can settle without a start. The
conditions are those of a call. Two of them stay open, because only a call shows them: its own
effect, and the limits of the running process.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.approval.containment import (
    ContainmentInput,
    hosts_of,
    programs_outside,
    why_asked,
    why_open,
    written_outside,
)
from ironcurtain_proxy.approval.overlay import tool_names
from ironcurtain_proxy.config.policy.lint import LiveTools
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.decision.authorizer import is_asked_to_read, rule_for_reviewers
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.starting import tidy
from ironcurtain_proxy.errors import ConfigurationError, DownstreamError
from ironcurtain_proxy.facts.live_catalogue import CataloguedTool
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.mediation.judge import NamedTool, Overlay, judge
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.server import SandboxRestrictions, ServerSpec
from ironcurtain_proxy.model.values import Arguments, Json, RealPath
from ironcurtain_proxy.own_process import say
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.sandbox.second_instance import opening_for, with_reads
from ironcurtain_proxy.sessions import SessionLock, remove_session
from ironcurtain_proxy.snapshots.opening import beyond_bounds
from ironcurtain_proxy.wiring.call_facts import overlay_for, resolver_for
from ironcurtain_proxy.wiring.confinement import find_sandbox, keeps_own_place
from ironcurtain_proxy.wiring.confining import confinements
from ironcurtain_proxy.wiring.containment import limits_of
from ironcurtain_proxy.wiring.proxy import downstream_options, settled

# --- the rehearsal of one call


class RehearsedCall(Struct, frozen=True):
    """The result for a call before any reviewer is asked."""

    gathered: Gathered
    judged: Judgement
    blocked: Ground | None
    """The reason why no reviewer is asked about an escalated call: no approval can open the sandbox
    for it."""
    opened: tuple[str, ...] = ()
    """The access that a second instance of the server would get once the call is approved."""
    uncontained: str | None = None
    """The reason why containment leaves the call to reviewers; empty: containment settles the call;
    None: containment is off."""

    @property
    def decision(self) -> Decision:
        """The decision that the agent meets."""
        return self.judged.decision if self.blocked is None else Deny(self.blocked)


FactsOf: TypeAlias = Callable[
    [Callable[[str, str], CataloguedTool | None], Callable[[str, str], str | None]], Resolver
]
"""Makes the gatherer of facts from the offered tools and the argument that holds a shell command.
Both are looked up by the operator's server name and the server's own tool name."""


class Rehearsal(Struct, frozen=True, kw_only=True):
    """Judges calls as `serve` would judge them on this machine."""

    policy: Policy
    overlay: Overlay
    servers: Mapping[str, str]
    """The server names used in annotations, by the operator's server name."""
    has_prefix: bool
    """Whether the agent's names of tools carry their server's."""
    annotations: Mapping[tuple[str, str], ToolAnnotation]
    """Annotations by that name and the tool's name."""
    opening: Callable[[str, Facts], SandboxOpening | str | None]
    """The access that a call needs beyond its server's sandbox, by the operator's server name; a
    text: what no approval can grant."""
    uncontained: Callable[[str, Facts, Judgement], str | None]
    """Gives the reason why containment leaves a call to reviewers; empty: containment settles the
    call, or None if containment is off."""
    facts_of: FactsOf

    async def of_call(
        self, server: str, tool: str, arguments: Arguments, *, is_unique: bool
    ) -> RehearsedCall:
        """Return the decision that would be made on a call.

        Args:
            server: the operator's name of the server.
            tool: the server's name of the tool.
            arguments: as the agent would send them.
            is_unique: whether the proxy knows that no other server has a tool of this name.
        """
        names = tool_names(server, tool, is_unique=is_unique)
        declared = self.overlay.declared(names)
        command = None if declared is None else declared.command_argument
        facts = self.facts_of(self._lookup, lambda _server, _tool: command)
        call = Operation(
            request_id=RequestId("explained"),
            exposed_name=self._exposed(server, tool),
            server=server,
            tool=tool,
            arguments=arguments,
            params={},
        )
        gathered = await facts.gather(call)
        judged = judge(gathered, self.policy, self.overlay, NamedTool(server, tool, names))
        return self._outcome(server, gathered, judged)

    async def of_operation(self, operation: Operation) -> RehearsedCall:
        """Return the decision that would be made on an operation that is no tool call.

        A view is taken for declared: which tools declare one is known to the running server alone.
        """
        facts = self.facts_of(self._lookup, lambda _server, _tool: None)
        facts.declares_view = lambda _server, _uri: True
        gathered = await facts.gather(operation)
        named = NamedTool(operation.server, operation.tool, frozenset())
        judged = judge(gathered, self.policy, self.overlay, named, operation.method)
        return self._outcome(operation.server, gathered, judged)

    def _outcome(self, server: str, gathered: Gathered, judged: Judgement) -> RehearsedCall:
        if not isinstance(gathered, Facts) or not isinstance(judged.decision, Escalate):
            return RehearsedCall(gathered, judged, None)
        opening = self.opening(server, gathered)
        return RehearsedCall(
            gathered,
            judged,
            blocked=Ground("sandbox", opening) if isinstance(opening, str) else None,
            opened=opening.words() if isinstance(opening, SandboxOpening) else (),
            uncontained=self.uncontained(server, gathered, judged),
        )

    def _exposed(self, server: str, tool: str) -> str:
        return f"{server}__{tool}" if self.has_prefix else tool

    def _lookup(self, server: str, tool: str) -> CataloguedTool:
        """Return the tool as its annotation describes it, as if its server offered it."""
        known_as = self.servers[server]
        annotation = self.annotations.get((known_as, tool))
        described = CataloguedTool.described(server, known_as, tool, annotation)
        return replace(described, exposed_name=self._exposed(server, tool))


def list_live_tools(
    settings: Settings,
    policy: Policy,
    patience: float | None = None,
    tell: Callable[[str], None] = say,
) -> LiveTools:
    """Start the servers, list what they offer, and stop them again.

    The files that this leaves in the state directory are removed, unless a server did not answer:
    then the session log holds its words.

    Args:
        settings: which servers.
        policy: what confines them.
        patience: seconds for all of them together; None: as long as `serve` waits.
        tell: is told what runs unconfined.
    """
    directory = settings.session_dir
    is_new = not directory.exists()
    hold = SessionLock.of(directory)
    try:
        found = _live_tools(settings, policy, patience, tell)
        if hold is not None and is_new and not found.silent:
            remove_session(directory, hold)
        return found
    finally:
        tidy(directory)
        if hold is not None:
            hold.release()


def _live_tools(
    settings: Settings, policy: Policy, patience: float | None, tell: Callable[[str], None]
) -> LiveTools:
    specs = settled(settings, os.environ)
    sandbox = find_sandbox(settings, os.environ, tell)
    confined = confinements(sandbox, specs, settings, policy)
    # The command that lists says itself why a server did not answer, and what helps.
    options = replace(downstream_options(settings, os.environ, confined), failures=logging.DEBUG)
    if patience is not None:
        options = replace(options, start_deadline=patience)
    servers = DownstreamServers(specs, options)
    servers.start_processes()
    return anyio.run(_list_tools, servers)


async def _list_tools(servers: DownstreamServers) -> LiveTools:
    async with anyio.create_task_group() as tasks:
        await tasks.start(servers.run)
        found = await servers.tools()
        status = servers.status()
        answered = [name for name, server in status.items() if server.state == "ready"]
        prompts: dict[str, tuple[Mapping[str, Json], ...]] = {}
        resources: dict[str, tuple[str, ...]] = {}
        for name in answered:
            with suppress(DownstreamError):
                prompts[name] = tuple(await servers.entries(name, *_PROMPTS))
            with suppress(DownstreamError):
                resources[name] = await _uris(servers, name)
        tasks.cancel_scope.cancel()
    return LiveTools(
        definitions=tuple(tool for tools in found.values() for tool in tools),
        answered=frozenset(answered),
        silent={name: server.error for name, server in status.items() if server.error},
        hosts=servers.hosts_refused(),
        prompts=prompts,
        resources=resources,
    )


_PROMPTS: Final = ("prompts/list", ("prompts", "name"))
_RESOURCES: Final = (
    ("resources/list", ("resources", "uri")),
    ("resources/templates/list", ("resourceTemplates", "uriTemplate")),
)


async def _uris(servers: DownstreamServers, name: str) -> tuple[str, ...]:
    found: list[str] = []
    for method, keys in _RESOURCES:
        found += [str(one[keys[1]]) for one in await servers.entries(name, method, keys)]
    return tuple(found)


def rehearsal_for(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], sandbox: Available | None
) -> Rehearsal:
    """Join the parts. Starts and writes nothing.

    Args:
        settings: what the operator said.
        loaded: the policy.
        environ: ours.
        sandbox: this machine's; see `find_sandbox`.

    Raises:
        ConfigurationError: a server's sandbox cannot be as it is configured.
    """
    specs = settled(settings, environ, make=False)
    confined = confinements(sandbox, specs, settings, loaded.policy, make=False)

    def facts_of(
        lookup: Callable[[str, str], CataloguedTool | None],
        command: Callable[[str, str], str | None],
    ) -> Resolver:
        return resolver_for(settings, loaded, lookup, environ, command, confined)

    by_name = {spec.name: spec for spec in settings.servers}

    def opening(server: str, facts: Facts) -> SandboxOpening | str | None:
        if server not in confined:
            return None
        hosts, home = hosts_of(facts), str(settings.home)
        profile, paths = confined[server].profile, written_outside(facts)
        found = opening_for(by_name[server], profile, facts.request, hosts, home, paths)
        return with_reads(found, by_name[server], profile, programs_outside(facts))

    def uncontained(server: str, facts: Facts, judged: Judgement) -> str | None:
        if not settings.containment.undo:
            return None
        considered = ContainmentInput(
            facts=facts,
            judged=judged,
            workspace=settings.workspace,
            restrictions=configured_restrictions(by_name[server], confined.get(server)),
            for_reviewers=rule_for_reviewers(facts.request, loaded.policy),
            asked_to_read=is_asked_to_read(facts.request, loaded.policy),
            tried="",
        )
        return why_asked(considered) or ""

    return Rehearsal(
        policy=loaded.policy,
        overlay=overlay_for(settings, confined),
        servers={spec.name: spec.annotations for spec in settings.servers},
        has_prefix=settings.server_in_names or len(settings.servers) > 1,
        annotations=loaded.annotations,
        opening=opening,
        uncontained=uncontained,
        facts_of=facts_of,
    )


def configured_restrictions(
    spec: ServerSpec, confinement: Confinement | None
) -> SandboxRestrictions | None:
    """Return the limits of a server's process as configured; no process is examined."""
    if confinement is None:
        return None
    writable = tuple(map(RealPath.from_text, confinement.profile.allow_write))
    return SandboxRestrictions(
        writable=writable,
        temporary=writable[0] if spec.cwd is None else None,
        is_offline=not confinement.profile.has_network,
    )


# --- which servers can be contained

_NO_WORKSPACE: Final = "there is no workspace"


class UncontainedServers(Struct, frozen=True, kw_only=True):
    """Servers whose calls containment never settles, whatever they do."""

    servers: tuple[str, ...]
    """The servers; empty: all of them."""
    why: str
    remedy: str
    """What helps, or empty where nothing is wrong."""


class ContainmentReport(Struct, frozen=True, kw_only=True):
    """The effect of containment on the servers of a configuration."""

    held: tuple[str, ...]
    """Servers whose calls run unasked where they can be taken back."""
    asked: tuple[UncontainedServers, ...]

    def lines(self) -> Iterator[str]:
        """Yield the effect in lines for people."""
        if self.held:
            yield f"unasked where they can be taken back: calls of {', '.join(self.held)}"
        for one in self.asked:
            whose = f"calls of {', '.join(one.servers)}" if one.servers else "all calls"
            yield f"asked about where no rule allows them: {whose}, because {one.why}"

    def as_json(self) -> Json:
        """Return the effect as JSON."""
        return {
            "held": [*self.held],
            "asked": [
                {"servers": [*one.servers], "why": one.why, "remedy": one.remedy}
                for one in self.asked
            ],
        }


def containment_report(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], sandbox: Available | None
) -> ContainmentReport | None:
    """Return the effect of containment.

    It is None if it is off, or a server's sandbox is not possible.

    Args:
        settings: the operator's settings.
        loaded: the policy.
        environ: the proxy's environment.
        sandbox: this machine's.
    """
    if not settings.containment.undo:
        return None
    if settings.workspace is None:
        return _nothing(_NO_WORKSPACE, "write allowedDirectory into the configuration")
    limits = limits_of(settings)
    beyond = beyond_bounds(
        str(settings.workspace),
        max_files=limits.max_files,
        max_bytes=limits.max_bytes,
        caches=limits.caches,
        state=str(settings.state_dir),
    )
    if beyond is not None:
        return _nothing(
            f"they could not be taken back: {beyond}",
            "name what need not be held in containment.caches, or raise containment.max_files "
            "and containment.max_bytes",
        )
    specs = settled(settings, environ, make=False)
    try:
        confined = confinements(sandbox, specs, settings, loaded.policy, make=False)
    except ConfigurationError:
        return None  # said as an error
    held: list[str] = []
    asked: dict[tuple[str, str], list[str]] = {}
    for spec in settings.servers:
        # No sandbox of this machine holds a remote server, and some servers have to write
        # elsewhere.
        if spec.remote is not None or keeps_own_place(spec):
            continue
        restrictions = configured_restrictions(spec, confined.get(spec.name))
        why = why_open(restrictions, settings.workspace)
        if why is None:
            held.append(spec.name)
        else:
            asked.setdefault((why, _remedy(restrictions, settings.workspace)), []).append(spec.name)
    return ContainmentReport(
        held=tuple(held),
        asked=tuple(
            [
                UncontainedServers(servers=tuple(names), why=why, remedy=remedy)
                for (why, remedy), names in asked.items()
            ]
        ),
    )


def _nothing(why: str, remedy: str) -> ContainmentReport:
    return ContainmentReport(
        held=(), asked=(UncontainedServers(servers=(), why=why, remedy=remedy),)
    )


def _remedy(restrictions: SandboxRestrictions | None, workspace: RealPath) -> str:
    if restrictions is None:
        return 'install what `doctor` names, and remove "sandbox": false where its entry has it'
    own = (workspace, restrictions.temporary or workspace)
    wide = ", ".join([str(to) for to in restrictions.writable if not any(map(to.is_within, own))])
    what = "a rule of yours, or sandbox.filesystem.allowWrite or cwd in its entry"
    # Its hosts were opened on purpose, by `init` for servers that work there.
    return f"take back what opens {wide}: {what}" if wide and restrictions.is_offline else ""
