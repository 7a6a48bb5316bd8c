"""Insertion of a rule into the text of `policy.yaml`, before all others.

Only the place of the rule is changed: comments and order stay. The caller that writes the result
reads it again.
"""

import re
from collections.abc import Sequence
from typing import Final

import orjson

from ironcurtain_proxy.config.policy.short_form import EVERY
from ironcurtain_proxy.errors import ConfigurationError

_PLAIN: Final = re.compile(r"[A-Za-z_/~.][A-Za-z0-9_./~-]*")
_READ_OTHERWISE: Final = frozenset(
    {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "."}
)
_LINE: Final = re.compile(r"(allow|ask|deny) +(\S+): +(\S.*)$(?!\n[ \t]+\S)", re.MULTILINE)
"""A rule that stands in one line."""
_KEY: Final = re.compile(r"^(allow|ask|deny)(?:[ ]+(\S.*?))?[ ]*:", re.MULTILINE)


def with_rule(
    text: str, verb: str, server: str, tool: str, conditions: Sequence[tuple[str, Sequence[str]]]
) -> str:
    """Return the text with a rule before all others.

    Args:
        text: the text of the file; empty: there is no file.
        verb: `allow`, `ask` or `deny`.
        server: the server's name in rules.
        tool: its own name of the tool, or `*`.
        conditions: keys of an entry, such as `within`, with their values.

    Raises:
        ConfigurationError: the file has such a line already, which has to be edited by hand.
    """
    value = _scalar(tool)
    if conditions:
        inner = [f"tools: {value}", *[f"{key}: {_list(values)}" for key, values in conditions]]
        value = "{" + ", ".join(inner) + "}"
    merged = _merged(text, verb, server, value)
    if merged is not None:
        return merged
    keys = {match.group(1, 2) for match in _KEY.finditer(text)}
    name = _scalar(server)
    if (verb, name) not in keys and (verb, server) not in keys:
        line = f"{verb} {name}: {value}\n"
    elif (verb, None) not in keys:
        # Another spelling of the same: two equal keys are refused.
        line = f"{verb}: {{{name}: {value}}}\n"
    else:
        raise ConfigurationError(
            f"the file has rules that {verb} {server} already: put this first among them: {value}"
        )
    place = _place(text)
    return text[:place] + line + text[place:]


def _merged(text: str, verb: str, server: str, value: str) -> str | None:
    """Return the text with the value added to its first rule about the server.

    None: that rule has another verb or several lines, or other such rules stand before it.
    """
    line = _LINE.match(text, _place(text))
    while line is not None and _about_others(line, server):
        line = _LINE.match(text, line.end() + _place(text[line.end() :]))
    if line is None or line[1] != verb or _server(line) != server:
        return None
    held = line[3].rstrip()
    inside = held[1:-1].strip() if held.startswith("[") and held.endswith("]") else held
    if not inside or "#" in held or held[0] in "&*!|>":
        return None
    return f"{text[: line.start(3)]}[{value}, {inside}]{text[line.end(3) :]}"


def _about_others(line: re.Match[str], server: str) -> bool:
    """Return whether the order of this rule and one about the server has no effect."""
    return EVERY not in {server, _server(line)} and _server(line) != server


def _server(line: re.Match[str]) -> str:
    return line[2].strip("\"'")


def _place(text: str) -> int:
    """Return the position behind the comments at the top, before the first rule."""
    place = 0
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.lstrip().startswith("#") and not line.startswith("base:"):
            break
        if not line.endswith("\n"):
            break
        place += len(line)
    return place


def _list(values: Sequence[str]) -> str:
    found = [_scalar(value) for value in values]
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def _scalar(text: str) -> str:
    if text != EVERY and _PLAIN.fullmatch(text) and text.lower() not in _READ_OTHERWISE:
        return text
    return orjson.dumps(text).decode()
