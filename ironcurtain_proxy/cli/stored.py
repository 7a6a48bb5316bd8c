"""The parts shared by `metrics`, `report` and `patterns`. Not a command itself."""

import argparse
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ironcurtain_proxy.cli.selecting import span
from ironcurtain_proxy.config.extras import require, store_extra
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.own_process.clocks import SystemClock

if TYPE_CHECKING:
    from ironcurtain_proxy.auto_confirm.store.metrics import Metrics
    from ironcurtain_proxy.auto_confirm.store.store import Store


def add_since(parser: argparse.ArgumentParser) -> None:
    """Add `--since`."""
    parser.add_argument(
        "--since", type=span, metavar="SPAN", help="only the last 30m, 24h or 7d (default: all)"
    )


def opened_store(options: argparse.Namespace) -> "Store":
    """The store of the configuration, which must exist.

    Raises:
        ConfigurationError: the settings cannot be used.
        StoreError: there is no store, or it cannot be used.
    """
    return store_of(load_settings(os.environ.copy(), options.config))


def store_of(settings: Settings) -> "Store":
    """The store that these settings name, which must exist.

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
    """The time in `--since`; None: from the beginning."""
    span: timedelta | None = options.since
    return None if span is None else now - span
