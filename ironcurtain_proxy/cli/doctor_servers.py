"""Whether the configured servers can be started as they are configured. Not a command itself."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.doctor_checks import Check, State
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.environment import child_environment
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.installed import Installed, NotInstalled
from ironcurtain_proxy.sandbox.replaced_launchers import installation_of, look_up
from ironcurtain_proxy.wiring.confinement import machine_of

_REMEDIES: Final[Mapping[str, str]] = {
    "npx": "sudo apt-get install -y nodejs npm",
    "node": "sudo apt-get install -y nodejs",
    "uvx": "curl -LsSf https://astral.sh/uv/install.sh | sh",
    "uv": "curl -LsSf https://astral.sh/uv/install.sh | sh",
    "pipx": "sudo apt-get install -y pipx",
    "docker": "sudo apt-get install -y docker.io",
    "podman": "sudo apt-get install -y podman",
}
_OTHER_REMEDY: Final = "install it, or give its full path as the server's command"


def servers(settings: Settings, environ: Mapping[str, str], trouble: State) -> Iterator[Check]:
    """One check for each server; `trouble` is the state of one that cannot be confined."""
    for spec in settings.servers:
        yield _server(spec, settings, environ, trouble)


def _server(
    spec: ServerSpec, settings: Settings, environ: Mapping[str, str], trouble: State
) -> Check:
    name = f"server {spec.name}"
    found = look_up(spec, machine_of(settings, environ))
    if isinstance(found, Installed):
        version = f", version {found.version}" if found.version else ""
        return Check(name, "ok", f"{found.program} (in place of {spec.command}{version})")
    where = _find(spec, str(settings.workspace or ""), environ)
    if where is None:
        remedy = _REMEDIES.get(spec.command, _OTHER_REMEDY)
        return Check(name, "fail", f"{spec.command} not found", remedy)
    if isinstance(found, NotInstalled):
        but = f" ({found.why})" if found.why else ""
        what = f"{spec.command} fetches its package, and a sandbox has no network for that{but}"
        # Where the operator wrote its sandbox down, it is confined, installed or not.
        state = trouble if spec.sandbox is None else "warn"
        return Check(name, state, what, installation_of(spec))
    return Check(name, "ok", where)


def _find(spec: ServerSpec, workspace: str, environ: Mapping[str, str]) -> str | None:
    """The program that would run: as `downstream` starts it, from the directory it has there."""
    path = child_environment(spec, environ).get("PATH", os.defpath)
    directory = Path(spec.cwd or workspace or Path.cwd())
    command = str(directory / spec.command) if "/" in spec.command else spec.command
    return shutil.which(command, path=path)
