"""`ironcurtain-proxy containment`: sessions in which containment has ended, and its resumption."""

import argparse
from typing import Final

from ironcurtain_proxy.cli.arguments import add_subcommand
from ironcurtain_proxy.cli.output import complain, say
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.wiring.containment import EndedContainment, sessions_ended

DESCRIPTION: Final = """\
List the sessions in which containment has ended, each with the call after which it ended and the
files that were put back. Such a session asks about every call. Look at the files, and then run
`resume`: calls are contained again.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy containment                   the sessions, and the reason in each
  ironcurtain-proxy containment resume            the only session in which it has ended
  ironcurtain-proxy containment resume SESSION

exit status: 0; 1 if there is nothing to resume; 2 if the session is ambiguous
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    example = "example:\n  ironcurtain-proxy containment resume"
    resume = add_subcommand(actions, "resume", "contain the calls of a session again", example)
    resume.add_argument(
        "session",
        nargs="?",
        metavar="SESSION",
        help="the session (default: the only one in which containment has ended)",
    )


def run(options: argparse.Namespace) -> int:
    """List the sessions, or resume containment.

    Raises:
        ConfigurationError: the session to resume is ambiguous or unknown.
    """
    sessions = state_directory() / "sessions"
    found = list(sessions_ended(sessions))
    if options.action is None:
        for one in found:
            say(_shown(one))
        if not found:
            say("containment has ended in no session")
        return 0
    return _resume(found, options.session)


def _resume(found: list[EndedContainment], session: str | None) -> int:
    chosen = [one for one in found if session in (None, one.session)]
    if not chosen:
        complain(
            "there is nothing to resume: `ironcurtain-proxy containment` lists the sessions in "
            "which containment has ended"
        )
        return 1
    if len(chosen) > 1:
        names = ", ".join([visible(one.session) for one in chosen])
        raise ConfigurationError(f"containment has ended in several sessions: name one of {names}")
    chosen[0].file.unlink(missing_ok=True)
    say(f"calls of session {visible(chosen[0].session)} are contained again")
    return 0


def _shown(one: EndedContainment) -> str:
    after = f" after call {one.call}" if one.call else ""
    return visible(f"session {one.session}: containment has ended{after}: {one.why}")
