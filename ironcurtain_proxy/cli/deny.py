"""`ironcurtain-proxy deny`: refuse a call that waits."""

import argparse
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.cli.reviewing import add_references, answer_those
from ironcurtain_proxy.mailbox.answering import Verdict

if TYPE_CHECKING:
    from ironcurtain_proxy.cli import Subparsers

EXAMPLES: Final = """\
Exit code 0: the proxy took every answer. 1: something was no longer pending, or never was.

examples:
  ironcurtain-proxy deny 7db5443e --note "use the copy in /srv/data"
  ironcurtain-proxy deny all
"""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "deny",
        help="refuse a call that waits, with a word to the agent",
        description="Refuse calls that wait; see `ironcurtain-proxy pending`.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_references(parser)


def run(options: argparse.Namespace) -> int:
    """Deny."""
    return answer_those(options, Verdict(approved=False, note=options.note))
