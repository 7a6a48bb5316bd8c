"""Programs that fetch the packages that they run.

In a sandbox they have no network to do so, and no cache they may write. Knows their command lines;
does not know what is installed.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Registry: TypeAlias = Literal["npm", "uv", "pipx"]
"""The installer: npm, uv or pipx."""


class Launched(Struct, frozen=True, kw_only=True):
    """The package that a launcher fetches and runs."""

    registry: Registry
    requirement: str
    """The package as it was written, such as `cowsay@1.6.0`."""
    name: str
    """The package; empty if it has no name, but a URL or a path."""
    version: str | None
    """The exact version; None: any."""
    program: str | None
    """The program of the package; None: the one with the package's name."""
    args: tuple[str, ...]
    """The program's own."""
    install: str
    """The command that installs it."""
    is_replaceable: bool
    """Whether the installed program does the same: not if an option asks for something else too, or
    for a range of versions."""


class _Launcher(Struct, frozen=True, kw_only=True):
    """A program that fetches the package that it runs."""

    words: tuple[str, ...]
    registry: Registry
    install: str
    names_package: frozenset[str]
    """The options whose value is the package; without one it is the first argument."""
    takes_value: frozenset[str]
    """Further options whose value must not be taken for the first argument."""
    harmless: frozenset[str]
    """Options that do not change which program runs."""


_QUIET: Final = frozenset({"-q", "--quiet", "-v", "--verbose", "--offline"})
_BESIDES: Final = frozenset({"--with", "-w"})
"""Options of uv for packages that the program runs with."""
_UV_SOURCES: Final = frozenset(
    {"--index", "-i", "--index-url", "--default-index", "-p", "--python"}
)


def _uv(*words: str) -> _Launcher:
    return _Launcher(
        words=words,
        registry="uv",
        install="uv tool install",
        names_package=frozenset({"--from"}),
        takes_value=_UV_SOURCES
        | {"--with", "-w", "--with-editable", "--with-requirements", "--directory", "--project"},
        harmless=_QUIET | _UV_SOURCES | {"--no-progress", "--no-config"},
    )


_LAUNCHERS: Final = (
    _Launcher(
        words=("npx",),
        registry="npm",
        install="npm install -g",
        names_package=frozenset({"-p", "--package"}),
        takes_value=frozenset(
            {"-w", "--workspace", "--registry", "--prefix", "--cache", "-c", "--call"}
        ),
        harmless=_QUIET | {"-y", "--yes", "--no", "--no-install", "--prefer-offline", "--registry"},
    ),
    _uv("uvx"),
    _uv("uv", "tool", "run"),
    _Launcher(
        words=("pipx", "run"),
        registry="pipx",
        install="pipx install",
        names_package=frozenset({"--spec"}),
        takes_value=frozenset({"--python", "--index-url", "-i", "--pip-args", "--with"}),
        harmless=_QUIET | {"--no-cache", "--python", "--index-url", "-i", "--pip-args"},
    ),
)

_FLAGS: Final = re.IGNORECASE | re.ASCII
_NPM: Final = re.compile(r"((?:@[a-z0-9~-][\w.~-]*/)?[a-z0-9~-][\w.~-]*)(?:@(.*))?", _FLAGS)
_PYTHON: Final = re.compile(r"([a-z0-9][\w.-]*)\s*(?:\[[^]]*])?\s*((?:[=<>!~;@].*)?)", _FLAGS)
_PROGRAM: Final = re.compile(r"[a-z0-9_][\w.-]*", _FLAGS)
_EXACT_NPM: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][\w.+-]*)?", _FLAGS)
_EXACT_PYTHON: Final = re.compile(r"\d[\w.+!-]*", _FLAGS)


def launched(command: str, args: Sequence[str]) -> Launched | None:
    """The package that a command line fetches and runs; None: its command is no launcher."""
    words = (command.rpartition("/")[2], *args)
    for launcher in _LAUNCHERS:
        length = len(launcher.words)
        if words[:length] == launcher.words:
            return _read(launcher, words[length:])
    return None


def normalized(name: str) -> str:
    """The one spelling of a Python package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(launcher: _Launcher, args: tuple[str, ...]) -> Launched | None:
    packages, besides, is_plain, rest = _options(launcher, args)
    program = None
    if packages:
        program, rest = (rest[0] if rest else ""), rest[1:]
    elif rest:
        packages, rest = (rest[0],), rest[1:]
    if not packages or not packages[0]:
        return None
    name, version = _identify(launcher.registry, packages[0])
    exact = _EXACT_NPM if launcher.registry == "npm" else _EXACT_PYTHON
    is_exact = version is None or exact.fullmatch(version) is not None
    is_named = program is None or _PROGRAM.fullmatch(program) is not None
    return Launched(
        registry=launcher.registry,
        requirement=packages[0],
        name=name,
        version=version,
        program=program,
        args=rest,
        install=f"{launcher.install} {shlex.join((*besides, *packages))}",
        is_replaceable=is_plain and len(packages) == 1 and bool(name) and is_exact and is_named,
    )


def _options(
    launcher: _Launcher, args: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], bool, tuple[str, ...]]:
    """The packages, the options for others beside them, whether all else is harmless; the rest."""
    packages: list[str] = []
    besides: list[str] = []
    is_plain = True
    place = 0
    while place < len(args) and args[place].startswith("-"):
        option, equals, value = args[place].partition("=")
        place += 1
        if option == "--":
            break
        if not equals and option in launcher.names_package | launcher.takes_value:
            value = args[place] if place < len(args) else ""
            place += 1
        if option in launcher.names_package:
            packages.append(value)
        elif launcher.registry == "uv" and option in _BESIDES:
            besides += ["--with", value]
            is_plain = False
        elif option not in launcher.harmless:
            is_plain = False
    return tuple(packages), tuple(besides), is_plain, args[place:]


def _identify(registry: Registry, requirement: str) -> tuple[str, str | None]:
    """Name and version; the version may be a range, or words that are none."""
    pattern = _NPM if registry == "npm" else _PYTHON
    match = pattern.fullmatch(requirement)
    if match is None:
        return "", None
    name, said = match[1], (match[2] or "").strip()
    if registry == "npm":
        version = said.removeprefix("=").removeprefix("v")
    else:
        version = said.removeprefix("==").removeprefix("@").strip()
    # Nobody can tell without a network what the latest one is: what is installed has to do.
    return name, None if version in {"", "latest"} else version
