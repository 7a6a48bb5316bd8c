"""The places where a launcher's package is installed. Looks at files; starts no program.

Knows the layout of packages that npm, uv and pipx install. A program in a directory that the agent
may write is never chosen: the agent would choose what runs.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, assert_never

import orjson
from msgspec import Struct

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.sandbox.launchers import Launched, normalized

_MOST_LINKS: Final = 40
"""The most links in a path, as in the kernel."""

_NPM_PREFIX: Final = re.compile(r"^\s*prefix\s*=\s*(\S.*?)\s*$", re.MULTILINE)


class SearchPlaces(Struct, frozen=True, kw_only=True):
    """The places where a server searches for programs."""

    directory: Path
    """The working directory of the server. Absolute."""
    home: Path
    environ: Mapping[str, str]
    """`PATH`, and variables that say where things are installed."""
    exposed: tuple[RealPath, ...] = ()
    """Directories the agent may write to."""


class Installed(Struct, frozen=True):
    """The program that a launcher would run."""

    program: str
    """Absolute."""
    version: str
    """The version of the package; empty: not known."""


class NotInstalled(Struct, frozen=True):
    """No installed program may replace the launcher."""

    why: str
    """The things that were found instead, in words; empty: nothing was found."""


def find_installed(launched: Launched, places: SearchPlaces) -> Installed | NotInstalled:
    """The program of an installed package, of the version that was asked for."""
    if not launched.is_replaceable:
        return NotInstalled("")
    why = ""
    for found in _candidates(launched, places):
        if not _is_program(found.program):
            continue
        if _is_exposed(Path(found.program), places.exposed):
            why = why or f"{found.program} lies where the agent may write"
        elif launched.version is not None and not _is_same(found.version, launched.version):
            why = why or f"version {found.version} is installed"
        else:
            return found
    return NotInstalled(why)


def _is_program(path: str) -> bool:
    # What a relative path means depends on where the proxy was started.
    return path.startswith("/") and os.access(path, os.X_OK) and Path(path).is_file()


def _candidates(launched: Launched, places: SearchPlaces) -> Iterator[Installed]:
    match launched.registry:
        case "npm":
            return _npm(launched, places)
        case "uv":
            return _python(launched, _uv_tools(places), places)
        case "pipx":
            return _python(launched, _pipx_environments(places), places)
        case _:
            assert_never(launched.registry)


# --- npm


def _npm(launched: Launched, places: SearchPlaces) -> Iterator[Installed]:
    above = [place / "node_modules" for place in (places.directory, *places.directory.parents)]
    if launched.program is None and launched.version is None and "/" not in launched.name:
        # `npx tsc` runs what is called so, whichever package it is of.
        for modules in above:
            yield Installed(str(modules / ".bin" / launched.name), "")
    for modules in (*above, *_global_modules(places), *_npx_cache(launched, places)):
        package = modules / launched.name
        manifest = _read_manifest(package)
        script = _script(manifest, launched)
        version = manifest.get("version")
        if script is not None and isinstance(version, str):
            yield Installed(str(package / script), version)


def _global_modules(places: SearchPlaces) -> Iterator[Path]:
    """The directories of `npm install -g`: beside the programs, or beside node."""
    said = places.environ.get("npm_config_prefix") or places.environ.get("NPM_CONFIG_PREFIX")
    prefixes = [Path(text) for text in (said, _npmrc_prefix(places)) if text]
    directories = [*_path(places)]
    prefixes += [directory.parent for directory in directories]
    for node in [directory / "node" for directory in directories]:
        if os.access(node, os.X_OK):
            prefixes.append(Path(os.path.realpath(node)).parent.parent)
            break
    for prefix in dict.fromkeys(prefixes):
        yield prefix / "lib" / "node_modules"


def _npmrc_prefix(places: SearchPlaces) -> str | None:
    try:
        text = (places.home / ".npmrc").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _NPM_PREFIX.search(text)
    if found is None:
        return None
    prefix = found[1].strip("\"'").replace("${HOME}", str(places.home))
    return f"{places.home}/{prefix[2:]}" if prefix.startswith("~/") else prefix


def _npx_cache(launched: Launched, places: SearchPlaces) -> Iterator[Path]:
    """The packages that `npx` fetched before: first for these very words, then for others."""
    said = places.environ.get("npm_config_cache") or places.environ.get("NPM_CONFIG_CACHE")
    cache = Path(said or places.home / ".npm") / "_npx"
    own = hashlib.sha512(launched.requirement.encode(errors="replace")).hexdigest()[:16]
    yield cache / own / "node_modules"
    yield from sorted(cache.glob("*/node_modules"))


def _read_manifest(package: Path) -> Mapping[str, Json]:
    try:
        found = orjson.loads((package / "package.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _script(manifest: Mapping[str, Json], launched: Launched) -> str | None:
    """The file of a package that npx would run."""
    own = launched.name.rpartition("/")[2]
    said = manifest.get("bin")
    bins = {own: said} if isinstance(said, str) else said
    if not isinstance(bins, dict) or not bins:
        return None
    if launched.program is not None:
        script = bins.get(launched.program)
    else:
        scripts = list(bins.values())
        script = scripts[0] if all(one == scripts[0] for one in scripts) else bins.get(own)
    return script if isinstance(script, str) and _is_inside(script) else None


def _is_inside(script: str) -> bool:
    """Whether a path stays in its package: elsewhere it would name any program there is."""
    path = PurePosixPath(script)
    return "\0" not in script and not path.is_absolute() and ".." not in path.parts


# --- Python


def _uv_tools(places: SearchPlaces) -> Iterator[Path]:
    said = places.environ.get("UV_TOOL_DIR")
    data = places.environ.get("XDG_DATA_HOME") or places.home / ".local" / "share"
    yield Path(said) if said else Path(data) / "uv" / "tools"


def _pipx_environments(places: SearchPlaces) -> Iterator[Path]:
    said = places.environ.get("PIPX_HOME")
    if said:
        yield Path(said) / "venvs"
        return
    data = places.environ.get("XDG_DATA_HOME") or places.home / ".local" / "share"
    yield Path(data) / "pipx" / "venvs"
    yield places.home / ".local" / "pipx" / "venvs"


def _python(launched: Launched, tools: Iterable[Path], places: SearchPlaces) -> Iterator[Installed]:
    program = launched.program or launched.name
    name = normalized(launched.name)
    for directory in (*[tool / name / "bin" for tool in tools], *_path(places)):
        version = _version(directory / program, name)
        if version is not None:
            yield Installed(str(directory / program), version)


def _version(program: Path, name: str) -> str | None:
    """The version of the package beside a program; None: the program belongs to another package."""
    if not _is_program(str(program)):
        return None
    environment = Path(os.path.realpath(program)).parent.parent
    for found in sorted(environment.glob("lib/python*/*-packages/*.dist-info")):
        package, _, version = found.name.removesuffix(".dist-info").partition("-")
        if normalized(package) == name:
            return version
    return None


# --- both


def _path(places: SearchPlaces) -> Iterator[Path]:
    for text in places.environ.get("PATH", os.defpath).split(os.pathsep):
        if text.startswith("/"):
            yield Path(text)


def _is_same(found: str, wanted: str) -> bool:
    """Whether two versions are one: `1.0` is `1.0.0`."""
    return _canonical(found) == _canonical(wanted)


def _canonical(version: str) -> str:
    return re.sub(r"(\.0)+$", "", version.lower())


def _is_exposed(path: Path, exposed: Iterable[RealPath]) -> bool:
    """Whether anything on the way to a file could be changed: one link would lead anywhere."""
    closed = tuple(exposed)
    for place in _way(path):
        here = RealPath.from_text(str(place))
        if any(here.is_within(directory) for directory in closed):
            return True
    return False


def _way(path: Path) -> Iterator[Path]:
    """Every file and directory that is passed to reach one, links followed."""
    here, rest, links = Path("/"), [*reversed(path.parts[1:])], 0
    while rest and links <= _MOST_LINKS:
        part = rest.pop()
        here = here.parent if part == ".." else here / part
        yield here
        if here.is_symlink():
            links += 1
            target = here.readlink()
            rest += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here.parent
