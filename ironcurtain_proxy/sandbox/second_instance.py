"""The confinement of a second instance: that of the first, with the approved opening."""

import os
import secrets
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.denials import obstacle, opening_of
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.profile import SandboxProfile
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
    """Return the confinement of a second instance.

    Args:
        first: the confinement of the first.
        opening: what was approved.
        former: the first's own directory, which the second does not get, or None if it has none.
        temporary: the second's own directory.
        home: the user's.

    Raises:
        ConfigurationError: an approved path cannot be opened without opening others.
        OSError: a private directory cannot be made.
    """
    views, opening = in_views(first.views, opening)
    reads = tuple([str(path) for path in opening.reads])
    profile = replace(
        first.profile,
        deny_read=tuple([one for one in first.profile.deny_read if one not in reads]),
    )
    stages = staged(opening, home, f"{temporary}.staged")
    return Confinement(
        first.command,
        replace(
            profile,
            allow_write=(*[path for path in profile.allow_write if path != former], temporary),
            allow_read=(
                *[path for path in profile.allow_read if path != former],
                temporary,
                *reads,
            ),
            allowed_domains=(*profile.allowed_domains, *opening.hosts),
        ),
        temporary,
        private=first.private,
        folders=first.folders,
        stages=stages,
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
    return replace(views, approved=(*views.approved, *names)), replace(opening, paths=rest)


def left_closed(opening: SandboxOpening, home: str) -> Mapping[str, frozenset[str]]:
    """Return the directories that an opening opens, and the names in each that stay closed.

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
    """Return the access that a call needs beyond its server's sandbox.

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
    """Return why a named path is not opened: a link in it leads to another place."""
    above = str(RealPath(path.parts[:-1]))
    if os.path.realpath(above) == above:
        return None
    return f"{path} leads through a link: name the place itself"


def _is_open_to(place: RealPath, home: str) -> bool:
    """Return whether a directory would stay too wide if it existed."""
    return not place.parts or RealPath.from_text(home).is_within(place)


def place_of(path: RealPath, home: str) -> str | None:
    """Return the directory that has to be opened for a path to be written, created or deleted.

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


# --- approved paths: a private directory in the place of the one that holds them -----------------

_MOST_STAGED: Final = 256 << 20
"""Bytes of a file that is copied for a call."""
_Identity: TypeAlias = tuple[int, ...] | None
"""What changes with a file, or None if there is none."""


class Stage(Struct, frozen=True, kw_only=True):
    """A private directory that a second instance sees in the place of a real one.

    What lies beside the approved paths is shown there and cannot be changed. A new name lands in
    the private directory. After the instance has ended, the proxy carries the approved paths over
    by its own hand, and nothing else: a program may replace its file by renaming, and no other file
    of the place changes.
    """

    place: str
    """The real directory."""
    directory: str
    """The private one."""
    beside: tuple[str, ...]
    """Names that are shown as they are."""
    opened: tuple[str, ...]
    """Approved names that are directories: they are opened themselves."""
    carried: tuple[tuple[str, _Identity, _Identity], ...]
    """Approved paths below the place, with what was there, and its copy."""

    def mount(self) -> tuple[str, ...]:
        """Return the arguments of bubblewrap."""
        found = ["--bind", self.directory, self.place]
        # What lies beside may be another program's, and be gone before the instance starts.
        for kind, names in (("--ro-bind-try", self.beside), ("--bind", self.opened)):
            found += [word for name in names for word in (kind, *[f"{self.place}/{name}"] * 2)]
        return tuple(found)

    def carry(self) -> tuple[str, ...]:
        """Carry the approved paths over, and return what was not, each with the reason."""
        return tuple([why for one in self.carried if (why := self._carry(*one))])

    def _carry(self, path: str, before: _Identity, copied: _Identity) -> str:
        source, target = f"{self.directory}/{path}", f"{self.place}/{path}"
        if _identity(source) == copied:
            return ""
        if _identity(target) != before:
            return f"{target} was changed by somebody else meanwhile: their version stays"
        try:
            _replace(source, target)
        except (OSError, shutil.Error) as error:
            return f"{target} could not be written: {getattr(error, 'strerror', None) or 'no copy'}"
        return ""


def staged(opening: SandboxOpening, home: str, base: str) -> tuple[Stage, ...]:
    """Make the private directories of an opening.

    Args:
        opening: what was approved.
        home: the user's.
        base: a directory to make, which no sandbox may read.

    Raises:
        ConfigurationError: an approved path cannot be opened without opening others.
        OSError: a directory or a copy cannot be made.
    """
    found: list[Stage] = []
    # A directory inside another is mounted after it.
    for place, beside in sorted(left_closed(opening, home).items()):
        paths = [str(one) for one in opening.paths if place_of(one, home) == place]
        below = [path.removeprefix(f"{place}/") for path in paths]
        directory = f"{base}/{len(found)}"
        Path(directory).mkdir(mode=0o700, parents=True)
        opened = [one for one in below if _is_directory(RealPath.from_text(f"{place}/{one}"))]
        own = {one.partition("/")[0] for one in below}
        for name in os.listdir(place):  # noqa: PTH208  names are enough
            if name not in own and Path(place, name).is_symlink():
                Path(directory, name).symlink_to(Path(place, name).readlink())
        carried = [one for one in below if one not in opened]
        for one in carried:
            _copy_in(f"{place}/{one}", f"{directory}/{one}")
        found.append(
            Stage(
                place=place,
                directory=directory,
                beside=tuple(sorted(beside)),
                opened=tuple(opened),
                carried=tuple(
                    [
                        (one, _identity(f"{place}/{one}"), _identity(f"{directory}/{one}"))
                        for one in carried
                    ]
                ),
            )
        )
    return tuple(found)


def _copy_in(source: str, target: str) -> None:
    try:
        found = os.lstat(source)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        raise ConfigurationError(f"{source} is no file and no directory")
    if found.st_size > _MOST_STAGED:
        raise ConfigurationError(f"{source} is too large to be copied for one call")
    shutil.copy2(source, target, follow_symlinks=False)


def _identity(path: str) -> _Identity:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _replace(source: str, target: str) -> None:
    """Put what lies at one path in the place of another, at once. Neither can change meanwhile."""
    if not os.path.lexists(source):
        Path(target).unlink()
        return
    kinds = [os.lstat(source).st_mode]
    for top, directories, files in os.walk(source):
        kinds += [os.lstat(f"{top}/{name}").st_mode for name in (*directories, *files)]
    if not all(stat.S_ISREG(one) or stat.S_ISDIR(one) or stat.S_ISLNK(one) for one in kinds):
        raise OSError(0, "it is or holds neither file, directory nor link")
    parent = Path(target).parent
    parent.mkdir(parents=True, exist_ok=True)
    fresh = f"{parent}/.ironcurtain-{secrets.token_hex(8)}"
    try:
        if stat.S_ISDIR(kinds[0]):
            shutil.copytree(source, fresh, symlinks=True)
        else:
            shutil.copy2(source, fresh, follow_symlinks=False)
        for top, _, files in os.walk(fresh):
            for name in files:
                _without_privilege(f"{top}/{name}")
        _without_privilege(fresh)
        Path(fresh).rename(target)
    except BaseException:
        _remove(fresh)
        raise


def _without_privilege(path: str) -> None:
    mode = os.lstat(path).st_mode
    if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
        Path(path).chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _remove(path: str) -> None:
    if Path(path).is_dir() and not Path(path).is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
