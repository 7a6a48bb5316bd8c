"""What `pending`, `approve`, `deny` and `review` have in common. Not a command itself."""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.review.mailbox_directory import MailboxDirectory
from ironcurtain_proxy.session.answering import Verdict, answer
from ironcurtain_proxy.session.display import summary
from ironcurtain_proxy.session.mailboxes import Mailboxes, NotPendingError, find
from ironcurtain_proxy.session.requests import PendingRequest, sessions_directory, utc_now


def add_directories(parser: argparse.ArgumentParser) -> None:
    """Add `--dir`."""
    parser.add_argument(
        "--dir",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        dest="directories",
        help="an escalation directory; may be repeated "
        "(default: ESCALATION_DIR, and all sessions under ~/.ironcurtain/sessions)",
    )


def mailboxes_of(options: argparse.Namespace) -> Mailboxes:
    """Those named; else the environment's and all sessions'."""
    named: list[Path] = [path.expanduser().absolute() for path in options.directories]
    if named:
        return Mailboxes(named, None)
    said = os.environ.get("ESCALATION_DIR", "")
    return Mailboxes([Path(said).expanduser()] if said else [], sessions_directory(Path.home()))


def existing_mailboxes_of(options: argparse.Namespace) -> Mailboxes:
    """The same, for a command that looks once.

    Raises:
        ConfigurationError: a directory that was named is not there, or cannot be used.
    """
    for path in options.directories:
        try:
            MailboxDirectory.open(path.expanduser().absolute(), create=False).close()
        except FileNotFoundError:
            raise ConfigurationError(f"--dir {path}: no such directory") from None
    return mailboxes_of(options)


def state_directory() -> Path:
    """Where the numbers of the last list are kept."""
    return sessions_directory(Path.home()).parent


def add_references(parser: argparse.ArgumentParser) -> None:
    """Add what `approve` and `deny` take."""
    parser.add_argument(
        "references",
        nargs="+",
        metavar="ID|N|all",
        help="an id or its beginning, a number that `pending` showed, or all",
    )
    parser.add_argument("--note", default="", metavar="WORDS", help="a word to the agent")
    add_directories(parser)


def answer_those(options: argparse.Namespace, verdict: Verdict) -> int:
    """Answer what was named on the command line. 0 if every answer was taken."""
    mailboxes = existing_mailboxes_of(options)
    waiting = mailboxes.pending(utc_now())
    failures = 0
    for reference in options.references:
        try:
            chosen = _chosen(reference, waiting, approve=verdict.approved)
        except NotPendingError as error:
            complain(str(error))
            failures += 1
            continue
        failures += sum(not answer_one(mailboxes, one, verdict) for one in chosen)
    return 1 if failures else 0


def _chosen(
    reference: str, waiting: Sequence[PendingRequest], *, approve: bool
) -> list[PendingRequest]:
    if reference != "all":
        return [find(reference, waiting, state_directory())]
    return all_of(waiting, approve=approve)


def all_of(waiting: Sequence[PendingRequest], *, approve: bool) -> list[PendingRequest]:
    """What `all` stands for: everything, but of approvals only what R-28 lets go together.

    Raises:
        NotPendingError: there is nothing.
    """
    if not waiting:
        raise NotPendingError("nothing is pending")
    if not approve:
        return list(waiting)
    together = [one for one in waiting if one.request.may_be_answered_together]
    for one in waiting:
        if not one.request.may_be_answered_together:
            complain(f"{one.id[:8]} {summary(one)}: left out of all, approve it by its id")
    if not together:
        raise NotPendingError("nothing may be approved together with others")
    return together


def answer_one(mailboxes: Mailboxes, one: PendingRequest, verdict: Verdict) -> bool:
    """Answer one request and say what became of it."""
    told = f"{one.id[:8]} {summary(one)}"
    if verdict.remember is not None and verdict.remember >= len(one.request.candidates):
        complain(f"{told}: nothing of it can be remembered; approve it without")
        return False
    place = mailboxes.place_of(one)
    try:
        taken = place is not None and answer(place, one.request, verdict)
    except OSError as error:
        complain(f"{told}: the answer cannot be written: {error.strerror}")
        return False
    if not taken:
        complain(f"{told}: too late, no longer pending")
        return False
    say(f"{'approved' if verdict.approved else 'denied'} {told}")
    return True


def terminal_width() -> int | None:
    """The columns of the terminal that is written to; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(line: str) -> None:
    """A line of output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """A line about what went wrong."""
    sys.stderr.write(f"ironcurtain-proxy: {line}\n")
