"""`ironcurtain-proxy report`: a page about calls, questions and refusals."""

import argparse
import os
from datetime import datetime
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.calls import recorded_calls
from ironcurtain_proxy.audit.display import Selection, printable
from ironcurtain_proxy.auto_confirm.store.files import STORE_NAME
from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.cli.arguments import add_config, add_json, add_log
from ironcurtain_proxy.cli.audit import logs_to_read
from ironcurtain_proxy.cli.audit_whole import local_time
from ironcurtain_proxy.cli.metrics import add_since, begin_of, metrics_of, store_of
from ironcurtain_proxy.cli.output import complain, say, say_json
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.own_process.clocks import SystemClock
from ironcurtain_proxy.private_files import write_whole
from ironcurtain_proxy.report.fleet import calls_part, count_calls
from ironcurtain_proxy.report.plots import ReportPart, page

DESCRIPTION: Final = """\
Write an HTML page about the calls of all your clients: the numbers of calls and questions, and the
refusals with their reasons. The page also shows the decisions of the auto-confirm engine, if it is
on.
"""

EXAMPLES: Final = """\
The page is one HTML file that fetches nothing and runs nothing. Only you can read it.

examples:
  ironcurtain-proxy report
  ironcurtain-proxy report --since 7d --output week.html
  ironcurtain-proxy report --fleet /mnt/fleet       questions and minutes by rule, team, machine

exit status: 0; 2 if a log cannot be read or the page cannot be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("ironcurtain-report.html"),
        metavar="FILE",
        help="the file to write (default: ironcurtain-report.html)",
    )
    parser.add_argument(
        "--fleet",
        type=Path,
        metavar="DIR",
        help="count the records of many machines, which `audit ship` has put there",
    )
    add_json(parser)
    add_log(parser)
    add_since(parser)
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Write the page, or count the records of a fleet."""
    if options.fleet is not None:
        return _fleet(options)
    now = SystemClock().now()
    since = begin_of(options, now)
    engine = _engine_part(options, now, since)
    try:
        members = logs_to_read(options.log).members()
        day = count_calls(recorded_calls(members, Selection(since=since)))
    except FileNotFoundError as error:
        if engine is None:
            raise ConfigurationError(f"{error}: no call was recorded yet") from error
        day = count_calls(())
    parts = [calls_part(day, now, local_time), *([] if engine is None else [engine])]
    try:
        # Arguments and reasons are not for everyone: only the user can read the file.
        write_whole(options.output, page(parts, now).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise ConfigurationError(f"--output {options.output}: {error.strerror or error}") from error
    say(f"wrote {options.output}")
    return 0


def _fleet(options: argparse.Namespace) -> int:
    # Only where it is asked for.
    from ironcurtain_proxy.report.fleet import (  # noqa: PLC0415
        count_fleet,
        fleet_fields,
        fleet_lines,
    )

    try:
        costs = count_fleet(options.fleet)
    except OSError as error:
        raise ConfigurationError(f"--fleet {options.fleet}: {error.strerror or error}") from error
    if not costs.whole.calls:
        raise ConfigurationError(f"--fleet {options.fleet} has no records of `audit ship`")
    if options.json:
        say_json(fleet_fields(costs))
        return 0
    for line in fleet_lines(costs):
        say(printable(line))
    return 0


def _engine_part(
    options: argparse.Namespace, now: datetime, since: datetime | None
) -> ReportPart | None:
    settings = load_settings(os.environ.copy(), options.config)
    if settings.auto_confirm is None and not (settings.state_dir / STORE_NAME).exists():
        return None
    try:
        with store_of(settings) as store:
            # SQLAlchemy is slow to import.
            from ironcurtain_proxy.auto_confirm.store.report import (  # noqa: PLC0415
                collect,
                engine_part,
            )

            return engine_part(metrics_of(settings, store, now, since), collect(store, since))
    except StoreError as error:
        complain(f"the page is without the engine: {error}")
        return None
