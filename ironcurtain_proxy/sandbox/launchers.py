"""Programs that fetch what they run. Pure: no I/O, no clock, no log.

In a sandbox they have no network to do so, and no cache they may write.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class _Launcher:
    """A program that fetches what it is to run."""

    words: tuple[str, ...]
    install: str
    names_package: frozenset[str]
    """The options whose value is the package; without one it is the first argument."""
    takes_value: frozenset[str]
    """Other options whose value must not be taken for the first argument."""


_UV_PACKAGE: Final = frozenset({"--from"})
_UV_VALUES: Final = frozenset(
    {"--with", "-w", "--python", "-p", "--index", "--index-url", "--default-index", "--directory"}
)
_LAUNCHERS: Final = (
    _Launcher(
        ("npx",),
        "npm install -g",
        frozenset({"-p", "--package"}),
        frozenset({"-w", "--workspace", "--registry", "--prefix", "--cache"}),
    ),
    _Launcher(("uvx",), "uv tool install", _UV_PACKAGE, _UV_VALUES),
    _Launcher(("uv", "tool", "run"), "uv tool install", _UV_PACKAGE, _UV_VALUES),
    _Launcher(
        ("pipx", "run"),
        "pipx install",
        frozenset({"--spec"}),
        frozenset({"--python", "--index-url", "-i", "--pip-args", "--with"}),
    ),
)


def installation(command: str, args: Sequence[str]) -> str | None:
    """The command that installs what a launcher would fetch; None if this is no launcher.

    `npx -y cowsay@1.6.0 moo` gives `npm install -g cowsay@1.6.0`.
    """
    words = (command.rpartition("/")[2], *args)
    for launcher in _LAUNCHERS:
        length = len(launcher.words)
        if words[:length] == launcher.words:
            package = _package(launcher, words[length:])
            return f"{launcher.install} {shlex.quote(package)}" if package else None
    return None


def _package(launcher: _Launcher, args: Sequence[str]) -> str:
    rest = iter(args)
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            return word
        if word == "--":
            return next(rest, "")
        if option in launcher.names_package:
            return value if equals else next(rest, "")
        if option in launcher.takes_value and not equals:
            next(rest, "")
    return ""
