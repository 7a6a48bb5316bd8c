"""The part of a report that is about the auto-confirm engine."""

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from ironcurtain_proxy.auto_confirm.store.metrics import (
    LATENCY_TARGET_MS,
    RESPONSE_TARGET_SECONDS,
    SAFE_TARGET,
    Distribution,
    Metrics,
    Ratio,
    is_none,
    is_quick,
    is_share_met,
    is_without_people,
)
from ironcurtain_proxy.auto_confirm.store.series import RESPONSE_BOUNDS, Series
from ironcurtain_proxy.model.decider import (
    Contained,
    Engine,
    Grants,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    of_record,
)
from ironcurtain_proxy.report import plots
from ironcurtain_proxy.report.page import (
    NOTHING,
    UNKNOWN,
    ReportPart,
    ReportSection,
    Tile,
    percent,
    table,
)

_PALETTE: Final[plots.Palette] = {
    "auto-approved": "c1",
    "approved": "c2",
    "waiting": "c3",
    "rejected": "c4",
    "timed out": "c5",
    "not asked": "c6",
}


def engine_part(metrics: Metrics, series: Series) -> ReportPart:
    """The engine's part of a report. Times are UTC."""
    return ReportPart(
        "auto-confirm engine",
        f"{metrics.interactions} permission prompts as of {metrics.at:%Y-%m-%d %H:%M} UTC"
        f"{_missing(metrics)}. "
        "The audit log is the record; this is drawn from its index.",
        list(_tiles(metrics)),
        list(_sections(series)),
    )


def _missing(metrics: Metrics) -> str:
    if not metrics.missing:
        return ""
    return f"; {metrics.missing} more were asked while the store failed and are missing"


def _tiles(metrics: Metrics) -> Iterator[Tile]:
    def share(name: str, ratio: Ratio, target: float, aim: str) -> Tile:
        if ratio.value is None:
            return Tile(name, UNKNOWN, aim, None)
        told = f"{aim}; {ratio.part} of {ratio.whole}"
        return Tile(name, percent(ratio.value), told, is_share_met(metrics, ratio, target))

    yield share(
        "SAFE and LOW operations auto-approved",
        metrics.safe_auto_approved,
        SAFE_TARGET,
        "target: 95 % or more",
    )
    yield share(
        "HIGH and CRITICAL risk sent to a reviewer",
        metrics.high_risk_escalated,
        1.0,
        "target: 100 %",
    )
    yield _time(
        "Time to decide, p99", metrics.decision_ms, "ms", LATENCY_TARGET_MS, "target: below 100 ms"
    )
    yield _time(
        "Reviewers' response, p99",
        metrics.response_seconds,
        "s",
        RESPONSE_TARGET_SECONDS,
        "target: below 5 minutes",
        metrics.answered.whole,
    )
    count = metrics.manual_interventions
    yield Tile("Manual interventions", str(count), "target: 0", is_without_people(metrics))
    lost = metrics.unasked
    told = f"target: 0; of {lost.whole} {lost.of}"
    yield Tile("Refused, no reviewer asked", str(lost.part), told, is_none(metrics, lost.part))
    stuck = metrics.stuck_sessions
    yield Tile("Stuck sessions", str(stuck), "target: 0", is_none(metrics, stuck))
    yield share(
        "Interactions, with the missing, that have a decision",
        metrics.audited,
        1.0,
        "target: 100 %",
    )
    approved, escalated = metrics.auto_approved.value, metrics.escalated.value
    words = (
        UNKNOWN
        if approved is None or escalated is None
        else f"{percent(approved)} / {percent(escalated)}"
    )
    yield Tile(
        "Approved by the engine / sent to a reviewer",
        words,
        f"of {metrics.interactions} prompts; expected where work is routine: 99 % / 1 %",
        None,
    )


def _time(
    name: str, found: Distribution, unit: str, target: float, aim: str, of: int | None = None
) -> Tile:
    met = is_quick(found, target, of)
    if found.p99 is None or found.p50 is None:
        return Tile(name, UNKNOWN, aim if of is None else f"{aim}; 0 of {of} answered", met)
    told = f"{aim}; p50 {_short(found.p50)} {unit}"
    if of is not None:
        told += f"; {found.count} of {of} answered"
    return Tile(name, f"{_short(found.p99)} {unit}", told, met)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004  two digits suffice


def _sections(series: Series) -> Iterator[ReportSection]:
    slots, step = series.slots, series.step
    title = "Prompts over time, by what became of them"
    bars = [plots.Bar(slot.start, slot.decisions) for slot in slots]
    inside = plots.stacked_over_time(bars, step, title, _PALETTE) if bars else NOTHING
    yield ReportSection(title, inside + plots.legend([bar.counts for bar in bars], _PALETTE))
    title = "Safe operations approved without a reviewer"
    rates = [plots.Rate(slot.start, slot.safe_approved, slot.safe_decided) for slot in slots]
    judged = any(rate.whole for rate in rates)
    yield ReportSection(
        title, plots.rate_over_time(rates, step, SAFE_TARGET, title) if judged else NOTHING
    )
    title = "Prompts by risk band, and what became of them"
    legend = plots.legend(list(series.bands.values()), _PALETTE)
    rows = plots.stacked_rows(series.bands, title, _PALETTE) + legend if legend else NOTHING
    yield ReportSection(title, rows)
    title = "Reviewers' response times"
    late = RESPONSE_BOUNDS.index(RESPONSE_TARGET_SECONDS) + 1
    answered = any(series.responses)
    times = plots.histogram(series.responses, _response_labels(), late, title)
    yield ReportSection(title, times if answered else NOTHING)
    yield ReportSection(
        "Most frequent reasons not to approve", _reasons(series.reasons), is_wide=True
    )


def _response_labels() -> list[str]:
    bounds = [f"{b:g} s" if b < 60 else f"{b / 60:g} min" for b in RESPONSE_BOUNDS]  # noqa: PLR2004  a minute
    return [f"< {bound}" for bound in bounds] + [f"≥ {bounds[-1]}"]


def _reasons(reasons: Sequence[tuple[str, int]]) -> str:
    return table(
        ("Reason", "Decisions"), [(_in_words(reason), str(count)) for reason, count in reasons]
    )


def _in_words(reason: str) -> str:
    """A sentence for a reason that only names who decided."""
    decider = of_record(reason)
    match decider:
        case Person():
            return "refused by a person"
        case Program(name=name) if " " not in name:
            return f"refused by {name}"
        case Nobody():
            return "no answer in time"
        case Program() | LlmApprover() | Engine() | Grants() | Contained() | ProxyItself() | None:
            return reason
        case _:
            assert_never(decider)
