"""`ironcurtain-proxy containment`: sessions in which containment has ended, and its resumption."""

import argparse
from typing import Final

from ironcurtain_proxy.cli.output import complain, say
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.wiring.containment import EndedContainment, sessions_ended

DESCRIPTION: Final = """\
Show in which sessions containment has ended, after which call, and what was put back then. Every
call is asked about there. `resume` says that you have looked: calls are contained again.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy containment                   where it has ended, and why
  ironcurtain-proxy containment resume            in the one session where it has ended
  ironcurtain-proxy containment resume SESSION

exit status: 0; 1 if there is nothing to resume; 2 if the session is ambiguous
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    resume = actions.add_parser("resume", help="confirm that you have looked")
    resume.add_argument("session", nargs="?", help="needed where it has ended in several")


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
        complain("containment has ended in no such session")
        return 1
    if len(chosen) > 1:
        names = ", ".join([visible(one.session) for one in chosen])
        raise ConfigurationError(f"containment has ended in several sessions: name one of {names}")
    chosen[0].file.unlink(missing_ok=True)
    say(f"resumed in session {visible(chosen[0].session)}")
    return 0


def _shown(one: EndedContainment) -> str:
    after = f" after call {one.call}" if one.call else ""
    return visible(f"session {one.session}: containment has ended{after}: {one.why}")
