"""Variables in clients' entries of servers: `${workspaceFolder}`, `${env:TOKEN}`, `${TOKEN}`.

A text with only the workspace and the home directory can be written out. Anything else, such as
`${input:token}`, is known to the client alone: in a server's variables it stays in the client's
file and reaches the proxy from there; in a command line nothing can take it there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.config.clients.known import KnownClient

_WORKSPACE: Final = frozenset({"workspaceFolder", "workspaceRoot"})
_HOME: Final = frozenset({"userHome", "HOME", "env:HOME"})
_SLASH: Final = frozenset({"pathSeparator", "/"})


@dataclass(frozen=True, slots=True)
class VariableDirectories:
    """The directories that variables stand for."""

    workspace: str
    home: str


def filled(text: str, client: KnownClient, places: VariableDirectories) -> str:
    """A text with the variables of known directories replaced."""
    return client.pattern.sub(lambda found: _known(found, places), text)


def is_open(text: str, client: KnownClient) -> bool:
    """Whether a text has variables that only the client can replace."""
    return client.pattern.search(text) is not None


def guessed(text: str, client: KnownClient, environ: Mapping[str, str]) -> str:
    """A text with variables of this environment, which suffices to list a server's tools."""
    return client.pattern.sub(lambda found: _from(environ, found), text)


def _known(found: re.Match[str], places: VariableDirectories) -> str:
    name = _name(found)
    if name in _WORKSPACE:
        return places.workspace
    if name in _HOME:
        return places.home
    return "/" if name in _SLASH else found[0]


def _from(environ: Mapping[str, str], found: re.Match[str]) -> str:
    name, _, default = _name(found).removeprefix("env:").partition(":-")
    return environ.get(name, default or found[0])


def _name(found: re.Match[str]) -> str:
    return found[0].removeprefix("$").removeprefix("{").removesuffix("}")
