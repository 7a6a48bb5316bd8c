"""The command that starts this proxy. Its path is absolute: graphical clients have another PATH."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.errors import ConfigurationError

_PROGRAM: Final = "ironcurtain-proxy"


def own_command(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the command and the arguments that start this proxy.

    Raises:
        ConfigurationError: this installation is temporary.
    """
    prefix = Path(sys.prefix)
    if _is_cache(prefix):
        return _through_uvx(environ)
    program = prefix / "bin" / _PROGRAM
    if program.is_file():
        return str(_short(program, environ)), []
    return sys.executable, ["-m", "ironcurtain_proxy"]


def _is_cache(prefix: Path) -> bool:
    """Return whether `uvx` or `pipx run` made this environment for one run."""
    return any(part.startswith(("archive-v", "builds-v")) for part in prefix.parts) or (
        prefix.parent.name == ".cache" and "pipx" in prefix.parts
    )


def _through_uvx(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    uvx = shutil.which("uvx", path=environ.get("PATH"))
    if uvx is None:
        raise ConfigurationError(
            "this is a temporary installation, which a client cannot start: install the package "
            "with `uv tool install` or `pipx install` and run `init` again"
        )
    source = _source()
    given = ["--from", source] if source else []
    return str(Path(uvx).absolute()), [*given, _PROGRAM]


def _source() -> str:
    """Return the source of this installation; empty: a package index."""
    try:
        text = distribution(_PROGRAM).read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    url = str(orjson.loads(text).get("url", "")) if text else ""
    return url.removeprefix("file://")


def _short(program: Path, environ: Mapping[str, str]) -> Path:
    """Return the name on the PATH that leads to the program: it stays the same across versions."""
    found = shutil.which(_PROGRAM, path=environ.get("PATH"))
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return Path(found).absolute()
    return program
