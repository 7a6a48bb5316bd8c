"""Paths as written by the operator.

The agent's paths are resolved in `facts`, which trusts nothing.
"""

import os
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.path import RealPath

STATE_DIRECTORY: Final = ".ironcurtain"
"""The proxy's directory in the home directory."""


def expand_home(text: str, home: Path) -> str:
    """Replace `~` and `~/x` by the home directory; other paths are returned unchanged."""
    if text == "~":
        return str(home)
    return f"{home}/{text[2:]}" if text.startswith("~/") else text


def working_directory() -> Path:
    """Return the proxy's working directory; `/` if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def absolute(text: str, home: Path, base: Path) -> Path:
    """A path with `~` and `..` resolved, relative ones against `base`; links are not followed.

    Raises:
        ValueError: it is empty, holds a NUL, or says `~someone`.
    """
    if not text or "\0" in text:
        raise ValueError("is not a path")
    if text.startswith("~") and text != "~" and not text.startswith("~/"):
        raise ValueError("must not begin with ~ and a name: write the directory itself")
    return Path(os.path.normpath(base / expand_home(text, home)))


def rooted(text: str, home: Path) -> Path | None:
    """Return the absolute path of a text; None unless it begins with `/` or `~/`."""
    if not text.startswith(("/", "~")):
        return None
    try:
        return absolute(text, home, Path("/"))
    except ValueError:
        return None


def real(path: Path | str) -> RealPath:
    """Return the target of an absolute path, every link followed; missing components are kept."""
    return RealPath.from_text(os.path.realpath(path))


def as_named(path: Path) -> RealPath:
    """Return the path with links followed in its parent only: the link instead of its target."""
    return RealPath.from_text(f"{os.path.realpath(path.parent)}/{path.name}")
