"""Servers that a launcher such as `npx` would fetch: replaced by the installed program, if any.

A launcher needs a network and a place to write programs to, which no sandbox gives.
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.installed import (
    Installed,
    NotInstalled,
    SearchPlaces,
    find_installed,
    project_of,
)
from ironcurtain_proxy.shell.launchers import container_image, launched

_ENV: Final = "/usr/bin/env"


class Machine(Struct, frozen=True, kw_only=True):
    """The machine, for the search of installed programs."""

    state_dir: Path
    home: Path
    workspace: RealPath | None
    """The agent writes there, so nothing of it counts as installed."""
    environ: Mapping[str, str]
    """Ours, as `serve` finds it."""


def is_confined(spec: ServerSpec) -> bool:
    """Whether a server is meant to run in a sandbox, where there is one.

    One that fetches its own program needs what a sandbox denies; it is confined only if the
    operator wrote its sandbox down.

    Args:
        spec: as `without_launcher` gives it.
    """
    if spec.sandbox is not None:
        return spec.sandbox is not False
    if container_image(spec.command, spec.args) is not None:
        return False
    wanted = launched(spec.command, spec.args)
    # A project's code may lie in the workspace: what the agent can write never runs unconfined.
    return wanted is None or wanted.is_own_code


def without_launcher(spec: ServerSpec, machine: Machine) -> ServerSpec:
    """A server with its installed program in place of a launcher, so that it can be confined.

    A launcher that stays does not start in the workspace, where it would take a program that the
    agent has written for its own.

    Args:
        spec: as configured. If it is trusted, or runs no launcher, it stays as it is.
        machine: where what it would fetch may be installed.
    """
    wanted = launched(spec.command, spec.args)
    found = look_up(spec, machine)
    if wanted is None:
        return spec
    if not isinstance(found, Installed):
        return spec if wanted.is_own_code else replace(spec, cwd=_unexposed(spec.cwd, machine))
    if wanted.chdir is None:
        return replace(spec, command=found.program, args=wanted.args)
    # Its `cwd` would be writable.
    return replace(spec, command=_ENV, args=("-C", wanted.chdir, found.program, *wanted.args))


def _unexposed(cwd: str | None, machine: Machine) -> str | None:
    """The directory of a launcher; None, which is one of the server's own: it was the agent's."""
    if cwd is None or machine.workspace is None:
        return cwd
    here = RealPath.from_text(os.path.realpath(cwd))
    return None if here.is_within(machine.workspace) else cwd


def look_up(spec: ServerSpec, machine: Machine) -> Installed | NotInstalled | None:
    """The installed program of a server's launcher; None: it is not needed."""
    wanted = launched(spec.command, spec.args)
    if wanted is None or spec.sandbox is False:
        return None
    variables = {**machine.environ, **spec.env}
    # Its own directory is made in the session's, where nothing is installed.
    directory = machine.state_dir if spec.cwd is None else Path(spec.cwd)
    if wanted.project is not None and project_of(directory / wanted.project) is None:
        return None
    places = SearchPlaces(
        directory=directory,
        home=Path(variables.get("HOME") or machine.home),
        environ=variables,
        exposed=() if machine.workspace is None else (machine.workspace,),
    )
    return find_installed(wanted, places)


def fetch_of(spec: ServerSpec) -> tuple[str, ...]:
    """The command that installs what a server's launcher would fetch; empty: none would help."""
    wanted = launched(spec.command, spec.args)
    if wanted is None or not wanted.is_replaceable:
        return ()
    if wanted.project is not None:
        return (*wanted.fetch[:-1], str(Path(spec.cwd or "/", wanted.project)))
    return wanted.fetch


def installation_of(spec: ServerSpec) -> str:
    """The command that installs the package of a server's launcher, and any further steps."""
    wanted = launched(spec.command, spec.args)
    if wanted is None:
        return ""
    if wanted.project is not None and wanted.is_replaceable:
        return shlex.join(fetch_of(spec))
    if wanted.is_replaceable:
        return wanted.install
    return f"{wanted.install} (and make the program that it installs the server's command)"


def why_unconfined(spec: ServerSpec, machine: Machine) -> str:
    """The reason why a server is not confined, and the command that helps, if there is one."""
    image = container_image(spec.command, spec.args)
    if image is not None:
        return f"{spec.command} starts a container of {image}, which no sandbox here can hold"
    found = look_up(spec, machine)
    but = f" ({found.why})" if isinstance(found, NotInstalled) and found.why else ""
    what = f"{spec.command} fetches its package, which no sandbox lets it{but}"
    return f"{what}: run {installation_of(spec)}"
