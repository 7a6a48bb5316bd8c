"""Programs that fetch what they run, by the table `launchers.toml`.

In a sandbox they have no network to do so, and no cache they may write. Their command lines are
known: which package one names, and whether an installed one is what is meant. What is installed is
an argument, so all functions are pure.
"""

import functools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, convert
from msgspec.structs import replace

from ironcurtain_proxy.model.values import lazy

# --- launched packages


_FLAGS: Final = re.IGNORECASE | re.ASCII
_NPM: Final = lazy(r"((?:@[a-z0-9~-][\w.~-]*/)?[a-z0-9~-][\w.~-]*)(?:@(.*))?", _FLAGS)
_PYTHON: Final = lazy(r"([a-z0-9][\w.-]*)\s*(?:\[[^]]*])?\s*((?:[=<>!~@].*)?)", _FLAGS)
_EXACT_NPM: Final = lazy(r"\d+\.\d+\.\d+(?:[-+][\w.+-]*)?", _FLAGS)
_EXACT_PYTHON: Final = lazy(r"\d[\w.+!-]*", _FLAGS)
_ARCHIVES: Final = (".whl", ".zip", ".tar.gz")
_URL: Final = lazy(r"(?:git\+)?(?:https?|ssh|git|file)://.+", _FLAGS)
_REVISION: Final = lazy(r"^(.*://(?:[^@/]*@)?[^@]*?)(?:@([^@/][^@]*))?$")


class Package(Struct, frozen=True, kw_only=True):
    """One package, as it was written."""

    written: str
    """The word of the command line, such as `cowsay@1.6.0`."""
    name: str
    """Empty: only a URL or a path is known."""
    version: str | None = None
    """The exact version; None: any, or a range."""
    versions: str = ""
    """A range of versions of a Python package, such as `>=1,<2`, or empty if none was written."""
    url: str = ""
    """The address that a Python package comes from, or empty if it is an index."""
    is_known: bool = False
    """Whether name and version say by themselves which installed package is meant."""
    is_odd: bool = False
    """Whether nobody could tell that an installed package is the one that is meant."""


def normalized(name: str) -> str:
    """Return the one spelling of a Python package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_package(written: str, *, is_npm: bool) -> Package:
    """Return a package by the words of a command line."""
    return _npm_package(written) if is_npm else _python_package(written)


def python_requirement(package: Package) -> str:
    """Return the words by which an installer of Python packages knows it: `x@1.2` is uvx's own."""
    if package.version is not None and "@" in package.written:
        return f"{package.written.partition('@')[0]}=={package.version}"
    return package.written.removesuffix("@latest")


def _npm_package(written: str) -> Package:
    match = _NPM.fullmatch(written)
    if match is None or match[1].rpartition("/")[2] in {".", ".."}:
        # `owner/repository`, a URL or a path: npx keeps it under these very words.
        is_path = written.startswith((".", "/", "~")) or ".." in written.split("/")
        return Package(written=written, name="", is_odd=is_path)
    said = (match[2] or "").removeprefix("=").removeprefix("v")
    # Nobody can tell without a network what the latest one is: what is installed has to do.
    version = None if said in {"", "latest"} else said
    if version is not None and _EXACT_NPM.fullmatch(version) is None:
        return Package(written=written, name=match[1])
    return Package(written=written, name=match[1], version=version, is_known=True)


def _python_package(written: str) -> Package:
    if _URL.fullmatch(written) or written.startswith("/"):
        # `pipx run https://h/x.py` runs a script, which nothing installs.
        is_package = written.startswith(("git+", "file:", "/")) or written.endswith(_ARCHIVES)
        return Package(written=written, name="", url=written, is_odd=not is_package)
    match = _PYTHON.fullmatch(written)
    if match is None:
        return Package(written=written, name="", is_odd=True)
    name, said = match[1], match[2].strip()
    if said.startswith("@") and _URL.fullmatch(said[1:].strip()):
        return Package(written=written, name=name, url=said[1:].strip())
    version = said.removeprefix("==").removeprefix("@").strip()
    if version in {"", "latest"}:
        return Package(written=written, name=name, is_known=True)
    if _EXACT_PYTHON.fullmatch(version):
        return Package(written=written, name=name, version=version, is_known=True)
    is_range = _specifiers(said) is not None
    return Package(written=written, name=name, versions=said, is_odd=not is_range)


