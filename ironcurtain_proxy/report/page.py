"""One HTML page: tiles with figures, plots and tables. No script, nothing fetched, light and dark.

Texts go through `plots.shown`, so that no words of an agent become markup.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ironcurtain_proxy.report.plots import shown

UNKNOWN: Final = "n/a"
_WIDE: Final = '<section class="wide">'
NOTHING: Final = '<p class="none">Nothing yet.</p>'

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
"""The content security policy: an agent's words that became markup still could run nothing."""

_STYLE: Final = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1c1e21;--dim:#62676e;--rule:#e3e4e6;
--c1:#2f7d6b;--c2:#3b6fb6;--c3:#c9962b;--c4:#b8473d;--c5:#7d5a9e;--ok:#2a7358;--bad:#b03a30}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1e2125;--ink:#e6e7e9;--dim:#9ba1a9;
--rule:#33373d;--c1:#4db399;--c2:#6d9fe3;--c3:#e0b455;--c4:#e57a6f;--c5:#b08fd4;--ok:#5cc29f;
--bad:#f08a80}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:28px 20px 48px;background:var(--bg);color:var(--ink);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:22px;margin:0 0 2px}h2{font-size:15px;margin:0 0 8px}
p{margin:0 0 20px;color:var(--dim)}
.tiles,.plots{display:grid;gap:14px}
.tiles{grid-template-columns:repeat(auto-fill,minmax(240px,1fr));margin-bottom:14px}
.plots{grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr))}
section,.tile{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:14px}
section{min-width:0}.wide{grid-column:1/-1}main>h1:not(:first-child){margin-top:36px}
.tile dt{color:var(--dim);font-size:13px}
.tile dd{margin:2px 0 0;font-size:24px;font-weight:600;font-variant-numeric:tabular-nums}
.tile .aim{font-size:12px;font-weight:400;color:var(--dim)}
.met::before{content:"\\2713  ";color:var(--ok);font-weight:700}
.missed::before{content:"\\2717  ";color:var(--bad);font-weight:700}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--dim);font-size:11px;font-family:inherit}
.grid{stroke:var(--rule)}.target{stroke:var(--c3);stroke-dasharray:5 4}
.line{fill:none;stroke:var(--c1);stroke-width:2}
.c1{fill:var(--c1);background:var(--c1)}.c2{fill:var(--c2);background:var(--c2)}
.c3{fill:var(--c3);background:var(--c3)}.c4{fill:var(--c4);background:var(--c4)}
.c5{fill:var(--c5);background:var(--c5)}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;list-style:none;margin:8px 0 0;padding:0;
font-size:12px;color:var(--dim)}
.key{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
table{border-collapse:collapse;width:100%;font-size:13px}
td,th{padding:5px 0;border-bottom:1px solid var(--rule);text-align:left;overflow-wrap:anywhere}
td,th{padding-right:8px}.w{white-space:nowrap}
td+td,th+th{padding-left:12px}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.wide table{min-width:720px}.wide td:first-child{white-space:nowrap}section{overflow-x:auto}
svg{min-width:460px}
th{color:var(--dim);font-weight:500}tr:last-child td{border-bottom:0}
.none{color:var(--dim);margin:0}
"""


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure."""

    name: str
    value: str
    aim: str
    """The target of the figure, or the whole that it is a part of."""
    met: bool | None = None
    """Whether the figure meets its target; None: it has none."""


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
    """The page, complete in itself.

    Args:
        parts: the parts; the first gives the page its title.
        at: UTC.
    """
    title = f"ironcurtain-proxy: {parts[0].title}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{shown(title)}, {at:%Y-%m-%d %H:%M} UTC</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{shown(title)}</h1>{part_of_page(parts[0])}"
        + "".join(f"<h1>{shown(part.title)}</h1>{part_of_page(part)}" for part in parts[1:])
        + "</main></body></html>\n"
    )


def part_of_page(part: ReportPart) -> str:
    """One subject as markup, without its title."""
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
    """Rounded to one place; only all is shown as 100 %, and only nothing as 0 %."""
    shown_share = round(share * 100, 1)
    if 0 < share < 1:
        shown_share = min(max(shown_share, 0.1), 99.9)
    return f"{shown_share:g} %"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts; numbers are aligned right."""
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
