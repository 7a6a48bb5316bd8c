"""`audit export`: calls of the log in the format of another program."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.calls import RecordedCall, recorded_calls
from ironcurtain_proxy.audit.export.ocsf import as_ocsf
from ironcurtain_proxy.audit.export.otlp import as_otlp
from ironcurtain_proxy.audit.export.table import as_csv
from ironcurtain_proxy.cli.audit_whole import Logs
from ironcurtain_proxy.cli.selecting import add_selection, selection_of
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import write_pieces

_FORMATS: Final[dict[str, Callable[[Iterable[RecordedCall]], Iterator[bytes]]]] = {
    "csv": as_csv,
    "ocsf": as_ocsf,
    "otlp": as_otlp,
}


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--format",
        choices=[*_FORMATS],
        default="csv",
        dest="style",
        help="csv for a spreadsheet, ocsf for an event store, otlp for OpenTelemetry (default csv)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to (default: standard output)"
    )
    add_selection(parser)


def export_calls(logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit export`."""
    lines = _FORMATS[options.style](recorded_calls(logs.members(), selection_of(options)))
    output: Path | None = options.output
    if output is None:
        sys.stdout.flush()
        for line in lines:
            sys.stdout.buffer.write(line)
        return 0
    try:
        # Arguments and reasons stand in it: it is not for everyone.
        write_pieces(output, lines)
    except OSError as error:
        raise ConfigurationError(f"--output {output}: {error.strerror or error}") from error
    sys.stderr.write(f"ironcurtain-proxy: wrote {output}\n")
    return 0
