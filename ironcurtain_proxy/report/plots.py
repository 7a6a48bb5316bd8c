"""Plots as inline SVG, and the HTML page that holds them: figures, plots and tables.

The page has no script, fetches nothing, and is light or dark as the reader's system is. The caller
gives the names and their colours (`Palette`). Every text goes through `shown`: an agent's words
never become markup.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

# --- periods of equal length ----------------------------------------------------------------------
# Periods of equal length, as fine as the bars of a plot can be distinguished.


_STEPS: Final = tuple(timedelta(minutes=n) for n in (1, 5, 15, 60, 360, 1440, 10080))
_MOST_BARS: Final = 48
_EPOCH: Final = datetime(1970, 1, 5, tzinfo=UTC)
"""A Monday, so that weeks begin as weeks do."""


def step_for(times: Iterable[datetime]) -> timedelta:
    """Return the finest step whose bars can be distinguished."""
    found = list(times)
    if not found:
        return _STEPS[0]
    span = max(found) - min(found)
    return next((step for step in _STEPS if span / step < _MOST_BARS), _STEPS[-1])


def begin_of_stretch(time: datetime, step: timedelta) -> datetime:
    """Return the beginning of the period of a time."""
    return _EPOCH + (time - _EPOCH) // step * step


_WIDTH: Final = 500
"""About the pixels of a column of the page, so that a text is as large as the style says."""
_WIDE: Final = 1060
"""The same for both columns."""
_HEIGHT: Final = 220
_LEFT: Final = 40
_RIGHT: Final = 8
_TOP: Final = 12
_BOTTOM: Final = 28
_PLOT_HEIGHT: Final = _HEIGHT - _TOP - _BOTTOM
_ROW: Final = 30
_LABELS: Final = 6
_LABEL_ROOM: Final = 44
_LONGEST: Final = 90
_GAP: Final = 2
_WIDEST_BAR: Final = 40.0
_DAY: Final = timedelta(days=1)

Palette: TypeAlias = Mapping[str, str]
"""Names in the order of the legend, each with a class of the page's style: `c1` to `c5`."""


def shown(text: str, *, longest: int = _LONGEST) -> str:
    """Return text for a page: invisible characters escaped, cut to a length, without markup."""
    visible = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    cut = visible if len(visible) <= longest else visible[: longest - 1] + "…"
    return html.escape(cut)


def legend(counts: Sequence[Mapping[str, int]], palette: Palette) -> str:
    """Return the colours of the names that occur."""
    items = "".join(
        f'<li><span class="key {colour}"></span>{shown(name)}</li>'
        for name, colour in palette.items()
        if any(found.get(name, 0) for found in counts)
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


class Bar(NamedTuple):
    """The counts of one period."""

    start: datetime
    counts: Mapping[str, int]


def stacked_over_time(bars: Sequence[Bar], step: timedelta, title: str, palette: Palette) -> str:
    """Draw counts over time, a bar for each period, as wide as the page."""
    return _svg(title, _HEIGHT, "".join(_stacked_parts(bars, step, palette)), _WIDE)


def _stacked_parts(bars: Sequence[Bar], step: timedelta, palette: Palette) -> Iterator[str]:
    most = _ceiling(max(sum(bar.counts.values()) for bar in bars))
    yield from _grid([(value, str(value)) for value in _ticks(most)], most)
    for index, bar in enumerate(bars):
        x, width = _bar(index, len(bars))
        base = 0
        for name, colour in palette.items():
            count = bar.counts.get(name, 0)
            if count:
                top = base + count
                words = f"{_time(bar.start, step)}: {count} {name}"
                high = (top - base) / most * _PLOT_HEIGHT
                yield _rect(x, _y(top / most), width, high, colour, words)
                base = top
    yield from _time_axis([bar.start for bar in bars], step)


def stacked_rows(
    rows: Mapping[str, Mapping[str, int]], title: str, palette: Palette, *, left: int = 84
) -> str:
    """Draw a row of segments for each name.

    Args:
        rows: the counts by the name of the row.
        title: the text for screen readers.
        palette: the colours.
        left: the width of the names.
    """
    most = max(sum(counts.values()) for counts in rows.values())
    right = 56
    width = _WIDTH - left - right
    parts = []
    for index, (name, counts) in enumerate(rows.items()):
        y = _TOP + index * _ROW
        parts.append(_text(left - 10, y + 15, name, "end"))
        x = float(left)
        for kind, colour in palette.items():
            count = counts.get(kind, 0)
            if count:
                long = count / most * width
                parts.append(_rect(x, y, max(1.0, long - _GAP), 22, colour, f"{count} {kind}"))
                x += long
        parts.append(_text(x + 6, y + 15, str(sum(counts.values())), "start"))
    return _svg(title, _TOP + len(rows) * _ROW + 4, "".join(parts))


# --- parts ---------------------------------------------------------------------------------------


def _svg(title: str, height: int, inside: str, across: int = _WIDTH) -> str:
    box = f'viewBox="0 0 {across} {height}"'
    return f'<svg {box} role="img" aria-label="{shown(title)}">{inside}</svg>'


def _title(words: str) -> str:
    return f"<title>{shown(words)}</title>"


def _rect(x: float, y: float, width: float, height: float, colour: str, words: str) -> str:
    return (
        f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
        f' height="{max(0.5, height):.1f}" rx="1.5">{_title(words)}</rect>'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown(words)}</text>'


def _grid(ticks: Sequence[tuple[float, str]], most: float) -> Iterator[str]:
    for value, words in ticks:
        y = _y(value / most)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 6, y + 4, words, "end")


