"""The overlay and the resolver of facts, joined from the settings and the sandboxes.

Hooks, rehearsals and the presets of `init` have the servers that stand for a client's own tools
from here, so that they judge alike.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.approval.capabilities import detect_isolation, effective_profile
from ironcurtain_proxy.approval.overlay import OverlayRules, is_gate_on
from ironcurtain_proxy.audit.redaction import secrets_in
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.environment import child_environment
from ironcurtain_proxy.downstream.starting import with_directories
from ironcurtain_proxy.facts.arguments import OperationSource, Speller
from ironcurtain_proxy.facts.commands import CommandContext
from ironcurtain_proxy.facts.facts import FactReader
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.live_catalogue import CataloguedTool
from ironcurtain_proxy.facts.paths import MountTable, PathReader
from ironcurtain_proxy.facts.resolver import OriginFinder, Resolver, ToolSource
from ironcurtain_proxy.mailbox.session_state import MessageSource
from ironcurtain_proxy.mediation.judge import Overlay
from ironcurtain_proxy.model.annotation import Isolation
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.policy import PolicyInForce
from ironcurtain_proxy.model.request import (
    AccessRequest,
    CommandPlace,
    DiskLookups,
    ParsedCommand,
    Target,
)
from ironcurtain_proxy.origins.book import OriginBook
from ironcurtain_proxy.origins.keys import Spelling
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.sandbox.installed import beyond_agents, without_launcher
from ironcurtain_proxy.wiring.confinement import machine_of

if TYPE_CHECKING:
    from ironcurtain_proxy.sandbox.launch import Confinement

_LOGGER: Final = logging.getLogger(__name__)


def _say_left_out(tool: str, left_out: tuple[str, ...]) -> None:
    """Tell the operator what of a tool's input schema its calls are not held to."""
    _LOGGER.warning("%s: calls are not held to parts of its input schema: %s", tool,
                    "; ".join([visible(one) for one in left_out[:5]]))  # fmt: skip


def _sought(command: ParsedCommand, place: CommandPlace) -> DiskLookups:
    # The tables of families, which only tools that run commands need.
    from ironcurtain_proxy.shell.families import sought  # noqa: PLC0415

    return sought(command, place)


def resolver_for(
    settings: Settings,
    loaded: LoadedPolicy,
    lookup: Callable[[str, str], CataloguedTool | None],
    environ: Mapping[str, str],
    command: Callable[[str, str], str | None] | None,
    confined: "Mapping[str, Confinement]",
) -> Resolver:
    """Return the resolver of facts, for calls of agents and for explained calls.

    Args:
        settings: the operator's settings.
        loaded: the policy.
        lookup: by the operator's server name and the server's own tool name, what is offered.
        environ: ours.
        command: by the same, the argument that holds a shell command.
        confined: the servers' confinements.
    """
    private = {name: one.private for name, one in confined.items() if one.private is not None}
    remotes = {
        spec.name: GitRemotes(beyond_agents(child_environment(spec, environ), settings.workspace))
        for spec in settings.servers
    }
    state, here = settings.session_dir, Path.cwd()
    machine = machine_of(settings, environ)
    directories = {
        spec.name: with_directories(without_launcher(spec, machine), state, here, make=False).cwd
        for spec in settings.servers
    }
    speller = Speller(
        home=str(settings.home),
        workspace=None if settings.workspace is None else str(settings.workspace),
        cwd=None,
        alias=settings.container_workspace_dir,
    )
    sought = {spec.name for spec in settings.servers if spec.ask_about_secrets}
    resolver = Resolver(
        ToolSource(
            lookup=lookup,
            command_argument=command,
            remotes=remotes.__getitem__,
            grounds=CommandContext(
                workspace=None if settings.workspace is None else str(settings.workspace),
                home=str(settings.home),
                directory=directories.get,
                sought=_sought,
                remotes=remotes.get,
                own={
                    spec.name: directory
                    for spec in settings.servers
                    if (directory := directories[spec.name]) is not None
                    and directory.startswith(f"{state}/")
                },
                own_tmp={
                    name: (
                        *(() if one.private is None else one.private.places),
                        *[folder.place for folder in one.folders],
                    )
                    for name, one in confined.items()
                },
                shown={name: one.shown for name, one in private.items()},
            ),
            left_out=_say_left_out,
            asks_about_unknown=loaded.policy.unknown_tools == "ask",
            trusted=loaded.policy.trusted_servers,
            operations=OperationSource(
                prompts=loaded.prompts,
                policy_server={spec.name: spec.annotations for spec in settings.servers}.get,
            ),
        ),
        FactReader(PathReader(speller), workspace=settings.workspace),
        MountTable(),
    )
    resolver.secrets = dict.fromkeys(sought, secrets_in)
    unheard = origin_book(settings, lambda: None, SystemClock())
    resolver.origins = origins_for(settings, PolicyInForce(policy=loaded.policy), unheard)
    return resolver


