"""The packs that come with the package, by name and by the package that starts a server.

A pack describes the tools of one version of a server. A tool that a later version adds has no
annotation, and an argument that it adds is denied until somebody describes it.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct
from msgspec.json import decode

from ironcurtain_proxy.model.values import Json

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
    """What the server of a pack needs of its sandbox; nothing where there is no pack."""
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
