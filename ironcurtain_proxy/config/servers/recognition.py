"""The well-known server that a command starts, and its pack: annotations and needs of a sandbox.

Only the program counts, never its operands: `some-server /src/mcp-server-git` is not the git
server. An unrecognised server keeps the operator's name.

A pack describes the tools of one version of a server. A tool that a later version adds has no
annotation, and an argument that it adds is denied until somebody describes it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct
from msgspec.json import decode

from ironcurtain_proxy.model.values import Json, lazy
from ironcurtain_proxy.shell.launchers import Launched, container_image, launched, source_of

# --- pack


_SHIPPED: Final = Path(__file__).parent.parent / "packs" / "shipped"
_INDEX: Final = _SHIPPED.parent / "index.json"
_ELSEWHERE: Final = _SHIPPED.parent / "elsewhere.json"
_NEEDS: Final = _SHIPPED.parent / "needs.json"

PackageSource: TypeAlias = Literal["images", "repositories", "programs"]
"""What names a package besides its index: a container image, a repository, or the program that an
installed package has under another name than its own."""


class Pack(Struct, frozen=True, kw_only=True):
    """The annotations of one well-known server."""

    name: str
    """The server's name in policy and annotations."""
    package: str
    """`npm:NAME` or `pypi:NAME`."""
    version: str
    """The version of the package that the tools were read from."""
    obtained: str
    """`started`: the server listed its tools. `published schema`: its package describes them."""
    tools: Mapping[str, Mapping[str, Json]]
    """The tools by name, as in `tool-annotations.json`."""
    schemas: Mapping[str, str]
    """The digest of each tool's input schema, by name."""
    allow: frozenset[str]
    """Tools that only read, which a policy may allow; all others are asked about."""


class PackNeeds(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a server needs of its sandbox, as found by running it in one."""

    private: tuple[str, ...] = ()
    """Folders below the home directory that it writes, and gets for itself."""
    hosts: tuple[str, ...] = ()
    """Hosts that all its work goes to. `init` proposes to open them."""
    closed: tuple[str, ...] = ()
    """Hosts that it reports to about its use, and that its work does not need."""
    variables: Mapping[str, str] = {}
    """Variables that it needs in a sandbox alone."""
    stateful: bool = False
    """It keeps state between calls, such as an open page."""
    advice: str = ""
    """What its user has to set, for people."""


_NO_NEEDS: Final = PackNeeds()


@cache
def _needs() -> Mapping[str, PackNeeds]:
    return decode(_NEEDS.read_bytes(), type=dict[str, PackNeeds])


def needs_of(name: str | None) -> PackNeeds:
    """Return what the server of a pack needs of its sandbox; nothing where there is no pack."""
    return _NO_NEEDS if name is None else _needs().get(name, _NO_NEEDS)


@cache
def _index() -> Mapping[str, str]:
    found = orjson.loads(_INDEX.read_bytes())
    return {str(package): str(name) for package, name in found.items()}


def packages_elsewhere(kind: PackageSource) -> Mapping[str, str]:
    """Return the packages by image, by repository or by program, as their own documents name them.

    No image is of a server that is given paths: in a container a path means another file than here.
    """
    found: dict[PackageSource, dict[str, str]] = orjson.loads(_ELSEWHERE.read_bytes())
    return found[kind]


def pack_of(package: str) -> str | None:
    """Return the name of the pack for a package, `npm:NAME` or `pypi:NAME`; None: there is none."""
    return _index().get(package)


def pack_file(name: str) -> Path | None:
    """Return the file of a pack, or None if there is none of this name."""
    return _SHIPPED / f"{name}.json" if name in _names() else None


@cache
def _names() -> frozenset[str]:
    return frozenset(_index().values())


@cache
def read_pack(name: str) -> Pack | None:
    """Return a pack, or None if there is none of this name."""
    file = pack_file(name)
    if file is None:
        return None
    document = orjson.loads(file.read_bytes())
    about = document["pack"]
    tools = document["servers"][name]["tools"]
    return Pack(
        name=name,
        package=about["package"],
        version=about["version"],
        obtained=about["obtained"],
        tools={tool["toolName"]: tool for tool in tools},
        schemas=about["schemas"],
        allow=frozenset(about["policy"]["allow"]),
    )


def schema_digest(schema: Json) -> str:
    """Return a digest of an input schema, whatever the order of its keys: 16 hexadecimal digits."""
    try:
        data = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return ""
    return sha256(data).hexdigest()[:16]


# --- recognition


_NPM_SCOPE: Final = "@modelcontextprotocol"
_NPM: Final = frozenset({"filesystem", "memory", "everything"})
_PYPI: Final = frozenset({"git", "fetch", "time"})

_NODE: Final = frozenset({"node", "nodejs", "bun", "deno"})
_INTERPRETER: Final = lazy(r"(node|nodejs|bun|deno|python[0-9.]*|py)")
_SUBCOMMANDS: Final = frozenset({"run"})
_OPTIONS_WITH_VALUE: Final = frozenset(
    {"-r", "--require", "--import", "--loader", "-X", "-W", "--config", "--cwd"}
)
_VERSION: Final = lazy(r"(?<=.)(@|[=<>!~]=?|\[).*$")

_TAG: Final = lazy(r"(:[^/]*)?(@.*)?$")


def recognised(command: str, args: Sequence[str]) -> str | None:
    """Return the annotation name of a well-known server, such as `filesystem`, or None."""
    for _, word in _programs(command, args):
        name = _known(word)
        if name is not None:
            return name
    return None


def recognised_pack(command: str, args: Sequence[str]) -> str | None:
    """Return the pack of the server that a command starts, such as `sqlite`, or None."""
    for registry, word in _programs(command, args):
        name = _packed(registry, word)
        if name is not None:
            return name
    return None


def _programs(command: str, args: Sequence[str], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield words that may name the server's package, each with the registry to look in.

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
