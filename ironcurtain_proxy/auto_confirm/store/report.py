"""One HTML page about what the engine did: no script, nothing fetched, light and dark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.auto_confirm.store import plots
from ironcurtain_proxy.auto_confirm.store.metrics import (
    LATENCY_TARGET_MS,
    RESPONSE_TARGET_SECONDS,
    SAFE_TARGET,
    Distribution,
    Metrics,
    Ratio,
)
from ironcurtain_proxy.auto_confirm.store.plots import shown
from ironcurtain_proxy.auto_confirm.store.series import RESPONSE_BOUNDS, Series

_UNKNOWN: Final = "n/a"

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
"""Were something of an agent's words to become markup after all, it could still do nothing."""

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
section{min-width:0}section:last-child{grid-column:1/-1}
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
td+td,th+th{text-align:right;white-space:nowrap;padding-left:12px;
font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500}tr:last-child td{border-bottom:0}
.none{color:var(--dim);margin:0}
"""


@dataclass(frozen=True, slots=True)
class _Tile:
    name: str
    value: str
    aim: str
    met: bool | None
    """None: there is nothing to judge yet."""


def html(metrics: Metrics, series: Series) -> str:
    """The page, complete in itself. Times are UTC."""
    tiles = "".join(_tile(tile) for tile in _tiles(metrics))
    sections = "".join(
        f"<section><h2>{shown(title)}</h2>{inside}</section>" for title, inside in _sections(series)
    )
    when = f"{metrics.at:%Y-%m-%d %H:%M} UTC"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>ironcurtain-proxy: approvals, {when}</title><style>{_STYLE}</style></head><body>"
        "<h1>ironcurtain-proxy: approvals</h1>"
        f"<p>{metrics.interactions} permission prompts as of {when}. "
        "The audit log is the record; this is drawn from its index.</p>"
        f'<dl class="tiles">{tiles}</dl><div class="plots">{sections}</div></body></html>\n'
    )


def _tiles(metrics: Metrics) -> Iterator[_Tile]:
    yield _share(
        "Safe operations auto-approved",
        metrics.safe_auto_approved,
        SAFE_TARGET,
        "target: 95 % or more",
    )
    yield _share("High risk sent to a reviewer", metrics.high_risk_escalated, 1.0, "target: 100 %")
    yield _time(
        "Time to decide, p99", metrics.decision_ms, "ms", LATENCY_TARGET_MS, "target: below 100 ms"
    )
    yield _time(
        "Reviewers' response, p99",
        metrics.response_seconds,
        "s",
        RESPONSE_TARGET_SECONDS,
        "target: below 5 minutes",
    )
    yield _zero("Manual interventions", metrics.manual_interventions)
    yield _zero("Stuck sessions", metrics.stuck_sessions)
    yield _share("Interactions with a decision", metrics.audited, 1.0, "target: 100 %")
    approved, escalated = metrics.auto_approved.value, metrics.escalated.value
    words = (
        _UNKNOWN
        if approved is None or escalated is None
        else f"{_percent(approved)} / {_percent(escalated)}"
    )
    yield _Tile(
        "Approved by the engine / sent to a reviewer",
        words,
        "of all prompts; expected where work is routine: 99 % / 1 %",
        None,
    )


def _share(name: str, ratio: Ratio, target: float, aim: str) -> _Tile:
    if ratio.value is None:
        return _Tile(name, _UNKNOWN, aim, None)
    told = f"{aim}; {ratio.part} of {ratio.whole}"
    return _Tile(name, _percent(ratio.value), told, ratio.value >= target)


def _percent(share: float) -> str:
    """Rounded down, so that 99.96 % is not shown as 100 %."""
    return f"{int(share * 1000 + 1e-9) / 10:g} %"


def _time(name: str, found: Distribution, unit: str, target: float, aim: str) -> _Tile:
    if found.p99 is None or found.p50 is None:
        return _Tile(name, _UNKNOWN, aim, None)
    told = f"{aim}; p50 {_short(found.p50)} {unit}"
    return _Tile(name, f"{_short(found.p99)} {unit}", told, found.p99 < target)


def _zero(name: str, count: int) -> _Tile:
    return _Tile(name, str(count), "target: 0", count == 0)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004  two digits suffice


def _tile(tile: _Tile) -> str:
    judged = "" if tile.met is None else (" met" if tile.met else " missed")
    return (
        f'<div class="tile"><dt>{shown(tile.name)}</dt><dd>{shown(tile.value)}</dd>'
        f'<dd class="aim{judged}">{shown(tile.aim)}</dd></div>'
    )


_NOTHING: Final = '<p class="none">Nothing yet.</p>'


def _sections(series: Series) -> Iterator[tuple[str, str]]:
    slots, step = series.slots, series.step
    title = "Prompts over time, by what became of them"
    occurring = plots.used([slot.decisions for slot in slots])
    inside = plots.stacked_over_time(slots, step, title) + plots.legend(occurring) if slots else ""
    yield title, inside or _NOTHING
    title = "Safe operations approved without a reviewer"
    judged = any(slot.safe_decided for slot in slots)
    yield title, plots.rate_over_time(slots, step, SAFE_TARGET, title) if judged else _NOTHING
    title = "Prompts by risk band, and what became of them"
    found = plots.used(list(series.bands.values()))
    yield (
        title,
        plots.stacked_rows(series.bands, title) + plots.legend(found) if found else _NOTHING,
    )
    title = "Reviewers' response times"
    answered = any(series.responses)
    late = RESPONSE_BOUNDS.index(RESPONSE_TARGET_SECONDS) + 1
    labels = _response_labels()
    yield title, plots.histogram(series.responses, labels, late, title) if answered else _NOTHING
    yield "Most frequent reasons not to approve", _reasons(series.reasons)


def _response_labels() -> list[str]:
    bounds = [f"{b:g} s" if b < 60 else f"{b / 60:g} min" for b in RESPONSE_BOUNDS]  # noqa: PLR2004  a minute
    return [f"< {bound}" for bound in bounds] + [f"≥ {bounds[-1]}"]


def _reasons(reasons: Sequence[tuple[str, int]]) -> str:
    if not reasons:
        return _NOTHING
    rows = "".join(
        f"<tr><td>{shown(_in_words(reason))}</td><td>{count}</td></tr>" for reason, count in reasons
    )
    return f"<table><tr><th>Reason</th><th>Decisions</th></tr>{rows}</table>"


def _in_words(reason: str) -> str:
    """A reason that only names who decided, as a sentence."""
    kind, _, name = reason.partition(":")
    if kind == "reviewer" and name and " " not in name:
        return f"refused by {name}"
    return {"human": "refused by a person", "timeout": "no answer in time"}.get(reason, reason)
