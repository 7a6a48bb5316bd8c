"""The sandbox of each server, from the settings, the policy and this machine."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ironcurtain_proxy.config.servers.recognition import (
    recognised,
)
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.installed import (
    Machine,
    beyond_agents,
    is_confined,
    why_unconfined,
    without_launcher,
)

if TYPE_CHECKING:
    from ironcurtain_proxy.sandbox.launch import Confinement
    from ironcurtain_proxy.sandbox.probe import Available

MEMORY: Final = "MEMORY_FILE_PATH"
"""The variable with the file of the public memory server."""
ROOT_MEANS: Final = (
    "confined servers read every file of the machine that is not closed to them, and the kernel "
    "treats them as root; run ironcurtain-proxy as an ordinary user"
)


def with_own_path(
    specs: Sequence[ServerSpec],
    confined: "Mapping[str, Confinement]",
    environ: Mapping[str, str],
    workspace: RealPath | None,
) -> "tuple[Sequence[ServerSpec], Mapping[str, Confinement]]":
    """Give servers the whole `PATH`: confined ones inside their sandbox alone.

    The sandbox itself finds its programs on that of `beyond_agents`.
    """
    path = environ.get("PATH", "")
    if path in {"", beyond_agents(environ, workspace)["PATH"]}:
        return specs, confined
    inside = {
        name: replace(one, variables={"PATH": path, **one.variables})
        for name, one in confined.items()
    }
    return [
        spec
        if spec.name in confined and spec.builtin is None
        else replace(spec, env={"PATH": path, **spec.env})
        for spec in specs
    ], inside


def find_sandbox(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]
) -> "Available | None":
    """Return the sandbox of this machine; None if no server wants one, or there is none.

    Args:
        settings: what the operator said.
        environ: where programs are found.
        say: told once, in a line, of servers that run unconfined.

    Raises:
        ConfigurationError: there has to be one and is not.
    """
    machine = machine_of(settings, environ)
    specs = [without_launcher(spec, machine) for spec in settings.servers]
    bare = [
        as_written
        for as_written, spec in zip(settings.servers, specs, strict=True)
        if spec.sandbox is None and not is_confined(spec)
    ]
    if bare:
        why = [f"{spec.name}: {why_unconfined(spec, machine)}" for spec in bare]
        _refuse_or_say(settings, why, say)
    confined = [spec.name for spec in specs if is_confined(spec)]
    if not confined:
        return None
    cache = settings.state_dir / "sandbox.json"
    own = beyond_agents(environ, settings.workspace)
    from ironcurtain_proxy.sandbox.probe import (  # noqa: PLC0415  as in `confinements`
        Available,
        probe,
        recall,
        remember,
    )

    found = recall(cache, own) or probe(own)
    if isinstance(found, Available):
        remember(cache, own, found)
        return found
    missing = "; ".join([f"{one.name}: {one.why} ({one.remedy})" for one in found.missing])
    _refuse_or_say(settings, [f"{', '.join(confined)}: {missing}"], say)
    return None


def say_what_root_means(sandbox: "Available | None", say: Callable[[str], None]) -> None:
    """Warn an operator who runs the proxy as root of the limits of its sandboxes."""
    if sandbox is not None and os.geteuid() == 0:
        say(f"running as root: {ROOT_MEANS}")


def confined_servers(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]
) -> Mapping[str, bool]:
    """Return whether `serve` would start each server in a sandbox. For reports: never refuses."""
    found = find_sandbox(replace(settings, sandbox_policy="warn"), environ, say)
    machine = machine_of(settings, environ)
    specs = [without_launcher(spec, machine) for spec in settings.servers]
    return {spec.name: found is not None and is_confined(spec) for spec in specs}


def machine_of(settings: Settings, environ: Mapping[str, str]) -> Machine:
    """Return the directories where programs of this operator may be installed."""
    return Machine(
        state_dir=settings.state_dir,
        home=settings.home,
        workspace=settings.workspace,
        environ=environ,
    )


def with_own_place(spec: ServerSpec, settings: Settings, *, make: bool = True) -> ServerSpec:
    """Return a server with a writable place, if it keeps files beside its own program.

    The place does not depend on a sandbox of this machine, so that its files are found again. A
    trusted server, and one with a configured place, stay as they are.
    """
    if MEMORY in spec.env or not keeps_own_place(spec):
        return spec
    place = own_place(spec, settings)
    if make:
        with suppress(OSError):
            # A server that cannot write there says so itself.
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return replace(spec, env={**spec.env, MEMORY: str(place / "memory.jsonl")})


def keeps_own_place(spec: ServerSpec) -> bool:
    """Return whether a confined server must write in its own directory elsewhere."""
    return spec.sandbox is not False and recognised(spec.command, spec.args) == "memory"


def own_place(spec: ServerSpec, settings: Settings) -> Path:
    """Return where the notes of the memory server lie."""
    return settings.state_dir / "memory" / spec.name


def _refuse_or_say(settings: Settings, why: list[str], say: Callable[[str], None]) -> None:
    if settings.sandbox_policy == "enforce":
        raise ConfigurationError(
            'sandboxPolicy is "enforce", but servers cannot be confined:\n'
            + "\n".join(why)
            + '\nor set "sandbox": false for those that you trust'
        )
    say(
        "warning: servers run unconfined, with all rights of this user "
        f"(sandboxPolicy is warn): {'; '.join(why)}"
    )
