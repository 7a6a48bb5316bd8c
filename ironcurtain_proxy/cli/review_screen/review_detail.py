"""One request as styled lines for the live screen.

The words come from `display`, which has made everything visible; here they only get colours.
"""

import re
from collections.abc import Sequence
from typing import Final

from rich.text import Text

from ironcurtain_proxy.mailbox.display import (
    MARGIN,
    Field,
    arguments_of,
    fields_of,
    fold,
    remembered,
    rows,
)
from ironcurtain_proxy.mailbox.requests import PendingRequest

_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[rt])")
_CHANGES: Final = (("+", "green"), ("-", "red"), ("@", "cyan"))


def detail_of(one: PendingRequest, changes: Sequence[str], width: int) -> list[Text]:
    """Everything a reviewer should know, in lines of at most `width` columns."""
    lines: list[Text] = []
    for field in fields_of(one):
        lines += _field(field, width, "bold" if field.name in ("tool", "why") else "")
    lines += [Text(), Text("Arguments, in full", style="bold underline")]
    arguments = arguments_of(one)
    for field in arguments:
        lines += _field(field, width, "")
    if not arguments:
        lines.append(Text("  none", style="dim"))
    if changes:
        lines += [Text(), Text("What it changes", style="bold underline")]
        lines += [part for line in changes for part in _change(line, width)]
    more = "; a number, one of the others" if len(one.request.candidates) > 1 else ""
    lines += [Text(), Text(f"What r would remember{more}", style="bold underline")]
    return [*lines, *[Text(f"  {line}") for line in remembered(one).lines]]


def _field(field: Field, width: int, style: str) -> list[Text]:
    return [
        Text().append(row[:MARGIN], "dim").append(_marked(row[MARGIN:], style))
        for row in rows(field, width)
    ]


def _change(line: str, width: int) -> list[Text]:
    style = next((style for sign, style in _CHANGES if line.startswith(sign)), "")
    first, *rest = fold(line, width - 4)
    wrapped = [Text("  : ", "dim").append(_marked(part, style)) for part in rest]
    return [Text("  ").append(_marked(first, style)), *wrapped]


def _marked(words: str, style: str) -> Text:
    """The words with every escape standing out."""
    text = Text(words, style=style)
    text.highlight_regex(_ESCAPE, "bold reverse red")
    return text
