"""The options that select calls of the audit log."""

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ironcurtain_proxy.audit.display import shown_decider
from ironcurtain_proxy.audit.selection import REFUSALS, Selection
from ironcurtain_proxy.own_process.clocks import SystemClock

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
