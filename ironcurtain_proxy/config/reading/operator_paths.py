"""What a path in the operator's own words stands for.

The agent's paths are not read here: `facts` does that, and trusts nothing.
"""

import os
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.path import RealPath

STATE_DIRECTORY: Final = ".ironcurtain"
"""In the home directory."""


def expand_home(text: str, home: Path) -> str:
    """`~` and `~/x` against the home directory; everything else as it is."""
    if text == "~":
        return str(home)
    return f"{home}/{text[2:]}" if text.startswith("~/") else text


def working_directory() -> Path:
    """Our own working directory; `/` if it has been deleted."""
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
    """The same for a place that has no base: None unless it begins with `/` or `~/`."""
    if not text.startswith(("/", "~")):
        return None
    try:
        return absolute(text, home, Path("/"))
    except ValueError:
        return None


def real(path: Path | str) -> RealPath:
    """Where an absolute path leads now, every link followed; what does not exist stays as it is."""
    return RealPath.from_text(os.path.realpath(path))


def as_named(path: Path) -> RealPath:
    """The path itself, links followed in its parent only: the link rather than its target."""
    return RealPath.from_text(f"{os.path.realpath(path.parent)}/{path.name}")