def _time_axis(starts: Sequence[datetime], step: timedelta) -> Iterator[str]:
    every = -(-len(starts) // _LABELS)
    for index in range(0, len(starts), every):
        x, width = _bar(index, len(starts))
        middle = x + width / 2
        words = _time(starts[index], step)
        if middle > _WIDE - _LABEL_ROOM:
            yield _text(_WIDE - _RIGHT, _HEIGHT - 8, words, "end")
        else:
            yield _text(middle, _HEIGHT - 8, words, "middle")


def _time(start: datetime, step: timedelta) -> str:
    if step >= _DAY:
        return f"{start:%Y-%m-%d}"
    return f"{start:%m-%d %H:%M}"


def _bar(index: int, count: int) -> tuple[float, float]:
    """Return where a bar begins, and its width."""
    space = (_WIDE - _LEFT - _RIGHT) / count
    width = min(_WIDEST_BAR, space - min(_GAP * 2, space / 4))
    return _LEFT + index * space + (space - width) / 2, width


def _y(share: float) -> float:
    return _TOP + (1 - share) * _PLOT_HEIGHT


def _ceiling(most: int) -> int:
    """Return the next round number that four lines divide evenly."""
    unit = 1
    while True:
        for factor in (4, 8, 12, 20, 40):
            if most <= factor * unit:
                return factor * unit
        unit *= 10


def _ticks(most: int) -> list[int]:
    return [most * part // 4 for part in range(5)]


# --- page


UNKNOWN: Final = "n/a"
_FULL: Final = '<section class="wide">'
NOTHING: Final = '<p class="none">Nothing yet.</p>'

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
"""The content security policy: an agent's words that became markup still could run nothing."""

_STYLE: Final = Path(__file__).with_name("page.css")


class Tile(Struct, frozen=True):
    """One figure."""

    name: str
    value: str
    about: str
    """The whole that it is a part of, or what else makes it clear."""


class ReportSection(Struct, frozen=True):
    """One plot or table."""

    title: str
    inside: str
    """Markup."""
    is_wide: bool = False
    """Whether it has the full width."""


class ReportPart(Struct, frozen=True):
    """The part of a report about one subject."""

    title: str
    lead: str
    """One or two sentences below the title."""
    tiles: Sequence[Tile]
    sections: Sequence[ReportSection]


_WORD: Final = 14
"""The most letters of a word that is never broken."""


def page(part: ReportPart, at: datetime) -> str:
    """Return the page about one subject, complete in itself. The time is UTC."""
    title, style = f"ironcurtain-proxy: {part.title}", _STYLE.read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{shown(title)}, {at:%Y-%m-%d %H:%M} UTC</title><style>{style}</style></head>"
        f"<body><main><h1>{shown(title)}</h1>{part_of_page(part)}"
        "</main></body></html>\n"
    )


def part_of_page(part: ReportPart) -> str:
    """Return one subject as markup, without its title."""
    tiles = "".join(_tile(tile) for tile in part.tiles)
    sections = "".join(
        f"{_FULL if one.is_wide else '<section>'}<h2>{shown(one.title)}</h2>{one.inside}</section>"
        for one in part.sections
    )
    return (
        f"<p>{shown(part.lead, longest=400)}</p>"
        f'<dl class="tiles">{tiles}</dl><div class="plots">{sections}</div>'
    )


def _tile(tile: Tile) -> str:
    return (
        f'<div class="tile"><dt>{shown(tile.name)}</dt><dd>{shown(tile.value)}</dd>'
        f'<dd class="aim">{shown(tile.about)}</dd></div>'
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
