"""The hosts that a family of commands is known to reach: remotes of git, and registries.

The hosts come from the configuration that the command itself would read; it is not run. If the
configuration may name hosts that cannot be read here, the result is empty: the sandbox then stops
the command, and the question about the next attempt names the host.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.pushes import destinations
from ironcurtain_proxy.facts.urls import canonical_git_url, git_domain, is_ordinary_remote
from ironcurtain_proxy.model.family import Family

_MAX_BYTES: Final = 256 * 1024
_GITHUB: Final = ("api.github.com", "github.com")
_CRATES: Final = ("index.crates.io", "static.crates.io")
_PYPI: Final = ("files.pythonhosted.org", "pypi.org")
_GO: Final = ("proxy.golang.org", "sum.golang.org")
_REGISTRY: Final = re.compile(r"^\s*(?:@[\w.-]+:)?registry\s*=\s*(\S+)\s*$", re.MULTILINE)
_DEFAULT: Final = re.compile(r"^\s*registry\s*=", re.MULTILINE)
_HOST: Final = re.compile(r"https://([a-z0-9-]+(?:\.[a-z0-9-]+)+)(?:/.*)?", re.ASCII)

_Reader: TypeAlias = Callable[[Sequence[str], str], tuple[str, ...]]
"""Gets the directory with all its parents, and the home directory."""


def hosts_of(
    family: Family, directory: str | None, home: str | None, remotes: GitRemotes | None
) -> tuple[str, ...]:
    """The hosts, sorted; empty: none is known. Blocks; never raises.

    Args:
        family: of a part that is known to reach out.
        directory: where it runs; None: not known.
        home: the user's, as the server sees it; None: not known.
        remotes: git as the server would run it.
    """
    words = [*family.program, *family.kept]
    name = words[0].rpartition("/")[2] if words else ""
    if any("=" in one for one in family.around):
        # A variable may name another registry, or another proxy.
        return ()
    if name == "git":
        return () if remotes is None else _of_git(family, remotes)
    if name == "gh":
        return _GITHUB
    read = _READERS.get(name)
    if (
        read is None
        or home is None
        or directory is None
        or any(one.startswith(_ELSEWHERE) for one in words)
    ):
        return ()
    try:
        parts = directory.rstrip("/").split("/")
        above = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
        return read(above, home)
    except (OSError, ValueError):
        return ()


_ELSEWHERE: Final = (
    *("--registry", "--index", "--extra-index-url", "-i", "--default-index", "--find-links"),
    *("-f", "--git", "--config", "git+", "http:", "https:", "ssh:", "file:", "--source"),
    "--userconfig",
)  # fmt: skip


def _of_git(family: Family, remotes: GitRemotes) -> tuple[str, ...]:
    found = destinations(family, remotes)
    urls = [] if found is None else [canonical_git_url(url) for url in found]
    if not all(map(is_ordinary_remote, urls)):
        return ()
    return _sorted(git_domain(url).partition("/")[0].removesuffix(".") for url in urls)


def _npm(above: Sequence[str], home: str) -> tuple[str, ...]:
    texts = [_text(f"{place}/.npmrc") for place in dict.fromkeys([*above, home])]
    if any("$" in text or "proxy" in text for text in texts):
        return ()
    found = [_HOST.fullmatch(url) for text in texts for url in _REGISTRY.findall(text)]
    hosts = [one[1] for one in found if one is not None]
    if len(hosts) < len(found):
        return ()
    names_default = any(_DEFAULT.search(text) for text in texts)
    return _sorted(hosts if names_default else [*hosts, "registry.npmjs.org"])


def _pip(_above: Sequence[str], home: str) -> tuple[str, ...]:
    places = (f"{home}/.config/pip/pip.conf", f"{home}/.pip/pip.conf", "/etc/pip.conf")
    return () if any(map(os.path.lexists, places)) else _PYPI


def _uv(above: Sequence[str], home: str) -> tuple[str, ...]:
    places = [f"{home}/.config/uv/uv.toml", "/etc/uv/uv.toml", *[f"{one}/uv.toml" for one in above]]
    said = any("index" in _text(f"{one}/pyproject.toml") for one in above)
    return () if said or any(map(os.path.lexists, places)) else _PYPI


def _cargo(above: Sequence[str], home: str) -> tuple[str, ...]:
    places = [
        f"{top}/.cargo/{name}" for top in (*above, home) for name in ("config.toml", "config")
    ]
    return () if any(map(os.path.lexists, places)) else _CRATES


def _go(_above: Sequence[str], home: str) -> tuple[str, ...]:
    return () if os.path.lexists(f"{home}/.config/go/env") else _GO


_READERS: Final[Mapping[str, _Reader]] = MappingProxyType(
    {"npm": _npm, "pnpm": _npm, "npx": _npm, "pip": _pip, "pip3": _pip, "uv": _uv, "uvx": _uv,
     "cargo": _cargo, "go": _go}
)  # fmt: skip


def _text(path: str) -> str:
    """The text of a configuration; empty: there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(path)
    return content.decode()


def _sorted(hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({host for host in hosts if host}))