def _specifiers(text: str) -> object | None:
    # Few servers need it, and it takes longer to import than all else here.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def is_version_of(found: str, package: Package) -> bool:
    """Return whether an installed version is one that was asked for."""
    if package.version is not None:
        return _canonical(found) == _canonical(package.version)
    if not package.versions:
        return True
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415
    from packaging.version import InvalidVersion  # noqa: PLC0415

    try:
        return SpecifierSet(package.versions).contains(found, prereleases=True)
    except InvalidVersion:
        return False


def _canonical(version: str) -> str:
    """Return one spelling of a version: `1.0` is `1.0.0`."""
    return re.sub(r"(\.0)+$", "", version.lower())


class Source(Struct, frozen=True):
    """The place that a Python package comes from."""

    where: str
    """A URL, without the ending `.git`."""
    revision: str
    """The revision of a repository, as it was written, or empty if there is none."""
    subdirectory: str
    """The package's directory in it, or empty if it is the top."""


def source_of(url: str) -> Source:
    """Return the place that a URL or an absolute path names.

    `git+https://h/x.git@v1#subdirectory=a` is revision `v1` of `https://h/x`, in `a`.
    """
    bare, _, fragment = url.partition("#")
    subdirectory = next(
        (part[13:] for part in fragment.split("&") if part.startswith("subdirectory=")), ""
    )
    if bare.startswith("/"):
        return Source(f"file://{bare.rstrip('/')}", "", subdirectory)
    match = _REVISION.fullmatch(bare.removeprefix("git+")) if bare.startswith("git+") else None
    where, revision = (match[1], match[2] or "") if match else (bare, "")
    return Source(where.rstrip("/").removesuffix(".git"), revision, subdirectory)


# --- launchers


Registry: TypeAlias = Literal["npm", "uv", "pipx"]
"""The installer: npm, uv or pipx."""


class Launched(Struct, frozen=True, kw_only=True):
    """The packages that a launcher fetches, and the program that it runs."""

    registry: Registry
    packages: tuple[Package, ...]
    """The package of the program first; more of them must be in the same environment. Empty: a
    project has all that is needed."""
    program: str | None
    """The program of the package; None: the one with the package's name."""
    args: tuple[str, ...]
    """The program's own."""
    project: str | None = None
    """The directory of the project that `uv run` runs a program of, relative to the server's; None:
    there is none."""
    chdir: str | None = None
    """The directory that the program runs in, or None if it is the server's."""
    needs_no_project: bool = False
    """Whether a project around the server's directory would change what runs."""
    fetch: tuple[str, ...]
    """The command that installs all this, without another right than the user's."""
    install: str
    """The command that installs all this, to be shown."""
    is_replaceable: bool
    """Whether the installed program does the same: not if an option asks for something else too."""

    @property
    def is_own_code(self) -> bool:
        """Whether a project's code runs, and nothing needs to be fetched once it is installed."""
        return not self.packages


class _Launcher(Struct, frozen=True):
    """A program that fetches what it is to run."""

    words: tuple[str, ...]
    registry: Registry
    names_package: frozenset[str] = frozenset()
    """The options whose value is the package; without one it is the first argument."""
    adds_package: frozenset[str] = frozenset()
    """The options whose value is a package beside the first one."""
    takes_value: frozenset[str] = frozenset()
    """Further options whose value must not be taken for the first argument."""
    harmless: frozenset[str] = frozenset()
    """Options that do not change which program runs."""
    passed_on: frozenset[str] = frozenset()
    """Harmless options that the installer takes as well, and needs to find the same package."""
    is_late: bool = False
    """Whether options of the launcher may also follow the package, up to `--`."""


