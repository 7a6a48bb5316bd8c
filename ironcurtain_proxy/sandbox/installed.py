"""Installed programs in place of launchers that fetch them, such as `npx`.

A launcher needs a network and a place to write programs to, which no sandbox gives. The layouts of
packages that npm, uv and pipx install are known, and files are looked at; no program is started. A
program in a directory that the agent may write is never chosen: the agent would choose what runs.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, assert_never

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, RealPath, lazy, object_of
from ironcurtain_proxy.private_files import read_regular
from ironcurtain_proxy.shell.launchers import (
    Launched,
    Package,
    Source,
    container_image,
    is_version_of,
    launched,
    normalized,
    source_of,
)

_MOST_LINKS: Final = 40
"""The most links in a path, as in the kernel."""

_NPM_PREFIX: Final = lazy(r"^[^\S\n]*+prefix[^\S\n]*=\s*(\S.*?)\s*$", re.MULTILINE)


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
    """The version of the package, or empty if it is not known."""


class NotInstalled(Struct, frozen=True):
    """No installed program may replace the launcher."""

    why: str
    """The things that were found instead, in words, or empty if nothing was found."""


def find_installed(launched: Launched, places: SearchPlaces) -> Installed | NotInstalled:
    """Return the program of installed packages, of the versions that were asked for."""
    if not launched.is_replaceable:
        return NotInstalled("")
    why = ""
    for found in _candidates(launched, places):
        if isinstance(found, NotInstalled):
            why = why or found.why
        elif not _is_program(found.program):
            continue
        elif not launched.is_own_code and _is_exposed(Path(found.program), places.exposed):
            why = why or f"{found.program} lies where the agent may write"
        else:
            return found
    return NotInstalled(why)


def _is_program(path: str) -> bool:
    # What a relative path means depends on where the proxy was started.
    return path.startswith("/") and os.access(path, os.X_OK) and Path(path).is_file()


def _candidates(launched: Launched, places: SearchPlaces) -> Iterator[Installed | NotInstalled]:
    match launched.registry:
        case "npm":
            return _npm(launched, places)
        case "uv" if launched.project is not None:
            return _project(launched, places)
        case "uv":
            return _python(launched, _uv_tools(places), places)
        case "pipx":
            return _python(launched, _pipx_environments(places), places)
        case _:
            assert_never(launched.registry)


# --- npm


def _npm(launched: Launched, places: SearchPlaces) -> Iterator[Installed | NotInstalled]:
    first, *beside = launched.packages
    above = [place / "node_modules" for place in (places.directory, *places.directory.parents)]
    is_bare = first.is_known and first.version is None and "/" not in first.name
    if launched.program is None and is_bare and not beside:
        # `npx tsc` runs a program `tsc`, of whichever installed package.
        for modules in above:
            yield Installed(str(modules / ".bin" / first.name), "")
    names = [one.name for one in launched.packages]
    if all(one.is_known for one in launched.packages):
        for modules in (*above, *_global_modules(places)):
            yield from _in_modules(launched, names, modules)
    yield from _fetched_for(launched, places)
    if all(one.is_known for one in launched.packages):
        for modules in sorted(_npx_cache(places).glob("*/node_modules")):
            yield from _in_modules(launched, names, modules)


def _in_modules(
    launched: Launched, names: Sequence[str], modules: Path
) -> Iterator[Installed | NotInstalled]:
    """Yield the program of a package in a directory that has all the others as well."""
    manifests = [_read_manifest(modules / name) for name in names]
    versions = [str(manifest.get("version") or "") for manifest in manifests]
    if not all(versions):
        return
    for version, package in zip(versions, launched.packages, strict=True):
        if not is_version_of(version, package):
            yield NotInstalled(f"version {version} is installed")
            return
    for name, manifest, version in zip(names, manifests, versions, strict=True):
        script = _script(manifest, name, launched.program)
        if script is not None:
            yield Installed(str(modules / name / script), version)
            return


def _fetched_for(launched: Launched, places: SearchPlaces) -> Iterator[Installed | NotInstalled]:
    """Yield the packages that `npx` fetched for these very words.

    A range, a URL, or a plain name.
    """
    written = sorted(one.written for one in launched.packages)
    key = hashlib.sha512("\n".join(written).encode(errors="replace")).hexdigest()[:16]
    own = _npx_cache(places) / key
    names = [one.name for one in launched.packages]
    if names == [""]:
        # It says what the package at the URL is called.
        found = _read_manifest(own).get("dependencies")
        names = [*found] if isinstance(found, dict) and len(found) == 1 else []
    if names and all(names):
        yield from _in_modules(launched, names, own / "node_modules")


def _global_modules(places: SearchPlaces) -> Iterator[Path]:
    """Yield the directories of `npm install -g`: beside the programs, or beside node."""
    beside = [directory.parent for directory in _path(places)]
    said, of_node = _said_prefixes(places), _prefix_of_node(places)
    for prefix in dict.fromkeys([*said, *beside, *of_node]):
        yield prefix / "lib" / "node_modules"


def npm_install(environ: Mapping[str, str], home: Path) -> str:
    """Return the words that install of npm: into `~/.local` where its own folder is root's."""
    places = SearchPlaces(directory=home, home=home, environ=environ)
    for folder in [*_said_prefixes(places), *_prefix_of_node(places)][:1]:
        modules = folder / "lib" / "node_modules"
        there = next(one for one in (modules, *modules.parents) if one.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            # With another prefix npm does not read what this machine says of registries.
            said = folder / "etc/npmrc"
            more = f" --globalconfig {shlex.quote(str(said))}" if said.is_file() else ""
            return f"npm install -g --prefix ~/.local{more}"
    return "npm install -g"


def _said_prefixes(places: SearchPlaces) -> list[Path]:
    said = places.environ.get("npm_config_prefix") or places.environ.get("NPM_CONFIG_PREFIX")
    return [Path(text) for text in (said, _npmrc_prefix(places)) if text]


def _prefix_of_node(places: SearchPlaces) -> list[Path]:
    nodes = [node for one in _path(places) if os.access(node := one / "node", os.X_OK)]
    return [Path(os.path.realpath(node)).parent.parent for node in nodes[:1]]


def _npmrc_prefix(places: SearchPlaces) -> str | None:
    try:
        text = read_regular(places.home / ".npmrc").decode("utf-8", "replace")
    except OSError:
        return None
    found = _NPM_PREFIX.search(text)
    if found is None:
        return None
    prefix = found[1].strip("\"'").replace("${HOME}", str(places.home))
    return f"{places.home}/{prefix[2:]}" if prefix.startswith("~/") else prefix


def _npx_cache(places: SearchPlaces) -> Path:
    said = places.environ.get("npm_config_cache") or places.environ.get("NPM_CONFIG_CACHE")
    return Path(said or places.home / ".npm") / "_npx"


def _read_manifest(package: Path) -> Mapping[str, Json]:
    return _read_json(package / "package.json")


def _read_json(file: Path) -> Mapping[str, Json]:
    try:
        found = orjson.loads(read_regular(file))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _script(manifest: Mapping[str, Json], name: str, program: str | None) -> str | None:
    """Return the file of a package that npx would run."""
    own = name.rpartition("/")[2]
    said = manifest.get("bin")
    bins = {own: said} if isinstance(said, str) else said
    if not isinstance(bins, dict) or not bins:
        return None
    if program is not None:
        script = bins.get(program)
    else:
        scripts = list(bins.values())
        script = scripts[0] if all(one == scripts[0] for one in scripts) else bins.get(own)
    return script if isinstance(script, str) and _is_inside(script) else None


def _is_inside(script: str) -> bool:
    """Return whether a path stays in its package: elsewhere it would name any program there is."""
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


def _python(
    launched: Launched, tools: Iterable[Path], places: SearchPlaces
) -> Iterator[Installed | NotInstalled]:
    if launched.needs_no_project and project_of(places.directory) is not None:
        return
    first = launched.packages[0]
    for tool in tools:
        for environment in _environments(launched.packages, tool):
            program = launched.program or first.name or environment.name
            yield from _in_environment(
                launched.packages, environment, environment / "bin" / program
            )
    program = launched.program or first.name
    for directory in _path(places) if program else ():
        if _is_program(str(directory / program)):
            real = Path(os.path.realpath(directory / program)).parent.parent
            yield from _in_environment(launched.packages, real, directory / program)


def _environments(packages: Sequence[Package], tool: Path) -> Sequence[Path]:
    """Return the environments that may have the packages: each is called like its first one."""
    if packages[0].name:
        return [tool / name for name in dict.fromkeys(normalized(one.name) for one in packages)]
    return sorted(tool.glob("*/"))


def _in_environment(
    packages: Sequence[Package], environment: Path, program: Path
) -> Iterator[Installed | NotInstalled]:
    """Yield a program beside its package, if all the others are there as well."""
    found = {
        normalized(one.name.partition("-")[0]): one
        for one in environment.glob("lib/python*/*-packages/*.dist-info")
    }
    version = ""
    for package in reversed(packages):
        named = found.get(normalized(package.name))
        about = named
        if package.url:
            about = _from_source(package, [*found.values()] if named is None else [named])
        if about is None:
            return
        version = about.name.removesuffix(".dist-info").partition("-")[2]
        if not is_version_of(version, package):
            yield NotInstalled(f"version {version} is installed")
            return
    yield Installed(str(program), version)


def _from_source(package: Package, found: Iterable[Path]) -> Path | None:
    """Find the package that was installed from a URL, by its installer's note (PEP 610)."""
    wanted = source_of(package.url)
    for about in found:
        said = _read_json(about / "direct_url.json")
        revision = object_of(said.get("vcs_info")).get("requested_revision")
        source = Source(
            source_of(str(said.get("url"))).where,
            str(revision or ""),
            str(said.get("subdirectory") or ""),
        )
        if source == wanted:
            return about
    return None


# --- projects of uv


def _project(launched: Launched, places: SearchPlaces) -> Iterator[Installed]:
    """Yield the program of a project's environment, as `uv sync` lays it out."""
    root = project_of(places.directory / (launched.project or "."))
    if root is not None and launched.program is not None:
        said = places.environ.get("UV_PROJECT_ENVIRONMENT") or ".venv"
        yield Installed(str(root / said / "bin" / launched.program), "")


def project_of(directory: Path) -> Path | None:
    """Return the nearest directory that holds a project."""
    around = (directory, *directory.parents)
    # `Path.is_file` raises where we may not look.
    return next((one for one in around if os.path.isfile(one / "pyproject.toml")), None)  # noqa: PTH113


# --- both


def _path(places: SearchPlaces) -> Iterator[Path]:
    for text in places.environ.get("PATH", os.defpath).split(os.pathsep):
        if text.startswith("/"):
            yield Path(text)


def _is_exposed(path: Path, exposed: Iterable[RealPath]) -> bool:
    """Return whether anything on the way to a file could be changed.

    One link would lead anywhere.
    """
    closed = tuple(exposed)
    for place in _way(path):
        here = RealPath.from_text(str(place))
        if any(here.is_within(directory) for directory in closed):
            return True
    return False


def _way(path: Path) -> Iterator[Path]:
    """Yield every file and directory that is passed to reach one, links followed."""
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


# --- replaced launchers


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
    """Return whether a server is meant to run in a sandbox, where there is one.

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
    """Put the installed program in place of a launcher, so that it can be confined.

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
    """Return the directory of a launcher.

    None, which is one of the server's own: it was the agent's.
    """
    if cwd is None or machine.workspace is None:
        return cwd
    here = RealPath.from_text(os.path.realpath(cwd))
    return None if here.is_within(machine.workspace) else cwd


def look_up(spec: ServerSpec, machine: Machine) -> Installed | NotInstalled | None:
    """Return the installed program of a server's launcher, or None if it is not needed."""
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
    """Return the command that installs what a server's launcher would fetch.

    It is empty if none would help.
    """
    wanted = launched(spec.command, spec.args)
    if wanted is None or not wanted.is_replaceable:
        return ()
    if wanted.project is not None:
        return (*wanted.fetch[:-1], str(Path(spec.cwd or "/", wanted.project)))
    return wanted.fetch


def installation_of(spec: ServerSpec) -> str:
    """Return the command that installs a launcher's package, and any further steps."""
    wanted = launched(spec.command, spec.args)
    if wanted is None:
        return ""
    if wanted.project is not None and wanted.is_replaceable:
        return shlex.join(fetch_of(spec))
    if wanted.is_replaceable:
        return wanted.install
    return f"{wanted.install} (and make the program that it installs the server's command)"


def why_unconfined(spec: ServerSpec, machine: Machine) -> str:
    """Return why a server is not confined, and the command that helps, if there is one."""
    image = container_image(spec.command, spec.args)
    if image is not None:
        return f"{spec.command} starts a container of {image}, which no sandbox here can hold"
    found = look_up(spec, machine)
    but = f" ({found.why})" if isinstance(found, NotInstalled) and found.why else ""
    what = f"{spec.command} fetches its package, which no sandbox lets it{but}"
    return f"{what}: run {installation_of(spec)}"


def beyond_agents(environ: Mapping[str, str], workspace: RealPath | None) -> dict[str, str]:
    """Return variables whose `PATH` leads to no program in the workspace.

    The kernel runs `git` and the sandbox itself. A project's own directory on the `PATH`, such as
    that of its virtual environment, is one that an agent writes.
    """
    kept = [
        one
        for one in environ.get("PATH", os.defpath).split(os.pathsep)
        if one.startswith("/")
        and not any(
            workspace is not None and RealPath.from_text(path).is_within(workspace)
            for path in (os.path.normpath(one), os.path.realpath(one))
        )
    ]
    # An empty PATH means the working directory, which may be the workspace.
    return {**environ, "PATH": os.pathsep.join(kept) or os.defpath}
