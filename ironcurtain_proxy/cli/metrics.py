"""`ironcurtain-proxy metrics`: metrics of the auto-confirm engine, and its store for commands."""

import argparse
import os
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.cli.arguments import add_config, add_json, span
from ironcurtain_proxy.cli.output import say, say_json
from ironcurtain_proxy.config.extras import require, store_extra
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.own_process.clocks import SystemClock

if TYPE_CHECKING:
    from ironcurtain_proxy.auto_confirm.store.metrics import Metrics
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

exit status: 0 for any values; 2 if the configuration cannot be used
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
    from ironcurtain_proxy.auto_confirm.store.metrics import (  # noqa: PLC0415  slow
        as_json,
        as_lines,
        as_prometheus,
    )

    now = SystemClock().now()
    settings = load_settings(os.environ.copy(), options.config)
    with store_of(settings) as store:
        metrics = metrics_of(settings, store, now, begin_of(options, now))
    if options.prometheus:
        sys.stdout.write(as_prometheus(metrics))
    elif options.json:
        say_json(as_json(metrics))
    else:
        for line in as_lines(metrics):
            say(line)
    return 0
