"""`ironcurtain-proxy audit`: read, follow and verify the audit log."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.calls import (
    LogFollower,
    RecordedCall,
    find_calls,
    last_calls,
    last_records,
    recorded_calls,
)
from ironcurtain_proxy.audit.display import CallTable, Selection, details, entry_of, printable
from ironcurtain_proxy.audit.export import as_csv, as_ocsf, as_otlp
from ironcurtain_proxy.audit.files import parsed
from ironcurtain_proxy.audit.known_logs import Member, all_logs, family
from ironcurtain_proxy.cli.arguments import (
    add_json,
    add_log,
    add_selection,
    add_subcommand,
    selection_of,
    whole,
)
from ironcurtain_proxy.cli.audit_ship import (
    SHIP_EXAMPLES,
    add_root,
    add_ship,
    ship,
    sign_roots,
    verify_heads,
)
from ironcurtain_proxy.cli.audit_whole import (
    MOST_NAMES,
    Logs,
    count_logs,
    local_time,
    no_log,
    say_raw,
    verify_logs,
)
from ironcurtain_proxy.cli.output import complain, say, terminal_width
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.private_files import write_pieces

_FORMATS: Final[dict[str, Callable[[Iterable[RecordedCall]], Iterator[bytes]]]] = {
    "csv": as_csv,
    "ocsf": as_ocsf,
    "otlp": as_otlp,
}


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit export`."""
    parser.add_argument(
        "--format",
        choices=[*_FORMATS],
        default="csv",
        dest="style",
        help="csv for a spreadsheet, ocsf for an event store, otlp for OpenTelemetry (default csv)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write (default: standard output)",
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
        # Arguments and reasons are not for everyone: only the user can read the file.
        write_pieces(output, lines)
    except OSError as error:
        raise ConfigurationError(f"--output {output}: {error.strerror or error}") from error
    complain(f"wrote {output}")
    return 0


DESCRIPTION: Final = """\
Read, follow and verify the audit log, which records every tool call: the request, the decision with
its rule, and the outcome. Clients that run at the same time have a log each. Without --log, all
your logs are read, also those that your proxies wrote in other places.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy audit tail              the last 20 calls
  ironcurtain-proxy audit tail -n 100 -f    the last 100, and each new call
  ironcurtain-proxy audit tail --denied --since 24h
  ironcurtain-proxy audit show 17           the call that `tail` lists as number 17
  ironcurtain-proxy audit show 75b32e3b     the call whose id begins with 75b32e3b
  ironcurtain-proxy audit verify            was a line edited, removed or reordered?
  ironcurtain-proxy audit stats --json
  ironcurtain-proxy audit export --format ocsf --since 7d

exit status: 0; 1 if `verify` found a change, or `show` found no such call; 2 if a log cannot be
read
"""

VERIFY_EXAMPLE: Final = """\
A program that can write both the log and its head file can forge both. Keep the digest that
`verify` prints in another place, and give it with --expect the next time: a log that was cut is
then found in any case. A log that a proxy wrote and that is gone is missed until you --forget it.

examples:
  ironcurtain-proxy audit verify
  ironcurtain-proxy audit verify --expect "$(cat /media/stick/anchor)"

exit status: 0 every line is as it was written; 1 a line is not, was added, or a log is gone;
2 there is no such log
"""

_POLL_SECONDS: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    commands = parser.add_subparsers(dest="audit_command", metavar="COMMAND", required=True)

    def command(name: str, words: str, epilog: str) -> argparse.ArgumentParser:
        added = add_subcommand(commands, name, words, epilog)
        if name == "show":
            added.add_argument(
                "reference",
                metavar="NUMBER|ID",
                help="the number that `tail` shows, or the beginning of an id",
            )
        added.add_argument("path", nargs="?", type=Path, metavar="LOG", help="the same as --log")
        add_log(added)
        add_json(added)
        return added

    tail = command(
        "tail", "show the last calls", "example:\n  ironcurtain-proxy audit tail -n 50 -f"
    )
    tail.add_argument(
        "-n", type=whole(0), default=20, metavar="N", help="the number of calls (default 20)"
    )
    tail.add_argument("-f", action="store_true", dest="follow", help="go on with each new call")
    add_selection(tail)
    command(
        "show",
        "show everything recorded of one call",
        "example:\n  ironcurtain-proxy audit show 42",
    )
    check = command(
        "verify", "check whether a record was changed, removed or reordered", VERIFY_EXAMPLE
    )
    check.add_argument(
        "--expect", metavar="HASH", help="the digest of a line that the log must hold"
    )
    check.add_argument(
        "--forget", type=Path, metavar="LOG", help="miss a log no more that you removed yourself"
    )
    check.add_argument(
        "--heads", type=Path, metavar="DIR", help="compare with the heads that were published"
    )
    check.add_argument(
        "--root-key",
        type=Path,
        action="append",
        metavar="PUB",
        help="with --heads: a key that signs the roots of the hours",
    )
    add_ship(command("ship", "send records to other machines", SHIP_EXAMPLES))
    add_root(
        command(
            "root",
            "sign the hourly root of published heads",
            "example:\n  ironcurtain-proxy audit root /mnt/fleet --key ci",
        )
    )
    export = command(
        "export",
        "write calls in the format of another program",
        "examples:\n"
        "  ironcurtain-proxy audit export --since 7d > week.csv\n"
        "  ironcurtain-proxy audit export --format otlp -o calls.jsonl\n\n"
        "exit status: 0; 2 if a log cannot be read or the file cannot be written",
    )
    add_export(export)
    command(
        "stats", "count the calls and the decisions", "example:\n  ironcurtain-proxy audit stats"
    )


def run(options: argparse.Namespace) -> int:
    """Run one of the sub-commands. Return 0 if no problem was found, else 1."""
    logs = logs_to_read(options.log or options.path)
    log = logs.log
    try:
        return _COMMANDS[options.audit_command](logs, options)
    except BrokenPipeError:
        raise
    except FileNotFoundError as error:
        raise no_log(log) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigurationError(
            f"audit log {log}: {why}; name another with --log or AUDIT_LOG_PATH"
        ) from error


def logs_to_read(named: Path | None) -> Logs:
    """Return the named log with those beside it, or None if all logs of the user."""
    if named is not None:
        log = named.expanduser()
        return Logs(log, lambda: family(log), state_directory(), is_named=True)
    log = default_log()
    state = state_directory()
    return Logs(log, lambda: all_logs(log, state), state, is_named=False)


def default_log() -> Path:
    """Return the log by the environment, or else by the configuration, or the standard one."""
    named = os.environ.get("AUDIT_LOG_PATH")
    if named:
        return Path(named).expanduser()
    return _configured_log() or state_directory() / "audit.jsonl"


def _configured_log() -> Path | None:
    """Return the log that the configuration file names."""
    file = os.environ.get("IRONCURTAIN_CONFIG")
    if not file and not (state_directory() / CONFIG_NAME).exists():
        return None
    from ironcurtain_proxy.config.settings import load_settings  # noqa: PLC0415  slow

    try:
        return load_settings(dict(os.environ)).audit.path
    except IronCurtainError:
        # `check` names the mistake in it. The log can be read all the same.
        return None


# --- tail ----------------------------------------------------------------------------------------


def _tail(logs: Logs, options: argparse.Namespace) -> int:
    members = logs.members()
    follower = LogFollower(logs.members) if options.follow else None
    chosen = selection_of(options)
    last = [] if options.json else last_calls(members, options.n, chosen)
    table = CallTable(
        longest_number=max([len(entry.number) for entry in last], default=0),
        width=terminal_width(),
        when=local_time,
        zone=datetime.fromtimestamp(0).astimezone().tzname() or "",
        is_colourful=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
    )
    if options.json:
        for raw in last_records(members, options.n, chosen):
            say_raw(raw)
    else:
        say("\n".join([table.header(), *[table.row(entry) for entry in last]]))
    if follower is None:
        return 0
    while True:
        for member, raw in follower.new_lines():
            _follow(member, raw, None if options.json else table, chosen)
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)


