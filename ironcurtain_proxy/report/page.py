"""One HTML page: tiles with figures, plots and tables. No script, nothing fetched, light and dark.

Texts go through `plots.shown`, so that no words of an agent become markup.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from ironcurtain_proxy.report.plots import shown

UNKNOWN: Final = "n/a"
_WIDE: Final = '<section class="wide">'
NOTHING: Final = '<p class="none">Nothing yet.</p>'

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
"""The content security policy: an agent's words that became markup still could run nothing."""

_STYLE: Final = Path(__file__).with_suffix(".css")


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure."""

    name: str
    value: str
    aim: str
    """The target of the figure, or the whole that it is a part of."""
    met: bool | None = None
    """Whether the figure meets its target, or None if it has none."""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One plot or table."""

    title: str
    inside: str
    """Markup."""
    is_wide: bool = False
    """Whether it has the full width."""


@dataclass(frozen=True, slots=True)
class ReportPart:
    """The part of a report about one subject."""

    title: str
    lead: str
    """One or two sentences below the title."""
    tiles: Sequence[Tile]
    sections: Sequence[ReportSection]


_WORD: Final = 14
"""The most letters of a word that is never broken."""


def page(parts: Sequence[ReportPart], at: datetime) -> str:
    """Return the page, complete in itself.

    Args:
        parts: the parts; the first gives the page its title.
        at: UTC.
    """
    title, style = f"ironcurtain-proxy: {parts[0].title}", _STYLE.read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{shown(title)}, {at:%Y-%m-%d %H:%M} UTC</title><style>{style}</style></head>"
        f"<body><main><h1>{shown(title)}</h1>{part_of_page(parts[0])}"
        + "".join(f"<h1>{shown(part.title)}</h1>{part_of_page(part)}" for part in parts[1:])
        + "</main></body></html>\n"
    )


def part_of_page(part: ReportPart) -> str:
    """Return one subject as markup, without its title."""
    tiles = "".join(_tile(tile) for tile in part.tiles)
    sections = "".join(
        f"{_WIDE if one.is_wide else '<section>'}<h2>{shown(one.title)}</h2>{one.inside}</section>"
        for one in part.sections
    )
    return (
        f"<p>{shown(part.lead, longest=400)}</p>"
        f'<dl class="tiles">{tiles}</dl><div class="plots">{sections}</div>'
    )


def _tile(tile: Tile) -> str:
    judged = "" if tile.met is None else (" met" if tile.met else " missed")
    return (
        f'<div class="tile"><dt>{shown(tile.name)}</dt><dd>{shown(tile.value)}</dd>'
        f'<dd class="aim{judged}">{shown(tile.aim)}</dd></div>'
    )


def percent(share: float) -> str:
    """Round to one place. Only all is shown as 100 %, and only nothing as 0 %."""
    shown_share = round(share * 100, 1)
    if 0 < share < 1:
        shown_share = min(max(shown_share, 0.1), 99.9)
    return f"{shown_share:g} %"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of texts, numbers aligned right."""
    if not rows:
        return NOTHING
    head = "".join(_cell("th", title, like) for title, like in zip(titles, rows[0], strict=True))
    body = "".join(
        "<tr>" + "".join(_cell("td", cell, cell) for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(tag: str, text: str, like: str) -> str:
    kind = ' class="n"' if like.isdecimal() else ""
    if like.isalpha() and len(like) <= _WORD:
        kind = ' class="w"'
    return f"<{tag}{kind}>{shown(text)}</{tag}>"