def origin_book(settings: Settings, words: MessageSource, clock: Clock) -> OriginBook:
    """Return the book of who named what in one session.

    Args:
        settings: what the operator said.
        words: the user's last message.
        clock: the time.
    """
    records = [one.partition(":") for one in settings.targets.own]
    own: dict[tuple[str, str], frozenset[str]] = {}
    for tool, _, member in records:
        server, _, name = tool.partition("/")
        before = own.get((server, name))
        # Without a member the whole result is the user's own, whatever another entry says.
        whole = not member or before == frozenset()
        own[server, name] = frozenset() if whole else frozenset({member}).union(before or ())
    spelling = Spelling(home=str(settings.home), workspace=settings.workspace)
    return OriginBook(spelling, own, words, clock.now)


def origins_for(settings: Settings, in_force: PolicyInForce, book: OriginBook) -> OriginFinder:
    """Return what finds who named targets; it looks only where a rule or the operator asks."""
    always = bool(settings.targets.ask_when_named_by)

    def find(request: AccessRequest) -> Awaitable[tuple[Target, ...]] | None:
        candidate, asks = in_force.candidate, always or in_force.policy.asks_who_named
        if asks or (candidate is not None and candidate.asks_who_named):
            return book.targets(request)
        return None

    return find


# --- overlay


def overlay_for(settings: Settings, confined: Collection[str]) -> Overlay:
    """Profile and approval mode, and what the operator declared of tools.

    Where neither of the two asks anything, they are off. The declarations count all the same: they
    say which argument holds a shell command, which reviewers and the engine need to know.

    Args:
        settings: what the operator said.
        confined: the servers that run in a sandbox.
    """
    said = settings.overlay
    rules = None
    if said.capabilities.profile is not None or is_gate_on(said.interceptor):
        rules = OverlayRules(
            interceptor=said.interceptor,
            profile=said.capabilities.profile,
            isolation=isolation_of(settings, confined),
        )
    return Overlay(
        rules=rules,
        declarations=said.capabilities.declarations,
        by_argument=said.capabilities.by_argument,
        ask_when_named_by=frozenset(settings.targets.ask_when_named_by),
    )


def isolation_of(settings: Settings, confined: Collection[str]) -> Isolation:
    """Return the isolation of the session.

    The declared one, else by whether every server is confined.

    A server that has a sandbox is never started without it.
    """
    said = settings.overlay.capabilities
    every = bool(settings.servers) and all(spec.name in confined for spec in settings.servers)
    return detect_isolation(
        said.isolation_flag, said.isolation_manifest, every_server_confined=every
    )


def say_what_holds(overlay: Overlay, say: Callable[[str], None]) -> None:
    """Tell the operator once if another profile than the chosen one is used."""
    rules = overlay.rules
    if rules is not None and rules.profile is not None:
        _, sentence = effective_profile(rules.profile, rules.isolation)
        if sentence is not None:
            say(f"warning: {sentence}")


def command_argument(
    overlay: Overlay, names: Callable[[str, str], frozenset[str]]
) -> Callable[[str, str], str | None] | None:
    """Return a finder of the argument that holds a tool's shell command, as declared.

    It is None where nothing is declared.

    Args:
        overlay: what the operator declared.
        names: what a tool may be called.
    """

    def find(server: str, tool: str) -> str | None:
        found = overlay.declared(names(server, tool))
        return None if found is None else found.command_argument

    return find if overlay.declarations else None
