"""The confinement of a second instance: that of the first, with the approved opening."""

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import structs

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.opening import SandboxOpening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.sandbox.reach import obstacle, opening_of
from ironcurtain_proxy.sandbox.shell_setup import Views

_OFFLINE: Final = (
    "the sandbox of this server does not let it reach them (sandbox.network.allowedDomains)"
)
_TOO_WIDE: Final = (
    "the sandbox of this server does not let it write there, and nothing so near the home "
    "directory is opened for one call (sandbox.filesystem.allowWrite):"
)
_MOST_BESIDE: Final = 200
"""Names beside what is opened; each costs a mount."""


def widened(
    first: Confinement, opening: SandboxOpening, *, former: str | None, temporary: str, home: str
) -> Confinement:
    """The confinement of a second instance.

    Args:
        first: the confinement of the first.
        opening: what was approved.
        former: the first's own directory, which the second does not get; None: it has none.
        temporary: the second's own directory.
        home: the user's.

    Raises:
        ConfigurationError: an approved path cannot be opened without opening others.
    """
    views, opening = in_views(first.views, opening)
    reads = tuple([str(path) for path in opening.reads])
    profile = replace(
        first.profile,
        deny_read=tuple([one for one in first.profile.deny_read if one not in reads]),
    )
    beside = left_closed(opening, home)
    places = [temporary, *beside]
    closed = [f"{place}/{name}" for place, names in beside.items() for name in sorted(names)]
    return Confinement(
        first.command,
        replace(
            profile,
            allow_write=(*[path for path in profile.allow_write if path != former], *places),
            allow_read=(
                *[path for path in profile.allow_read if path != former],
                temporary,
                *reads,
            ),
            deny_write=(*profile.deny_write, *closed),
            allowed_domains=(*profile.allowed_domains, *opening.hosts),
        ),
        temporary,
        private=first.private,
        folders=first.folders,
        variables=first.variables,
        views=views,
    )


def in_views(views: Views | None, opening: SandboxOpening) -> tuple[Views | None, SandboxOpening]:
    """Return the views of our own shell with the control places of an opening, and its rest."""
    if views is None:
        return None, opening
    top = RealPath.from_text(views.workspace)
    inside = [path for path in opening.paths if path.is_within(top)]
    names = ["/".join(path.parts[len(top.parts) :]) for path in inside]
    rest = tuple([path for path in opening.paths if path not in inside])
    return structs.replace(views, approved=(*views.approved, *names)), replace(opening, paths=rest)


def left_closed(opening: SandboxOpening, home: str) -> Mapping[str, frozenset[str]]:
    """The directories that an opening opens, and the names in each that stay closed.

    Raises:
        ConfigurationError: an approved path cannot be opened without opening others.
    """
    wanted = {str(path) for path in opening.paths}
    found: dict[str, frozenset[str]] = {}
    for path in opening.paths:
        place = place_of(path, home)
        if place is None:
            raise ConfigurationError(f"{path} cannot be opened without the files beside it")
        names = frozenset([one for one in _beside(path, place) if f"{place}/{one}" not in wanted])
        found[place] = found.get(place, frozenset()) | names
    return found


def opening_for(
    spec: ServerSpec,
    profile: SandboxProfile,
    request: AccessRequest,
    hosts: Sequence[str],
    home: str,
    paths: Sequence[RealPath] = (),
) -> SandboxOpening | str | None:
    """The access that a call needs beyond its server's sandbox, and that a second instance can get.

    A text: why no approval opens the access, and the setting that does. None: nothing is needed.
    """
    found = opening_of(profile, request, hosts, paths)
    if not isinstance(found, SandboxOpening):
        return found
    if spec.stateful:
        why = obstacle(profile, request) or f"{_OFFLINE}: {', '.join(found.hosts)}"
        return f"{why}; the server is stateful, so that no second instance can do it"
    for path in found.paths:
        if path in paths and (linked := _why_not_as_named(path)) is not None:
            return linked
        if place_of(path, home) is None:
            above = RealPath(path.parts[:-1])
            missing = not Path(str(above)).exists() and not _is_open_to(above, home)
            how = f" (where {above} exists, a reviewer can be asked)" if missing else ""
            return f"{_TOO_WIDE} {path}{how}"
    return found


def with_reads(
    found: SandboxOpening | str | None,
    spec: ServerSpec,
    profile: SandboxProfile,
    programs: Sequence[str],
) -> SandboxOpening | str | None:
    """Return the opening with the credentials that programs need and that exist now.

    Args:
        found: what the call needs besides; a text: no approval opens it.
        spec: the server. A stateful one has no second instance, and gets nothing.
        profile: of its first instance.
        programs: the programs of the call that do something outside the machine.
    """
    if isinstance(found, str) or spec.stateful:
        return found
    wanted = [path for program in programs for path in profile.lent.get(program, ())]
    reads = [
        path
        for path in map(RealPath.from_text, dict.fromkeys(wanted))
        if not profile.may_read(path) and os.path.lexists(str(path))
    ]
    if not reads:
        return found
    return replace(found or SandboxOpening(), reads=tuple(reads))


def _why_not_as_named(path: RealPath) -> str | None:
    """The reason why a named path is not opened: a link in it leads to another place."""
    above = str(RealPath(path.parts[:-1]))
    if os.path.realpath(above) == above:
        return None
    return f"{path} leads through a link: name the place itself"


def _is_open_to(place: RealPath, home: str) -> bool:
    """Whether a directory would stay too wide if it existed."""
    return not place.parts or RealPath.from_text(home).is_within(place)


def place_of(path: RealPath, home: str) -> str | None:
    """The directory that has to be opened for a path to be written, created or deleted.

    It is the one that holds the path; what else is in it stays closed. None: it is too wide, such
    as the home directory, where a new file of some names is run or read by other programs.
    """
    place = RealPath(path.parts[:-1])
    while place.parts and not _is_directory(place):
        place = RealPath(place.parts[:-1])
    narrow = not RealPath.from_text(home).is_within(place)
    return str(place) if path.parts and place.parts and narrow else None


def _is_directory(path: RealPath) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(os.lstat(str(path)).st_mode)
    return False


def _beside(path: RealPath, place: str) -> list[str]:
    own = path.parts[len(RealPath.from_text(place).parts)]
    try:
        names = [name for name in os.listdir(place) if name != own]  # noqa: PTH208  names are enough
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be listed: {error.strerror}") from None
    if len(names) > _MOST_BESIDE:
        raise ConfigurationError(f"{place} holds too much beside {path}")
    # A link cannot be closed, and what it leads to is not opened.
    return [name for name in names if not Path(place, name).is_symlink()]
