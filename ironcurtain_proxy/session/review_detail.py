"""One request as styled lines for the live screen. Pure: no I/O, no clock, no log.

The words come from `display`, which has made everything visible; here they only get colours.
"""

import re
from collections.abc import Sequence
from typing import Final

from rich.text import Text

from ironcurtain_proxy.session.display import Field, arguments_of, fields_of, remembered
from ironcurtain_proxy.session.requests import PendingRequest

_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[rt])")
_WIDTH: Final = 18
_CHANGES: Final = (("+", "green"), ("-", "red"), ("@", "cyan"))


def detail_of(one: PendingRequest, changes: Sequence[str]) -> list[Text]:
    """Everything a reviewer should know, one line each."""
    lines: list[Text] = []
    for field in fields_of(one):
        style = "bold" if field.name in ("tool", "why") else ""
        lines += _field(field, style)
    lines += [Text(), Text("Arguments, in full", style="bold underline")]
    arguments = arguments_of(one)
    for field in arguments:
        lines += _field(field, "")
    if not arguments:
        lines.append(Text("  none", style="dim"))
    if changes:
        lines += [Text(), Text("What it changes", style="bold underline")]
        lines += [_change(line) for line in changes]
    lines += [Text(), Text("What r would remember", style="bold underline")]
    lines += [Text(f"  {line}") for line in remembered(one).lines]
    return lines


def _field(field: Field, style: str) -> list[Text]:
    first, *rest = field.lines
    return [
        _line(f"{field.name:<{_WIDTH - 2}}  ", first, style),
        *[_line(" " * (_WIDTH - 2) + "| ", line, style) for line in rest],
    ]


def _line(margin: str, words: str, style: str) -> Text:
    text = Text(margin, style="dim")
    text.append(_marked(words, style))
    return text


def _change(line: str) -> Text:
    style = next((style for sign, style in _CHANGES if line.startswith(sign)), "")
    return Text("  ").append(_marked(line, style))


def _marked(words: str, style: str) -> Text:
    """The words with every escape standing out."""
    text = Text(words, style=style)
    text.highlight_regex(_ESCAPE, "bold reverse red")
    return text
