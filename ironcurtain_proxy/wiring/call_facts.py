"""The resolver of facts, joined from the settings."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.redaction import secrets_in
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.environment import child_environment
from ironcurtain_proxy.downstream.working_directory import settle
from ironcurtain_proxy.facts.catalogue import CataloguedTool
from ironcurtain_proxy.facts.commands import CommandContext
from ironcurtain_proxy.facts.facts import FactReader
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.mounts import MountTable
from ironcurtain_proxy.facts.operations import OperationSource
from ironcurtain_proxy.facts.paths import PathReader
from ironcurtain_proxy.facts.resolver import OriginFinder, Resolver, ToolSource
from ironcurtain_proxy.facts.spelling import Speller
from ironcurtain_proxy.mailbox.user_message import MessageSource
from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.family import DiskLookups
from ironcurtain_proxy.model.origin import Target
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.policy import PolicyInForce
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.origins.book import OriginBook
from ironcurtain_proxy.origins.keys import Spelling
from ironcurtain_proxy.own_process.clocks import SystemClock
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.replaced_launchers import without_launcher
from ironcurtain_proxy.wiring.confinement import machine_of

_LOGGER: Final = logging.getLogger(__name__)


def _say_left_out(tool: str, left_out: tuple[str, ...]) -> None:
    """Tell the operator what of a tool's input schema its calls are not held to."""
    _LOGGER.warning("%s: calls are not held to parts of its input schema: %s", tool,
                    "; ".join([visible(one) for one in left_out[:5]]))  # fmt: skip


def _sought(command: ParsedCommand, place: Place) -> DiskLookups:
    # The tables of families, which only tools that run commands need.
    from ironcurtain_proxy.shell.families import sought  # noqa: PLC0415

    return sought(command, place)


def resolver_for(
    settings: Settings,
    loaded: LoadedPolicy,
    lookup: Callable[[str, str], CataloguedTool | None],
    environ: Mapping[str, str],
    command: Callable[[str, str], str | None],
    confined: Mapping[str, Confinement],
) -> Resolver:
    """The resolver of facts, for calls of agents and for explained calls.

    Args:
        settings: the operator's settings.
        loaded: the policy.
        lookup: by the operator's server name and the server's own tool name, what is offered.
        environ: ours.
        command: by the same, the argument that holds a shell command.
        confined: the servers' confinements.
    """
    private = {name: one.private for name, one in confined.items() if one.private is not None}
    remotes = {spec.name: GitRemotes(child_environment(spec, environ)) for spec in settings.servers}
    state, here = settings.session_dir, Path.cwd()
    machine = machine_of(settings, environ)
    directories = {
        spec.name: settle(without_launcher(spec, machine), state, here, make=False).cwd
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
    resolver.secrets = lambda server: secrets_in if server in sought else None
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

    async def find(request: AccessRequest) -> tuple[Target, ...]:
        candidate = in_force.candidate
        asks = always or in_force.policy.asks_who_named
        if asks or (candidate is not None and candidate.asks_who_named):
            return await book.targets(request)
        return ()

    return find
