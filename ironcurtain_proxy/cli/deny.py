"""`ironcurtain-proxy deny`: refuse a call that waits."""

import argparse
from typing import Final

from ironcurtain_proxy.cli.reviewing import add_references, answer_those
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer

DESCRIPTION: Final = "Refuse calls that wait; `ironcurtain-proxy pending` lists them."

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy deny 7db5443e --note "use the copy in /srv/data"
  ironcurtain-proxy deny all

exit status: 0 the proxy took every answer; 1 a call was not pending, or no longer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_references(parser)


def run(options: argparse.Namespace) -> int:
    """Deny the named requests."""
    return answer_those(options, ReviewerAnswer(approved=False, note=options.note))
