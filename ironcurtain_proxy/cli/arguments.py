"""The command line, as `commands.txt` declares it: its commands, their help and their arguments.

The head of that file explains its form. From it come the parser of each command, its help, the list
of all commands and the completion of shells; no module of a command is imported for them.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

_TEXT: Final = Path(__file__).with_name("commands.txt").read_text("utf-8")

_HEAD: Final = r"^# ([a-z-]+)(?: \(.+\))?: (.+)$"

GROUPS: Final = MappingProxyType(
    {
        title: MappingProxyType(dict(re.findall(_HEAD, body, re.MULTILINE)))
        for title, body in re.findall(r"^= (.+)\n((?:(?!= ).*\n)+)", _TEXT, re.MULTILINE)
    }
)
"""The commands by task, each with its line of help."""

COMMANDS: Final = MappingProxyType(
    {name: line for group in GROUPS.values() for name, line in group.items()}
)
"""Each command with its line of help."""

OTHER_WORDS: Final = MappingProxyType(
    {
        word: name
        for name, words in re.findall(r"^# ([a-z-]+) \((.+)\): ", _TEXT, re.MULTILINE)
        for word in words.split(", ")
    }
)
"""Words of other programs, each with the command that does so here."""


def commands_with(action: str) -> list[str]:
    """Return the commands that have an action of this name, each with the action."""
    found: list[str] = []
    command = ""
    for mark, name in re.findall(r"^(#{1,2}) ([a-z-]+)", _TEXT, re.MULTILINE):
        command = name if mark == "#" else command
        if mark == "##" and name == action:
            found.append(f"{command} {action}")
    return found


_VALUE: Final = re.compile(
    r"\[?(?P<kind>\{.+?\}|[^\s\[\]{}=!(+]+?)(\((?P<least>\d+)-(?P<most>\d+)\))?\]?"
    r"(?P<many>\.\.\.|\+)?(=(?P<default>\S*))?(?P<needed>!)?"
)
_BODY: Final = re.compile(
    r"\n?(?s:(.*?))\n*(?:arguments|actions( \(optional\))?):\n((?:.+\n)*)\n?(?s:(.*))"
)
"""The text of a command: its description, its lines of arguments, and its examples."""
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([mhd])", re.ASCII)
_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}

_Parser = TypeVar("_Parser", bound=argparse.ArgumentParser)
_Words: TypeAlias = dict[str, object]
"""Keyword arguments of `add_argument`."""


def add_command(
    commands: "argparse._SubParsersAction[_Parser]",
    name: str,
    mark: str = "#",
    within: str = _TEXT,
    status: str = "",
) -> None:
    """Add a command, or an action of one, with its arguments and its actions.

    Args:
        commands: where it is added.
        name: its name.
        mark: `#` for a command, `##` for an action.
        within: the text with its declaration: the whole file, or that of its command.
        status: the exit status of the command, which an action without one of its own has, too.
    """
    begin = rf"^{mark} {name}(?: \(.+\))?: (?P<help>.+)\n"
    rest = rf"(?P<body>(?:(?!#{{1,{len(mark)}}} |= ).*\n)*)"
    found = re.search(begin + rest, within, re.MULTILINE)
    if found is None:
        raise KeyError(name)
    body, *actions = re.split(r"^(?=## )", found["body"], flags=re.MULTILINE)
    head = _BODY.fullmatch(body)
    if head is None:
        raise KeyError(name)
    help_line = found["help"]
    sentence = f"{help_line[0].upper()}{help_line[1:]}."
    own = re.search(r"^exit status: .+(?:\n.+)*", head[4], re.MULTILINE)
    epilog = head[4].strip("\n") + (f"\n\n{status}" if status and own is None else "")
    parser = commands.add_parser(
        name, help=help_line, description=head[1] or sentence, epilog=epilog
    )
    _add_lines(parser, head[3].split("\n"))
    if actions:
        inner = parser.add_subparsers(dest="action", metavar="ACTION", required=not head[2])
        for action in actions:
            status = "" if own is None else own[0]
            add_command(inner, action[3 : action.index(":")], "##", action, status)


def _add_lines(parser: argparse.ArgumentParser, lines: list[str]) -> None:
    place: argparse._ActionsContainer = parser
    only: argparse._ActionsContainer | None = None
    for line in _joined(lines):
        if not line.startswith(" "):
            place = parser.add_argument_group(line.rstrip(":"))
            continue
        declared, _, about = line.strip().partition("  ")
        if declared.startswith("| "):
            only = only or parser.add_mutually_exclusive_group()
            _add(only, declared.removeprefix("| "), about.strip())
        else:
            _add(place, declared, about.strip())


def _joined(lines: list[str]) -> Iterator[str]:
    """Yield lines with those that go on with them, and shared lines instead of their names."""
    for line in re.sub(r"\n {3,}(?! )", " ", "\n".join(lines)).split("\n"):
        if line.startswith("  @"):
            shared = re.search(rf"^@{line[3:]}\n((?:.+\n)+)", _TEXT, re.MULTILINE)
            yield from _joined(shared[1].rstrip("\n").split("\n") if shared else [])
        elif line:
            yield line


def _add(place: argparse._ActionsContainer, declared: str, about: str) -> None:
    """Add one argument, such as `--format {csv,ocsf}=csv >style`."""
    words = declared.split(" ")
    flags = [word for word in words if word.startswith("-")]
    named: _Words = {}
    for word in words:
        if word.startswith(">"):
            named["dest"] = word[1:]
    values = [word for word in words if not word.startswith(("-", ">"))]
    if not values:
        place.add_argument(*flags, help=about, action="store_true", **named)  # type: ignore[arg-type]
        return
    value = _VALUE.fullmatch(values[0])
    if value is None:
        raise ValueError(declared)
    named |= _kind(value) | ({"default": value["default"]} if value["default"] is not None else {})
    if value["many"] == "...":
        named |= {"action": "append", "default": []}
    elif value["many"] or values[0].startswith("["):
        named["nargs"] = "+" if value["many"] else "?"
    if flags:
        named["required"] = bool(value["needed"])
    else:
        named.setdefault("dest", value["kind"].lower())
    place.add_argument(*flags, help=about, **named)  # type: ignore[arg-type]


def _kind(value: re.Match[str]) -> _Words:
    kind = value["kind"]
    if kind.startswith("{"):
        return {"choices": kind[1:-1].split(",")}
    if value["least"]:
        return {"metavar": kind, "type": whole(int(value["least"]), int(value["most"]))}
    return {"metavar": kind, "type": _KINDS.get(kind, str)}


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number, from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read


def span(text: str) -> timedelta:
    """Return a length of time, such as `30m`, `24h` or `7d`."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span such as 30m, 24h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def moment(text: str) -> datetime:
    """Return a time: a span before now, or a local date with or without a time of day."""
    if _SPAN.fullmatch(text):
        from ironcurtain_proxy.own_process import SystemClock  # noqa: PLC0415  for few

        return SystemClock().now() - span(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a span such as 24h nor a date such as 2026-11-21"
        ) from None
    return found.astimezone(UTC)


def path_of(text: str) -> Path:
    """Return a path, also one below the home of a user, `~user/x`; an unknown user's stays."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  pathlib raises for an unknown user


_KINDS: Final[MappingProxyType[str, Callable[[str], object]]] = MappingProxyType(
    {
        **dict.fromkeys(("FILE", "DIR", "PATH", "LOG", "PUB", "REPOSITORY", "FILE.pub"), path_of),
        "SPAN": span,
        "TIME": moment,
        "SECONDS": float,
    }
)
"""What a value's name says of its type."""