@functools.cache
def _launchers() -> tuple[_Launcher, ...]:
    """Return the launchers of `launchers.toml`, read when the first command line is looked at."""
    import tomllib  # noqa: PLC0415  nothing else here needs it

    text = Path(__file__).with_name("launchers.toml").read_text("utf-8")
    found: list[_Launcher] = []
    for entry in tomllib.loads(text)["launcher"]:
        fields = {key: text.split() for key, text in entry["options"].items()}
        shared = {"registry": entry["registry"], "is_late": entry.get("is_late", False)}
        found += [
            convert({**fields, **shared, "words": program.split()}, _Launcher)
            for program in entry["programs"].split(",")
        ]
    return tuple(found)


_PROGRAM: Final = lazy(r"[a-z0-9_][\w.-]*", re.IGNORECASE | re.ASCII)
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_LONG_FLAG: Final = frozenset(
    {"rm", "interactive", "tty", "detach", "init", "privileged", "read-only", "publish-all"}
    | {"no-healthcheck", "oom-kill-disable", "quiet", "sig-proxy", "disable-content-trust"}
)
_SHORT_FLAGS: Final = lazy(r"-[itdPq]+")


def launched(command: str, args: Sequence[str]) -> Launched | None:
    """Return the packages that a command line fetches and runs.

    It is None if its command is no launcher.
    """
    words = (command.rpartition("/")[2], *args)
    for launcher in _launchers():
        rest = _after(launcher, words)
        if rest is not None:
            return _read(launcher, rest)
    return None


def container_image(command: str, args: Sequence[str]) -> str | None:
    """Return the image that `docker run` starts a container of.

    It is None if no container is started.
    """
    words = [*args]
    if command.rpartition("/")[2] not in _CONTAINERS or not words:
        return None
    if words[0] == "container":
        words.pop(0)
    if not words or words.pop(0) != "run":
        return None
    while words and words[0].startswith("-"):
        option = words.pop(0)
        is_flag = _SHORT_FLAGS.fullmatch(option) or option.lstrip("-") in _LONG_FLAG
        is_attached = "=" in option or (not option.startswith("--") and len(option) > len("-e"))
        if not is_flag and not is_attached and words:
            words.pop(0)
    return words[0] if words else None


