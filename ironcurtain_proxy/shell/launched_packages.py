"""Packages as a launcher's command line names them, and whether an installed one is what is meant.

Pure: what is installed is an argument.
"""

import re
from typing import Final

from msgspec import Struct

_FLAGS: Final = re.IGNORECASE | re.ASCII
_NPM: Final = re.compile(r"((?:@[a-z0-9~-][\w.~-]*/)?[a-z0-9~-][\w.~-]*)(?:@(.*))?", _FLAGS)
_PYTHON: Final = re.compile(r"([a-z0-9][\w.-]*)\s*(?:\[[^]]*])?\s*((?:[=<>!~@].*)?)", _FLAGS)
_EXACT_NPM: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][\w.+-]*)?", _FLAGS)
_EXACT_PYTHON: Final = re.compile(r"\d[\w.+!-]*", _FLAGS)
_ARCHIVES: Final = (".whl", ".zip", ".tar.gz")
_URL: Final = re.compile(r"(?:git\+)?(?:https?|ssh|git|file)://.+", _FLAGS)
_REVISION: Final = re.compile(r"^(.*://(?:[^@/]*@)?[^@]*?)(?:@([^@/][^@]*))?$")


class Package(Struct, frozen=True, kw_only=True):
    """One package, as it was written."""

    written: str
    """The word of the command line, such as `cowsay@1.6.0`."""
    name: str
    """Empty: only a URL or a path is known."""
    version: str | None = None
    """The exact version; None: any, or a range."""
    versions: str = ""
    """A range of versions of a Python package, such as `>=1,<2`; empty: none was written."""
    url: str = ""
    """The address that a Python package comes from; empty: an index."""
    is_known: bool = False
    """Whether name and version say by themselves which installed package is meant."""
    is_odd: bool = False
    """Whether nobody could tell that an installed package is the one that is meant."""


def normalized(name: str) -> str:
    """The one spelling of a Python package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_package(written: str, *, is_npm: bool) -> Package:
    """A package by the words of a command line."""
    return _npm_package(written) if is_npm else _python_package(written)


def python_requirement(package: Package) -> str:
    """The words by which an installer of Python packages knows it: `x@1.2` is uvx's own."""
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
    is_exact = version is None or _EXACT_NPM.fullmatch(version) is not None
    if not is_exact:
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
    """Whether an installed version is one that was asked for."""
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
    """One spelling of a version: `1.0` is `1.0.0`."""
    return re.sub(r"(\.0)+$", "", version.lower())


class Source(Struct, frozen=True):
    """The place that a Python package comes from."""

    where: str
    """A URL, without the ending `.git`."""
    revision: str
    """The revision of a repository, as it was written; empty: none."""
    subdirectory: str
    """The package's directory in it; empty: the top."""


def source_of(url: str) -> Source:
    """The place that a URL or an absolute path names.

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
