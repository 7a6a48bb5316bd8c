"""`ironcurtain-proxy window`: the testing and deployment windows of the auto-confirm engine."""

import argparse
from datetime import timedelta
from typing import Final

from ironcurtain_proxy.auto_confirm.windows import NAMES, Windows
from ironcurtain_proxy.cli.arguments import span
from ironcurtain_proxy.cli.output import say
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.mailbox.mailboxes import utc_now

DESCRIPTION: Final = """\
Open, close or show a window of the auto-confirm engine. During a testing window, the engine
approves calls of low risk without further evidence. During a deployment, it leaves every call to a
reviewer.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy window testing open --for 30m
  ironcurtain-proxy window deployment open --for 2h
  ironcurtain-proxy window deployment close
  ironcurtain-proxy window testing show

exit status: 0; 1 if it could not be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", choices=NAMES, help="the window")
    parser.add_argument("action", choices=("open", "close", "show"), help="the action")
    parser.add_argument(
        "--for",
        dest="span",
        type=span,
        default=timedelta(hours=1),
        metavar="SPAN",
        help="the length of the window, such as 30m or 2h (default 1h)",
    )


def run(options: argparse.Namespace) -> int:
    """Open or close a window.

    Raises:
        IronCurtainError: it could not be written.
    """
    windows = Windows(state_directory() / "windows")
    name = options.name
    try:
        if options.action == "open":
            windows.open(name, utc_now() + options.span)
        elif options.action == "close":
            windows.close(name)
    except OSError as error:
        raise IronCurtainError(f"{windows.directory}: {error.strerror}") from None
    ends = windows.ends(name)
    if ends is not None and utc_now() < ends:
        say(f"{name}: open until {ends.isoformat(timespec='seconds')}")
    else:
        say(f"{name}: closed")
    return 0