def _follow(member: Member, raw: bytes, table: CallTable | None, chosen: Selection) -> None:
    if table is None and chosen.is_everything:
        say_raw(raw)
        return
    fields = parsed(raw)
    if fields is None:
        return
    entry = entry_of(fields, member.process)
    if not chosen.matches(entry):
        return
    if table is None:
        say_raw(raw)
    elif not entry.is_intent:
        say(table.row(entry))


# --- show ----------------------------------------------------------------------------------------


def _show(logs: Logs, options: argparse.Namespace) -> int:
    reference: str = options.reference
    calls = find_calls(logs.members(), reference)
    if len(calls) > 1 and not options.json:
        names = ", ".join([printable(one.request_id) for one in calls[:MOST_NAMES]])
        complain(f"{len(calls)} calls begin with {printable(reference)}: {names}")
        return 1
    if not calls:
        complain(
            f"no record {printable(reference)} in {logs.log}; "
            "`ironcurtain-proxy audit tail` shows the numbers"
        )
        return 1
    shown = 0
    for line in [line for call in calls for line in call.lines]:
        if options.json:
            say_raw(line.raw or b"")
            continue
        shown += 1
        say(f"{'' if shown == 1 else os.linesep}{line.where}")
        for detail in details(parsed(line.raw or b"") or {}):
            say(f"  {detail}")
    return 0


def _verify(logs: Logs, options: argparse.Namespace) -> int:
    return verify_logs(logs, options, () if options.heads is None else verify_heads(logs, options))


# --- output --------------------------------------------------------------------------------------


_COMMANDS: Final[dict[str, Callable[[Logs, argparse.Namespace], int]]] = {
    "tail": _tail,
    "show": _show,
    "verify": _verify,
    "stats": count_logs,
    "export": export_calls,
    "ship": ship,
    "root": sign_roots,
}
