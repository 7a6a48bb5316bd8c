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
from ironcurtain_proxy.facts.resolver import Resolver, ToolSource
from ironcurtain_proxy.facts.spelling import Speller
from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.family import DiskLookups
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.question import visible
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
    return resolver
