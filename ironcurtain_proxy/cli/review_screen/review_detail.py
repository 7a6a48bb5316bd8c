"""One request as styled lines for the live screen.

The words come from `display`, which has made everything visible; here they only get colours.
"""

import re
from collections.abc import Sequence
from typing import Final

from rich.text import Text

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


def detail_of(
    one: PendingRequest, changes: Sequence[str], width: int, asker: str = ""
) -> list[Text]:
    """All details of a request for a reviewer, in lines of at most `width` columns.

    What would be done comes first, then why it is asked about; names for the record come last.

    Args:
        one: the question.
        changes: the lines of the diff.
        width: the columns of the screen.
        asker: who asks, in words; empty: not known.
    """
    lines = [Text(part, style="bold") for part in fold(summary(one), width)]
    if asker:
        lines += [Text(part, style="dim") for part in fold(asker, width)]
    lines.append(Text())
    arguments = arguments_of(one)
    for field in arguments:
        lines += _field(field, width, "")
    if not arguments:
        lines.append(Text("  no arguments", style="dim"))
    if changes:
        lines += _heading("What it changes")
        lines += [part for line in changes for part in _change(line, width)]
    lines += _heading("Why it is asked about")
    for field in reasons_of(one):
        lines += _field(field, width, "bold" if field.name == "why" else "")
    more = "; a number, one of the others" if len(one.request.candidates) > 1 else ""
    lines += _heading(f"What r would remember{more}")
    lines += [Text(f"  {line}") for line in remembered(one).lines]
    lines += _heading("For the record")
    for field in metadata_of(one):
        lines += _field(field, width, "dim")
    return lines


def _heading(words: str) -> list[Text]:
    return [Text(), Text(words, style="bold underline")]


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
