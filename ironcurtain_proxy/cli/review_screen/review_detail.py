"""One request as styled lines for the live screen.

The words come from `display`, which has made everything visible; here they only get colours.
"""

import re
from typing import Final, NamedTuple

from rich.text import Text

from ironcurtain_proxy.mailbox.changes import ShownChange
from ironcurtain_proxy.mailbox.display import (
    Field,
    arguments_of,
    margin,
    metadata_of,
    reasons_of,
    remembered,
    rows,
    summary,
)
from ironcurtain_proxy.mailbox.requests import PendingRequest
from ironcurtain_proxy.model.question import fold

_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[rt])")
_CHANGES: Final = (("+", "green"), ("-", "red"), ("@", "cyan"), ("(", "bold yellow"))


class Detail(NamedTuple):
    """A request for a reviewer."""

    lines: list[Text]
    needed: int
    """The number of lines that must have been on the screen before the request can be approved.
    Those after them are for the record."""


def detail_of(one: PendingRequest, change: ShownChange, width: int, asker: str = "") -> Detail:
    """Return all details of a request, in lines of at most `width` columns.

    The reason of the question comes first, then what would be done and what can be remembered. The
    names for the record come last.

    Args:
        one: the question.
        change: the diff. Arguments that it shows in full are not shown again.
        width: the columns of the screen.
        asker: who asks, in words; empty where it is not known.
    """
    lines = [Text(part, style="bold") for part in fold(summary(one), width)]
    if asker:
        lines += [Text(part, style="dim") for part in fold(asker, width)]
    for field in reasons_of(one):
        lines += _field(field, width, "bold" if field.name == "why" else "")
    arguments = arguments_of(one, without=change.shows)
    for field in arguments:
        lines += _field(field, width, "")
    if not arguments and not change.shows:
        lines.append(Text("    no arguments", style="dim"))
    if change.lines:
        lines.append(Text("What it changes", style="bold underline"))
        lines += [part for line in change.lines for part in _change(line, width)]
    first, *others = remembered(one).lines
    named = f"r: {first}" if one.request.candidates else first
    lines += _field(Field("remember", (named, *others)), width, "")
    needed = len(lines)
    lines += [Text(), Text("For the record", style="bold underline")]
    for field in metadata_of(one):
        lines += _field(field, width, "dim")
    return Detail(lines, needed)


def _field(field: Field, width: int, style: str) -> list[Text]:
    before = margin(width)
    return [
        Text().append(row[:before], "dim").append(_marked(row[before:], style))
        for row in rows(field, width)
    ]


def _change(line: str, width: int) -> list[Text]:
    style = next((style for sign, style in _CHANGES if line.startswith(sign)), "")
    first, *rest = fold(line, width - 4)
    wrapped = [Text("  : ", "dim").append(_marked(part, style)) for part in rest]
    return [Text("  ").append(_marked(first, style)), *wrapped]


def _marked(words: str, style: str) -> Text:
    """The text with every escape highlighted."""
    text = Text(words, style=style)
    text.highlight_regex(_ESCAPE, "bold reverse red")
    return text