def _after(launcher: _Launcher, words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the words after the launcher's own, or None if it is another program.

    uv takes options before its commands, too: `uv --directory /srv run x`.
    """
    name, *rest = words
    early: list[str] = []
    if name != launcher.words[0]:
        return None
    own = [*launcher.words[1:]]
    while own and launcher.words[0] == "uv" and rest and rest[0].startswith("-"):
        option = rest.pop(0)
        early.append(option)
        if option in launcher.takes_value and rest:
            early.append(rest.pop(0))
    if rest[: len(own)] != own:
        return None
    return (*early, *rest[len(own) :])


class _Options(Struct):
    """The options of a launcher as they are read."""

    packages: list[str]
    beside: list[str]
    passed_on: list[str]
    values: dict[str, str]
    is_plain: bool = True
    """Whether all others are harmless."""


def _options(launcher: _Launcher, args: tuple[str, ...]) -> tuple[_Options, tuple[str, ...]]:
    """Return the options of a launcher, and the words behind them."""
    found = _Options([], [], [], {})
    place = 0
    while place < len(args) and args[place].startswith("-"):
        option, equals, value = args[place].partition("=")
        place += 1
        if option == "--":
            return found, args[place:]
        takes = launcher.names_package | launcher.adds_package | launcher.takes_value
        if not equals and option in takes:
            value = args[place] if place < len(args) else ""
            place += 1
        _note(launcher, found, option, value)
        if option in {"-m", "--module"}:
            break
    rest = args[place:]
    if launcher.is_late:
        # npm reads options wherever they stand; `--` ends them, and is not passed on.
        end = rest.index("--") if "--" in rest else len(rest)
        found.is_plain &= not any(word.startswith("-") for word in rest[:end])
        rest = (*rest[:end], *rest[end + 1 :])
    return found, rest


def _note(launcher: _Launcher, found: _Options, option: str, value: str) -> None:
    found.values[option] = value
    if option in launcher.names_package:
        found.packages.append(value)
    elif option in launcher.adds_package:
        # One option may name several, and a comma may also stand between the bounds of a version.
        found.beside += re.split(r",\s*(?=[A-Za-z])", value)
    elif option in launcher.passed_on:
        found.passed_on += [option, value] if option in launcher.takes_value else [option]
    elif option not in launcher.harmless:
        found.is_plain = False


def _read(launcher: _Launcher, args: tuple[str, ...]) -> Launched | None:
    options, rest = _options(launcher, args)
    if launcher.words == ("uv", "run"):
        return _uv_run(options, rest)
    written, program = options.packages, None
    if written:
        program, rest = (rest[0] if rest else ""), rest[1:]
    elif rest:
        written, rest = [rest[0]], rest[1:]
    if not written or not written[0]:
        return None
    is_npm = launcher.registry == "npm"
    packages = tuple(
        [read_package(text, is_npm=is_npm) for text in (*written, *options.beside) if text]
    )
    return _of_packages(launcher.registry, packages, program, rest, options)


def _of_packages(
    registry: Registry,
    packages: tuple[Package, ...],
    program: str | None,
    args: tuple[str, ...],
    options: _Options,
) -> Launched:
    fetch = _fetch(registry, packages, tuple(options.passed_on))
    shown = fetch
    if registry == "npm" and all(one.is_known for one in packages):
        shown = ("npm", "install", "-g", *options.passed_on, *[one.written for one in packages])
    is_named = program is None or _PROGRAM.fullmatch(program) is not None
    return Launched(
        registry=registry,
        packages=packages,
        program=program,
        args=args,
        fetch=fetch,
        install=shlex.join(shown),
        is_replaceable=options.is_plain and is_named and not any(one.is_odd for one in packages),
    )


def _fetch(
    registry: Registry, packages: tuple[Package, ...], passed_on: tuple[str, ...]
) -> tuple[str, ...]:
    if registry == "npm":
        # Into the cache of npx, by these very words. Scripts of the installation run, as by the
        # launcher itself; the server does not.
        named = [f"--package={one.written}" for one in packages]
        return ("npx", "--yes", *passed_on, *named, "--", "true")
    first, *others = packages
    if registry == "pipx":
        beside = [word for one in others for word in ("--preinstall", one.written)]
        return ("pipx", "install", *passed_on, *beside, python_requirement(first))
    beside = [word for one in others for word in ("--with", one.written)]
    return ("uv", "tool", "install", *passed_on, *beside, python_requirement(first))


def _uv_run(options: _Options, rest: tuple[str, ...]) -> Launched | None:
    """Return the reading of `uv run`, which runs a program, a module or a script."""
    module = options.values.get("--module") or options.values.get("-m")
    if module:
        rest = ("python", "-m", module, *rest)
    elif rest and rest[0].endswith(".py"):
        rest = ("python", *rest)
    if not rest or rest[0] == "-" or {"-s", "--script", "--gui-script"} & options.values.keys():
        return None
    chdir = options.values.get("--directory")
    project = options.values.get("--project") or chdir
    packages = [read_package(text, is_npm=False) for text in options.beside if text]
    # uv has one environment for all of them; the one that the program is called after leads.
    packages.sort(key=lambda one: normalized(one.name) != normalized(module or rest[0]))
    has_no_project = "--no-project" in options.values
    if packages and (project is None or has_no_project):
        found = _of_packages("uv", tuple(packages), rest[0], rest[1:], options)
        return replace(found, needs_no_project=not has_no_project, chdir=chdir)
    if has_no_project:
        return None
    fetch = ("uv", "sync", "--directory", project or ".")
    return Launched(
        registry="uv",
        packages=(),
        program=rest[0],
        args=rest[1:],
        project=project or ".",
        chdir=chdir,
        fetch=fetch,
        install=shlex.join(fetch),
        is_replaceable=options.is_plain
        and not packages
        and _PROGRAM.fullmatch(rest[0]) is not None,
    )
