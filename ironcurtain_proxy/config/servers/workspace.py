"""Validation of the workspace, the directory that the agent may use freely."""

import os
from pathlib import Path

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.reading.operator_paths import real
from ironcurtain_proxy.config.reading.problems import shown
from ironcurtain_proxy.model.path import RealPath


def find_workspace(layers: Layers) -> RealPath | None:
    """The workspace; None: there is none, or it is invalid and reported."""
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
    """The agent's own path for the workspace: absolute, without a slash at its end."""
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
