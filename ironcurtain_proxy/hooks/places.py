"""Where a client's own files lie: below the home, or where a variable of its user says.

What is installed is remembered with its place in `~/.ironcurtain/clients/hooks-CLIENT.json`, so
that whatever looks for it later finds it without that variable.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import DecodeError, Struct, ValidationError, json

from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient, HookDialect
from ironcurtain_proxy.model.values import BootMoment
from ironcurtain_proxy.private_files import read_regular

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class FileBefore(Struct, frozen=True):
    """What was in a client's file before."""

    file: str
    before: str | None
    """None: there was no file."""
    digest: str
    """SHA-256 of what we wrote."""
    moment: BootMoment = BootMoment("", 0)
    """When, by the machine's count: its clock may be set back."""
    directory: str = ""
    """The client's directory; empty: the usual one."""


def kept_file(state: Path, client: HookClient) -> Path:
    """Return the file that keeps what was in a client's own file before our hooks."""
    return state / "clients" / f"hooks-{client}.json"


def read_kept(file: Path) -> FileBefore | None:
    """Return what was kept; None if nothing was, or it cannot be read any more."""
    with suppress(OSError, DecodeError, ValidationError):
        return json.decode(read_regular(file), type=FileBefore)
    return None


def directory_by(
    client: HookClient, home: Path, variables: Mapping[str, str], here: Path = Path()
) -> Path:
    """Return where a client with these variables, started in a directory, has its own files."""
    variable, below = DIALECTS[client].places.moved_by
    moved = variables.get(variable, "")
    return Path(os.path.normpath(here.absolute() / moved / below)) if moved else usual(client, home)


def usual(client: HookClient, home: Path) -> Path:
    """Return where a client has its own files if no variable says otherwise."""
    return home / DIALECTS[client].places.directory


def client_directory(
    client: HookClient, home: Path, state: Path, variables: Mapping[str, str] = _NONE
) -> Path:
    """Return the directory in which our hooks are; without any, where these variables say."""
    kept = read_kept(kept_file(state, client))
    if kept is None:
        return directory_by(client, home, variables)
    return Path(kept.directory) if kept.directory else usual(client, home)


def file_in(client: HookClient, directory: Path) -> Path:
    """Return the file with hooks in a client's directory, with all links followed."""
    return Path(os.path.realpath(directory / DIALECTS[client].places.file))


def own_place(dialect: HookDialect, home: Path, directory: Path, text: str) -> tuple[Path, str]:
    """Return what a place of the client's own lies below, and the place from there."""
    below = text.removeprefix(f"{dialect.places.directory}/")
    return home if below == text else directory, below
