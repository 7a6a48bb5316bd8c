"""`ironcurtain-proxy metrics`: metrics of the auto-confirm engine."""

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.cli.arguments import add_config, add_json, span
from ironcurtain_proxy.cli.output import say, say_json
from ironcurtain_proxy.config.extras import require, store_extra
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.own_process.clocks import SystemClock

if TYPE_CHECKING:
    from ironcurtain_proxy.auto_confirm.store.metrics import Distribution, Metrics, Ratio
    from ironcurtain_proxy.auto_confirm.store.store import Store

# --- the store, opened for a command --------------------------------------------------------------
# The parts shared by `metrics`, `report` and `patterns`. Not a command itself.


def add_since(parser: argparse.ArgumentParser) -> None:
    """Add `--since`."""
    parser.add_argument(
        "--since", type=span, metavar="SPAN", help="only the last 30m, 24h or 7d (default: all)"
    )


def opened_store(options: argparse.Namespace) -> "Store":
    """Return the store of the configuration, which must exist.

    Raises:
        ConfigurationError: the settings cannot be used.
        StoreError: there is no store, or it cannot be used.
    """
    return store_of(load_settings(os.environ.copy(), options.config))


def store_of(settings: Settings) -> "Store":
    """Return the store that these settings name, which must exist.

    Raises:
        ConfigurationError: its library is not installed.
        StoreError: the store does not exist, or cannot be used.
    """
    config = settings.auto_confirm
    url = None if config is None else config.store_url
    require(store_extra(url), "the store of the auto-confirm engine")
    # SQLAlchemy is slow to import; the help of other commands does not need it.
    from ironcurtain_proxy.auto_confirm.store.store import open_store  # noqa: PLC0415

    return open_store(url, settings.state_dir, SystemClock(), create=False)


def metrics_of(
    settings: Settings, store: "Store", now: datetime, since: datetime | None
) -> "Metrics":
    """Return the metrics of a store, with what sessions of this machine could not write.

    Raises:
        StoreError: it cannot be read.
    """
    from ironcurtain_proxy.auto_confirm.owed import unwritten_questions  # noqa: PLC0415  slow
    from ironcurtain_proxy.auto_confirm.store.metrics import compute  # noqa: PLC0415  slow

    config = settings.auto_confirm
    first = since
    if config is not None and config.keep_days:
        # The rows of older questions may have been removed.
        kept = now - timedelta(days=config.keep_days)
        first = kept if since is None else max(since, kept)
    return compute(store, now, since, [*unwritten_questions(settings.state_dir, first)])


def begin_of(options: argparse.Namespace, now: datetime) -> datetime | None:
    """Return the time in `--since`, or None for the beginning."""
    span: timedelta | None = options.since
    return None if span is None else now - span


DESCRIPTION: Final = "Show the auto-confirm engine's metrics beside their targets."

EXAMPLES: Final = """\
The numbers come from the store of the auto-confirm engine. The audit log is the record.

examples:
  ironcurtain-proxy metrics
  ironcurtain-proxy metrics --since 24h --json
  ironcurtain-proxy metrics --prometheus > /var/lib/node_exporter/ironcurtain.prom

exit status: 0, whatever the values; 2 if the configuration cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--prometheus", action="store_true", help="write Prometheus' text format")
    add_since(parser)
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Print the metrics. 0 even if a target is missed."""
    require("engine", "metrics")
    from ironcurtain_proxy.auto_confirm.store.metrics import as_prometheus  # noqa: PLC0415  slow

    now = SystemClock().now()
    settings = load_settings(os.environ.copy(), options.config)
    with store_of(settings) as store:
        metrics = metrics_of(settings, store, now, begin_of(options, now))
    if options.prometheus:
        sys.stdout.write(as_prometheus(metrics))
    elif options.json:
        say_json(_json(metrics))
    else:
        for line in _lines(metrics):
            say(line.text())
    return 0


@dataclass(frozen=True, slots=True)
class _SampleLine:
    name: str
    value: str
    target: str = ""
    met: bool | None = None
    """Whether the value meets the target; None: there is no target, or no data yet."""

    def text(self) -> str:
        judged = {None: "", True: "✓ ", False: "✗ missed, "}[self.met]
        return f"{self.name:<34} {self.value:<42} {judged}{self.target}".rstrip()


