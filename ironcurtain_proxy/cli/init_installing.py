"""The packages of servers, installed by `init` before it starts them. Not a command itself.

What a launcher fetches anew at each start cannot run in a sandbox; what is installed can.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping

from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean, masked_arguments
from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.installed import NotInstalled
from ironcurtain_proxy.sandbox.replaced_launchers import Machine, fetch_of, look_up


def install_packages(talk: Dialogue, settings: Settings, machine: Machine, seconds: float) -> None:
    """Ask, and install the packages that launchers of servers would fetch.

    A failed installation is printed, and the launcher starts the server as before.

    Args:
        talk: with the person.
        settings: with the servers.
        machine: where installed programs are searched.
        seconds: the limit for each command.
    """
    wanted = {
        fetch: spec
        for spec in settings.servers
        if isinstance(look_up(spec, machine), NotInstalled) and (fetch := fetch_of(spec))
    }
    if not wanted:
        return
    talk.say("These packages would be fetched at each start, which no sandbox lets a server do. "
             "Installed once,\nthe servers run in sandboxes:")  # fmt: skip
    for command in wanted:
        talk.say(f"  {clean(shlex.join(masked_arguments(command)), 300)}")
    if talk.ask(f"Install {counted(len(wanted), 'package')} first?", is_step=True) == "n":
        return
    done: list[Json] = []
    for command, spec in wanted.items():
        talk.say(f"installing for {clean(spec.name)} (up to {seconds:g} s) …")
        fault = _install(command, spec, machine.environ, seconds)
        if fault:
            talk.say(f"  not installed: {clean(fault, 300)}")
        else:
            done.append(shlex.join(masked_arguments(command)))
    talk.answer["installed"] = done


def _install(
    command: tuple[str, ...], spec: ServerSpec, environ: Mapping[str, str], seconds: float
) -> str:
    """The reason of a command that failed, in its own words; empty: it succeeded."""
    # `uv` lies beside the `uvx` of a client's file, which is often written with its directory.
    beside = spec.command.rpartition("/")[0]
    path = os.pathsep.join([*([beside] if beside else []), environ.get("PATH", os.defpath)])
    program = shutil.which(command[0], path=path)
    if program is None:
        return f"{command[0]} was not found"
    # In a directory of its own: `npx` takes what it finds in `node_modules` of where it runs.
    with tempfile.TemporaryDirectory() as place:
        try:
            done = subprocess.run(  # noqa: S603  the launcher's own installer; shown, and agreed to
                (program, *command[1:]),
                cwd=place,
                # The addresses of an index may stand in the server's variables.
                env={**environ, "PATH": path, **spec.env},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    # Advice follows the reason, and progress comes before it.
    reasons = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return reasons[0] if reasons else f"exit status {done.returncode}"


def own_machine(settings: Settings) -> Machine:
    """The machine as `init` finds it."""
    # Joins all folders: long to import.
    from ironcurtain_proxy.wiring.confinement import machine_of  # noqa: PLC0415

    return machine_of(settings, os.environ)
