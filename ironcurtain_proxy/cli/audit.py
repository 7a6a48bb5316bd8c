"""`ironcurtain-proxy audit`: read, follow and verify the audit log."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
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
from ironcurtain_proxy.audit.display import (
    REFUSALS,
    CallTable,
    Selection,
    details,
    entry_of,
    printable,
    shown_decider,
)
from ironcurtain_proxy.audit.files import parsed
from ironcurtain_proxy.audit.known_logs import Member, all_logs, family
from ironcurtain_proxy.audit.shipping import as_csv, as_ocsf, as_otlp
from ironcurtain_proxy.audit.verify import copies_in
from ironcurtain_proxy.cli.arguments import path_of
from ironcurtain_proxy.cli.audit_whole import (
    MOST_NAMES,
    Logs,
    count_logs,
    local_time,
    no_log,
    say_raw,
    ship,
    sign_roots,
    verify_heads,
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


def export_calls(logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit export`."""
    calls = recorded_calls(logs.members(), selection_of(options))
    # Where there is no log, this fails, before a header is written.
    first = [*islice(calls, 1)]
    lines = _FORMATS[options.style](chain(first, calls))
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
        if error.filename != str(output):
            raise
        raise ConfigurationError(f"--output {output}: {error.strerror or error}") from error
    complain(f"wrote {output}")
    return 0


_POLL_SECONDS: Final = 0.2


def run(options: argparse.Namespace) -> int:
    """Run one of the sub-commands. Return 0 if no problem was found, else 1."""
    logs = logs_to_read(options.log or options.path)
    log = logs.log
    try:
        return _COMMANDS[options.action](logs, options)
    except FileNotFoundError as error:
        raise no_log(log) from error
    except OSError as error:
        if error.filename is None:  # of the output
            raise
        why = error.strerror or str(error)
        raise ConfigurationError(
            f"audit log {log}: {why}; name another with --log or AUDIT_LOG_PATH"
        ) from error


def logs_to_read(named: Path | None) -> Logs:
    """Return the named log with those beside it, the copies in a directory, or all of the user."""
    state = state_directory()
    if named is None:
        log = default_log()
        return Logs(log, lambda: all_logs(log, state), state, is_named=False)
    if named.is_dir():
        copies = tuple([Member(path, machine) for machine, path in copies_in(named)])
        return Logs(named, lambda: copies, state, is_named=True)
    return Logs(named, lambda: family(named), state, is_named=True)


def default_log() -> Path:
    """Return the log by the environment, or else by the configuration, or the standard one."""
    named = os.environ.get("AUDIT_LOG_PATH")
    if named:
        return path_of(named)
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
        if not (last or options.json):
            complain("no such call: `ironcurtain-proxy audit verify` says if a line is no record")
        return 0
    while True:
        for member, raw in follower.new_lines():
            _follow(member, raw, None if options.json else table, chosen)
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)


def _follow(member: Member, raw: bytes, table: CallTable | None, chosen: Selection) -> None:
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


_WORDS: Final = {"denied": "DENIED", "refused": "REFUSED", "held": "HELD"}


def selection_of(options: argparse.Namespace) -> Selection:
    """Return the calls that the options choose."""
    decisions = {_WORDS.get(one, one) for one in options.decision}
    return Selection(
        since=options.since,
        until=options.until,
        decisions=frozenset(decisions | REFUSALS if options.denied else decisions),
        by=shown_decider(options.by),
        server=options.server,
        tool=options.tool,
        client=options.client,
        session=options.session,
        text=options.grep,
    )