def _lines(metrics: "Metrics") -> Iterator[_SampleLine]:
    from ironcurtain_proxy.auto_confirm.store.metrics import (  # noqa: PLC0415  slow
        LATENCY_TARGET_MS,
        RESPONSE_TARGET_SECONDS,
        SAFE_TARGET,
        is_none,
        is_quick,
        is_share_met,
        is_without_people,
    )

    def share(name: str, ratio: "Ratio", target: float) -> _SampleLine:
        aim = "target: 100%" if target == 1.0 else f"target: {target:.0%} or more"
        return _SampleLine(name, _ratio(ratio), aim, is_share_met(metrics, ratio, target))

    yield _SampleLine("interactions", str(metrics.interactions))
    yield _SampleLine(
        "missing from the store",
        str(metrics.missing),
        "target: 0",
        False if metrics.missing else None,
    )
    yield share("safe operations auto-approved", metrics.safe_auto_approved, SAFE_TARGET)
    yield _SampleLine(
        "time to decide, p50 / p99",
        _spread(metrics.decision_ms, "ms"),
        "target: below 100 ms",
        is_quick(metrics.decision_ms, LATENCY_TARGET_MS),
    )
    yield _SampleLine(
        "manual interventions",
        str(metrics.manual_interventions),
        "target: 0",
        is_without_people(metrics),
    )
    yield share("high risk sent to a reviewer", metrics.high_risk_escalated, 1.0)
    yield _SampleLine(
        "reviewers' response, p50 / p99",
        _spread(metrics.response_seconds, "s"),
        "target: below 300 s",
        is_quick(metrics.response_seconds, RESPONSE_TARGET_SECONDS, metrics.answered.whole),
    )
    yield _SampleLine("questions that reviewers answered", _ratio(metrics.answered))
    yield _SampleLine(
        "refused, no reviewer was asked",
        _ratio(metrics.unasked),
        "target: 0",
        is_none(metrics, metrics.unasked.part),
    )
    yield _SampleLine(
        "stuck sessions",
        str(metrics.stuck_sessions),
        "target: 0",
        is_none(metrics, metrics.stuck_sessions),
    )
    yield share("interactions with a decision", metrics.audited, 1.0)
    yield _SampleLine("auto-approved", _ratio(metrics.auto_approved), "expected: 99%")
    yield _SampleLine("sent to a reviewer", _ratio(metrics.escalated), "expected: 1%")
    yield _SampleLine("passed on to another reviewer", str(metrics.passed_on))


def _ratio(ratio: "Ratio") -> str:
    told = f"{ratio.part} of {ratio.whole}"
    # Rounded down, so that 99.96% is not shown as reached.
    if ratio.value is not None:
        told += f" ({int(ratio.value * 1000 + 1e-9) / 10:.1f}%)"
    return f"{told} {ratio.of}"


def _spread(found: "Distribution", unit: str) -> str:
    if found.p50 is None or found.p99 is None:
        return "n/a"
    return f"{found.p50:.3g} / {found.p99:.3g} {unit} of {found.count}"


def _json(metrics: "Metrics") -> dict[str, Json]:
    decisions: list[Json] = [
        {"decision": decision, "decidedBy": who, "count": count}
        for (decision, who), count in metrics.decisions.items()
    ]
    return {
        "at": metrics.at.isoformat(),
        "interactions": metrics.interactions,
        "missing": metrics.missing,
        "safeAutoApproved": _ratio_json(metrics.safe_auto_approved),
        "decisionMs": _spread_json(metrics.decision_ms),
        "manualInterventions": metrics.manual_interventions,
        "highRiskEscalated": _ratio_json(metrics.high_risk_escalated),
        "unasked": _ratio_json(metrics.unasked),
        "answered": _ratio_json(metrics.answered),
        "responseSeconds": _spread_json(metrics.response_seconds),
        "stuckSessions": metrics.stuck_sessions,
        "audited": _ratio_json(metrics.audited),
        "autoApproved": _ratio_json(metrics.auto_approved),
        "escalated": _ratio_json(metrics.escalated),
        "passedOn": metrics.passed_on,
        "denominators": {
            "safeAutoApproved": metrics.safe_auto_approved.of,
            "highRiskEscalated": metrics.high_risk_escalated.of,
            "unasked": metrics.unasked.of,
            "answered": metrics.answered.of,
            "audited": metrics.audited.of,
            "autoApproved": metrics.auto_approved.of,
            "escalated": metrics.escalated.of,
        },
        "decisions": decisions,
        "statuses": dict(metrics.statuses),
        "bands": dict(metrics.bands),
    }


def _ratio_json(ratio: "Ratio") -> dict[str, Json]:
    return {"count": ratio.part, "of": ratio.whole, "rate": ratio.value}


def _spread_json(found: "Distribution") -> dict[str, Json]:
    return {
        "count": found.count,
        "p50": found.p50,
        "p99": found.p99,
        "withinTarget": found.within_target,
    }
