"""Arguments that several commands share.

The arguments that many commands share, and their sub-commands.

The options that select calls of the audit log.
"""

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.display import REFUSALS, Selection, shown_decider
from ironcurtain_proxy.own_process.clocks import SystemClock

# --- arguments


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add `--config`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration file (default: the one that `serve` finds)",
    )


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_lines(parser: argparse.ArgumentParser) -> None:
    """Add `--jsonl`, and `--workspace`, which lines may replace."""
    parser.add_argument("--jsonl", action="store_true", help="read and write JSON lines")
    parser.add_argument(
        "--workspace", type=Path, metavar="DIR", help="the workspace (default: this directory)"
    )


def add_subcommand(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    help_line: str,
    epilog: str,
) -> argparse.ArgumentParser:
    """Add a sub-command.

    Args:
        commands: the sub-commands of a command.
        name: its name.
        help_line: a command such as "list the servers", which also begins its own help.
        epilog: examples and exit status.
    """
    sentence = f"{help_line[0].upper()}{help_line[1:]}."
    return commands.add_parser(name, help=help_line, description=sentence, epilog=epilog)


def whole(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number, from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read


def add_log(parser: argparse.ArgumentParser, default: str = "all of yours") -> None:
    """Add `--log`."""
    about = f"one audit log (default: {default})"
    parser.add_argument("--log", type=Path, metavar="PATH", help=about)


# --- selecting


_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([mhd])", re.ASCII)
_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_DECISIONS: Final = ("allowed", "approved", "denied", "refused", "held")
_WORDS: Final = {"denied": "DENIED", "refused": "REFUSED", "held": "HELD"}


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose calls."""
    group = parser.add_argument_group("which calls (all conditions must hold)")
    group.add_argument(
        "--since", type=moment, metavar="TIME", help="30m, 24h or 7d ago, or a date: 2026-11-21"
    )
    group.add_argument("--until", type=moment, metavar="TIME", help="before that time")
    group.add_argument(
        "--denied", action="store_true", help="calls that no server got: denied, refused or held"
    )
    group.add_argument(
        "--decision", action="append", choices=_DECISIONS, default=[], help="may be repeated"
    )
    group.add_argument("--by", default="", metavar="WHO", help="policy, person, grant, engine, …")
    group.add_argument("--server", default="", metavar="NAME", help="calls of this server")
    group.add_argument(
        "--tool", default="", metavar="TOOL", help="SERVER/TOOL or TOOL; * stands for anything"
    )
    group.add_argument("--client", default="", metavar="NAME", help="calls of this client")
    group.add_argument("--session", default="", metavar="ID", help="the beginning is enough")
    group.add_argument(
        "--grep", default="", metavar="TEXT", help="in tool, rule, argument or outcome"
    )


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


def span(text: str) -> timedelta:
    """Return a length of time, such as `30m`, `24h` or `7d`."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span such as 30m, 24h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def moment(text: str) -> datetime:
    """Return a time: a span before now, or a local date with or without a time of day."""
    if _SPAN.fullmatch(text):
        return SystemClock().now() - span(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a span such as 24h nor a date such as 2026-11-21"
        ) from None
    return found.astimezone(UTC)
