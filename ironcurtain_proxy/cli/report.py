"""`ironcurtain-proxy report`: one page about what the auto-confirm engine did."""

import argparse
import os
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.reviewing import say
from ironcurtain_proxy.cli.stored import add_config, add_since, begin_of, opened_store
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.own_process.clocks import SystemClock

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_PRIVATE: Final = 0o600

DESCRIPTION: Final = "Write an HTML page with plots of the auto-confirm engine's decisions."

EXAMPLES: Final = """\
The page is one HTML file that fetches nothing and runs nothing. Only you can read it.

examples:
  ironcurtain-proxy report
  ironcurtain-proxy report --since 7d --output week.html

exit status: 0; 2 if the page cannot be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("ironcurtain-report.html"),
        metavar="FILE",
        help="where to (default: ironcurtain-report.html)",
    )
    add_since(parser)
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Write it."""
    require("engine", "report")
    from ironcurtain_proxy.auto_confirm.store.metrics import compute  # noqa: PLC0415  slow to import
    from ironcurtain_proxy.auto_confirm.store.report import html  # noqa: PLC0415
    from ironcurtain_proxy.auto_confirm.store.series import collect  # noqa: PLC0415

    now = SystemClock().now()
    since = begin_of(options, now)
    with opened_store(options) as store:
        page = html(compute(store, now, since), collect(store, since))
    _write(options.output, page)
    say(f"wrote {options.output}")
    return 0


def _write(path: Path, page: str) -> None:
    try:
        # Reasons and names of sessions are in it: not for everyone.
        with os.fdopen(os.open(path, _FLAGS, _PRIVATE), "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        raise ConfigurationError(f"--output {path}: {error.strerror or error}") from error
