"""The tools, prompts and resources of running servers, for `check`, `annotate` and `init`."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio

from ironcurtain_proxy.config.policy.lint_annotations import LiveTools
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.working_directory import tidy
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.own_process.operator_log import say
from ironcurtain_proxy.sessions.directories import SessionLock, remove_session
from ironcurtain_proxy.wiring.confinement import confinements, find_sandbox
from ironcurtain_proxy.wiring.proxy import downstream_options, settled


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
    options = downstream_options(settings, os.environ, confined)
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
