"""The well-known server that a command starts.

Only the program counts, never its operands: `some-server /src/mcp-server-git` is not the git
server. An unrecognised server keeps the operator's name.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from ironcurtain_proxy.config.presets.pack import PackageSource, pack_of, packages_elsewhere
from ironcurtain_proxy.shell.launchers import Launched, container_image, launched, source_of

_NPM_SCOPE: Final = "@modelcontextprotocol"
_NPM: Final = frozenset({"filesystem", "memory", "everything"})
_PYPI: Final = frozenset({"git", "fetch", "time"})

_NODE: Final = frozenset({"node", "nodejs", "bun", "deno"})
_INTERPRETER: Final = re.compile(r"(node|nodejs|bun|deno|python[0-9.]*|py)")
_SUBCOMMANDS: Final = frozenset({"run"})
_OPTIONS_WITH_VALUE: Final = frozenset(
    {"-r", "--require", "--import", "--loader", "-X", "-W", "--config", "--cwd"}
)
_VERSION: Final = re.compile(r"(?<=.)(@|[=<>!~]=?|\[).*$")

_TAG: Final = re.compile(r"(:[^/]*)?(@.*)?$")


def recognised(command: str, args: Sequence[str]) -> str | None:
    """Return the annotation name of a well-known server, such as `filesystem`, or None."""
    for _, word in _programs(command, args):
        name = _known(word)
        if name is not None:
            return name
    return None


def recognised_pack(command: str, args: Sequence[str]) -> str | None:
    """The name of the pack of the server that a command starts, such as `sqlite`, or None."""
    for registry, word in _programs(command, args):
        name = _packed(registry, word)
        if name is not None:
            return name
    return None


def _programs(command: str, args: Sequence[str], within: str = "") -> Iterator[tuple[str, str]]:
    """Words that may name the server's package, each with the registry that it is looked up in.

    An empty registry: a program that was installed from either.
    """
    image = container_image(command, args)
    if image is not None:
        yield from _elsewhere("images", _TAG.sub("", image.removeprefix("docker.io/")))
        return
    wanted = launched(command, args)
    if wanted is not None:
        yield from _launched(wanted)
        return
    base = _base(command)
    if _INTERPRETER.fullmatch(base):
        yield from _interpreted(base, args)
    else:
        yield within, command
        if within != "pypi":
            yield from _elsewhere("programs", base)


def _interpreted(base: str, args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the script or module that an interpreter runs."""
    registry = "npm" if base in _NODE else "pypi"
    words = iter(args)
    for word in words:
        option, _, attached = word.partition("=")
        if option == "-m":
            yield registry, next(words, "")
            return
        if option in _OPTIONS_WITH_VALUE:
            if not attached:
                next(words, "")
        elif not word.startswith("-") and not (base in _NODE and word in _SUBCOMMANDS):
            yield registry, word
            return


def _launched(wanted: Launched) -> Iterator[tuple[str, str]]:
    """Yield the package whose program a launcher runs. The packages beside it only go with it."""
    registry = "npm" if wanted.registry == "npm" else "pypi"
    if wanted.is_own_code or wanted.program == "python":
        # `uv run python -m mcp_server_git`: a complete command line follows.
        yield from _programs(wanted.program or "", wanted.args, registry)
        return
    package = wanted.packages[0]
    if package.url:
        place = source_of(package.url).where.partition("://")[2]
        yield from _elsewhere("repositories", place)
    elif package.name:
        yield registry, package.name


def _elsewhere(kind: PackageSource, place: str) -> Iterator[tuple[str, str]]:
    registry, _, package = packages_elsewhere(kind).get(place, "").partition(":")
    if package:
        yield registry, package


def _known(word: str) -> str | None:
    parts = PurePosixPath(word.replace("\\", "/")).parts
    for scope, package in pairwise(parts):
        if scope == _NPM_SCOPE:
            return _suffix(_VERSION.sub("", package), "server-", _NPM)
    name = _VERSION.sub("", _base(word)).replace("_", "-")
    return _suffix(name, "mcp-server-", _NPM | _PYPI)


def _packed(registry: str, word: str) -> str | None:
    """Return the name of the pack of a package."""
    parts = PurePosixPath(word.replace("\\", "/")).parts
    scoped = next((at for at, part in enumerate(parts[:-1]) if part.startswith("@")), None)
    package = _VERSION.sub("", _base(word))
    if scoped is not None:
        package = f"{parts[scoped]}/{_VERSION.sub('', parts[scoped + 1])}"
    for one in ("npm", "pypi") if not registry else (registry,):
        said = package.replace("_", "-").lower() if one == "pypi" else package
        name = pack_of(f"{one}:{said}")
        if name is not None:
            return name
    return None


def _suffix(word: str, prefix: str, known: frozenset[str]) -> str | None:
    name = word.removeprefix(prefix)
    return name if word.startswith(prefix) and name in known else None


def _base(word: str) -> str:
    name = PurePosixPath(word.replace("\\", "/")).name
    return re.sub(r"\.(cmd|exe|js|py)$", "", name, flags=re.IGNORECASE)
