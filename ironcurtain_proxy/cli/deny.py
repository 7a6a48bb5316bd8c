"""`ironcurtain-proxy deny`: refuse a call that waits."""

import argparse
from typing import Final

from ironcurtain_proxy.cli.reviewing import add_references, answer_those
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer

DESCRIPTION: Final = "Refuse calls that wait; see `ironcurtain-proxy pending`."

EXAMPLES: Final = """\
Exit code 0: the proxy took every answer. 1: something was no longer pending, or never was.

examples:
  ironcurtain-proxy deny 7db5443e --note "use the copy in /srv/data"
  ironcurtain-proxy deny all
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_references(parser)


def run(options: argparse.Namespace) -> int:
    """Deny."""
    return answer_those(options, ReviewerAnswer(approved=False, note=options.note))
