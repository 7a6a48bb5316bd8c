"""`ironcurtain-proxy approve`: approve a call that waits."""

import argparse
from typing import Final

from ironcurtain_proxy.cli.arguments import whole
from ironcurtain_proxy.cli.reviewing import add_references, answer_changed, answer_those
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer

DESCRIPTION: Final = "Approve calls that wait; `ironcurtain-proxy pending` lists them."

EXAMPLES: Final = """\
`all` takes only calls that are known to be harmless: approve each other call by its id.

examples:
  ironcurtain-proxy approve 7db5443e
  ironcurtain-proxy approve 1 --remember
  ironcurtain-proxy approve 1 --kind 2
  ironcurtain-proxy approve all
  ironcurtain-proxy approve 1 --args '{"path": "/srv/notes"}'
  ironcurtain-proxy approve 7db5443e --key ~/.ssh/id_ed25519.pub
  ironcurtain-proxy approve 7db5443e --dir ~/review --as night-shift --token-file ~/night.token

exit status: 0 the proxy took every answer; 1 a call was not pending, or no longer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_references(parser)
    parser.add_argument(
        "--remember",
        action="store_true",
        help="also allow similar calls for the rest of the session",
    )
    parser.add_argument(
        "--kind",
        type=whole(1),
        metavar="N",
        help="remember the N-th candidate that `pending` lists (default: the first)",
    )
    parser.add_argument(
        "--args",
        metavar="JSON",
        help="approve the call with these arguments in place of the agent's; the policy judges it "
        "again",
    )


def run(options: argparse.Namespace) -> int:
    """Approve the named requests."""
    remember = 0 if options.remember else None
    if options.kind is not None:
        remember = options.kind - 1
    answer = ReviewerAnswer(approved=True, remember=remember, note=options.note)
    if options.args is None:
        return answer_those(options, answer)
    if remember is not None or options.key is not None or options.reviewer:
        raise ConfigurationError("--args goes with no --remember, --kind, --key and --as")
    return answer_changed(options, answer, options.args)
