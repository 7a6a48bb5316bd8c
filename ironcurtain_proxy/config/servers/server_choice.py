"""The choice of the servers to run, of their credentials, and of the workspace."""

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.forms import NameText, VariableName, fill
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.reading.operator_paths import real
from ironcurtain_proxy.config.reading.problems import Report, nearest, shown
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.servers.servers_file import (
    WORKSPACE,
    ServersReader,
    parse_servers,
    read_servers_file,
)
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.server import ServerSpec

SERVERS_NAME: Final = "mcp-servers.json"


class ServerChoice(Struct, frozen=True):
    """The servers to run."""

    servers: tuple[ServerSpec, ...]
    file: Path | None = None
    """The servers file, if the servers were read from one."""
    names: tuple[str, ...] = ()
    """All configured names, including servers that do not run."""


def choose_servers(
    layers: Layers, state_dir: Path, report: Report, workspace: RealPath | None = None
) -> ServerChoice:
    """Return the servers after `serverFilter`, each with its own credentials.

    Environment over `mcpServers` or `mcpServersFile` over `~/.ironcurtain/mcp-servers.json`.
    """
    # An unreadable file may name other servers than the default file.
    unread = layers.file_is_unread and "mcpServers" not in layers.environment.spots
    found = ServerChoice(()) if unread else _find(layers, state_dir, report)
    names = [spec.name for spec in found.servers]
    wanted = layers.read("serverFilter", lambda spot: _wanted(spot, names), None)
    credentials = layers.read("serverCredentials", lambda spot: _credentials(spot, names), {})
    if layers.config_file is not None and "serverCredentials" in layers.file.spots:
        _warn_if_others_can_read(layers.config_file, layers.file.spots["serverCredentials"])
    servers = [
        replace(_placed(spec, workspace, report), credentials=credentials.get(spec.name, {}))
        for spec in found.servers
        if wanted is None or spec.name in wanted
    ]
    return ServerChoice(tuple(servers), found.file, tuple(names))


def _placed(spec: ServerSpec, workspace: RealPath | None, report: Report) -> ServerSpec:
    """Put a server into the workspace if its entry says so."""
    if spec.cwd != WORKSPACE:
        return spec
    if workspace is None:
        source = f"server {shown(spec.name)}"
        report.warning(source, (), f"its cwd is {WORKSPACE}, and there is no workspace")
    return replace(spec, cwd=None if workspace is None else str(workspace))


def _find(layers: Layers, state_dir: Path, report: Report) -> ServerChoice:
    home = layers.home
    variable = layers.environment.spots.get("mcpServers")
    inline = layers.file.spots.get("mcpServers")
    named = layers.file.spots.get("mcpServersFile")
    if inline is not None and named is not None:
        named.error("must not stand beside mcpServers")
    if variable is not None:
        return ServerChoice(parse_servers(variable, home))
    if inline is not None:
        return ServerChoice(ServersReader(home, foreign=True).servers(inline))
    file = layers.path("mcpServersFile")
    if file is None:
        file = state_dir / SERVERS_NAME
        if not is_there(file):
            # `wiring.readiness` reports this once, wherever somebody has to know.
            return ServerChoice(())
    return ServerChoice(read_servers_file(file, home, report), file)


def _wanted(spot: Spot, names: list[str]) -> frozenset[str]:
    for item in spot.items():
        name = item.name()
        if name and name not in names:
            item.error(f"there is no server {shown(name)}", nearest(name, names))
    return frozenset(spot.texts())


def _credentials(spot: Spot, names: list[str]) -> Mapping[str, Mapping[str, str]]:
    found = fill(spot, dict[str, dict[VariableName, NameText]])
    for server in found:
        if server not in names:
            message = f"there is no server {shown(server)}: not used"
            spot.at(server).warning(message, nearest(server, names))
    return found


def _warn_if_others_can_read(path: Path, spot: Spot) -> None:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        spot.warning("others can read these secrets: chmod 600 the file")


def find_workspace(layers: Layers) -> RealPath | None:
    """Return the workspace, or None if there is none, or it is invalid and reported."""
    spot = layers.spot("allowedDirectory")
    path = None if spot is None else layers.as_path(spot)
    if spot is None or path is None:
        return None
    if not os.path.isdir(path):  # noqa: PTH112  the other one raises where we may not look
        spot.error(f"{shown(str(path))} is not a directory: create it, or name another")
        return None
    return _checked(path, layers.home, spot)


def _checked(path: Path, home_path: Path, spot: Spot) -> RealPath | None:
    workspace, home = real(path), real(home_path)
    if not workspace.parts:
        spot.error("must not be the root of the file system")
        return None
    if workspace == home:
        spot.error("must not be the home directory: name a directory inside it")
        return None
    if home.is_within(workspace):
        spot.warning("holds the home directory: the agent may change nearly all of it")
    return workspace


def container_workspace(layers: Layers) -> str | None:
    """Return the agent's own path for the workspace: absolute, without a slash at its end."""
    spot = layers.spot("containerWorkspaceDir")
    if spot is None:
        return None
    text = spot.name()
    trimmed = text.rstrip("/")
    if not text.startswith("/") or not trimmed:
        spot.error("must be an absolute path other than /")
        return None
    if layers.spot("allowedDirectory") is None:
        spot.warning("has no use without a workspace (allowedDirectory)")
    return trimmed
