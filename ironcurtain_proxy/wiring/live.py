"""Asking the servers which tools they have, for `check --live`."""

import os

import anyio

from ironcurtain_proxy.config.policy.lint_annotations import LiveTools
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.downstream.working_directory import tidy
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.wiring.confinement import confinements, find_sandbox
from ironcurtain_proxy.wiring.operator_log import say
from ironcurtain_proxy.wiring.proxy import downstream_options, settled, state_of


def list_live_tools(settings: Settings, policy: Policy) -> LiveTools:
    """Start the servers, list their tools, and stop them again."""
    specs = settled(settings, os.environ)
    sandbox = find_sandbox(settings, os.environ, say)
    confined = confinements(sandbox, specs, settings, policy)
    servers = DownstreamServers(specs, downstream_options(settings, os.environ, confined))
    servers.start_processes()
    try:
        return anyio.run(_list_tools, servers)
    finally:
        tidy(state_of(settings))


async def _list_tools(servers: DownstreamServers) -> LiveTools:
    async with anyio.create_task_group() as tasks:
        await tasks.start(servers.run)
        found = await servers.tools()
        status = servers.status()
        tasks.cancel_scope.cancel()
    return LiveTools(
        definitions=tuple(tool for tools in found.values() for tool in tools),
        answered=frozenset(name for name, server in status.items() if server.state == "ready"),
        silent={name: server.error for name, server in status.items() if server.error},
    )
