"""A server's working directory, and the meaning of relative paths in its command.

A server does not run in the workspace or in the proxy's directory, which are often the same: `npx`
takes programs from `node_modules` there, and Python imports modules from there, and the agent may
have written either. Every path that the agent sends is made absolute, so no server needs to run
there.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.server import ServerSpec


def settle(spec: ServerSpec, state: Path, written_in: Path, *, make: bool = True) -> ServerSpec:
    """Give a server a working directory of its own, unless the operator named one.

    Args:
        spec: as configured.
        state: the session's directory; the server gets `<name>.cwd` in it.
        written_in: what relative paths in the command were meant in: arguments that name something
            that exists there are made absolute, as is a command with a slash.
        make: make the directory; False: only say where it would be.

    Raises:
        ConfigurationError: the directory cannot be made.
    """
    if spec.cwd is not None or spec.remote is not None:
        return spec
    home = state / f"{spec.name}.cwd"
    try:
        if make:
            make_private(home)
    except OSError as error:
        raise ConfigurationError(
            f"{home}: the working directory of server {spec.name} cannot be made "
            f"({error.strerror}): name one that exists as its cwd in mcpServers, or set HOME to a "
            "directory that you may write to"
        ) from None
    command = str(written_in / spec.command) if _is_relative_path(spec.command) else spec.command
    args = tuple(_absolute(argument, written_in) for argument in spec.args)
    return replace(spec, cwd=str(home), command=command, args=args)


def make_private(directory: Path) -> None:
    """Make a directory and its missing parents, for this user only."""
    for place in (*reversed(directory.parents), directory):
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)


def tidy(state: Path) -> None:
    """Remove unused directories of `settle`, and the session's directory if it is empty."""
    with suppress(OSError):
        for home in state.glob("*.cwd"):
            with suppress(OSError):
                home.rmdir()
        state.rmdir()


def _absolute(argument: str, written_in: Path) -> str:
    if not (_is_relative_path(argument) or argument.startswith(".")) or "\0" in argument:
        return argument
    try:
        place = written_in / argument
        return str(place) if place.exists() else argument
    except OSError:
        return argument


def _is_relative_path(text: str) -> bool:
    return "/" in text and not text.startswith(("/", "-"))
