"""The well-known server that a command starts.

Only the program counts, never its operands: `some-server /src/mcp-server-git` is not the git
server. An unrecognised server keeps the operator's name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.config.packs.pack import pack_of

_NPM_SCOPE: Final = "@modelcontextprotocol"
_NPM: Final = frozenset({"filesystem", "memory", "everything"})
_PYPI: Final = frozenset({"git", "fetch", "time"})

_RUNNERS: Final = frozenset(
    {"npx", "bunx", "pnpx", "uvx", "uv", "pipx", "npm", "pnpm", "yarn", "bun"}
)
_NPM_RUNNERS: Final = frozenset(
    {"npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun", "node", "nodejs", "deno"}
)
_SUBCOMMANDS: Final = frozenset({"exec", "x", "dlx", "run", "tool"})
_INTERPRETER: Final = re.compile(r"(node|nodejs|bun|deno|python[0-9.]*|py)")
_OPTIONS_WITH_VALUE: Final[Mapping[str, bool]] = MappingProxyType(
    {
        # True: the value itself names the package to run.
        "-p": True,
        "--package": True,
        "--from": True,
        "--spec": True,
        "-m": True,
        "--with": False,
        "--python": False,
        "--directory": False,
        "--project": False,
        "--prefix": False,
        "-r": False,
        "--require": False,
        "--import": False,
        "--loader": False,
        "-X": False,
        "-W": False,
    }
)
_VERSION: Final = re.compile(r"(?<=.)(@|[=<>!~]=?|\[).*$")


def recognised(command: str, args: Sequence[str]) -> str | None:
    """The annotation name of a well-known server, such as `filesystem`, or None."""
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
    base = _base(command)
    registry = "npm" if base in _NPM_RUNNERS else "pypi"
    if base not in _RUNNERS and not _INTERPRETER.fullmatch(base):
        yield within, command
        return
    words = iter(args)
    for word in words:
        option, _, attached = word.partition("=")
        if option in _OPTIONS_WITH_VALUE:
            value = attached or next(words, "")
            if _OPTIONS_WITH_VALUE[option]:
                yield registry, value
            if option == "-m":
                return
        elif not word.startswith("-") and not (base in _RUNNERS and word in _SUBCOMMANDS):
            # `uv run python -m mcp_server_git`: a complete command line follows.
            yield from _programs(word, list(words), registry)
            return


def _known(word: str) -> str | None:
    parts = PurePosixPath(word.replace("\\", "/")).parts
    for scope, package in pairwise(parts):
        if scope == _NPM_SCOPE:
            return _suffix(_VERSION.sub("", package), "server-", _NPM)
    name = _VERSION.sub("", _base(word)).replace("_", "-")
    return _suffix(name, "mcp-server-", _NPM | _PYPI)


def _packed(registry: str, word: str) -> str | None:
    """The name of the pack of a package."""
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
