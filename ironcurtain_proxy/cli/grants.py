"""`ironcurtain-proxy grants`: what reviewers chose to remember, and taking it back."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from ironcurtain_proxy.cli.reviewing import add_directories, complain, say
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.review.mailbox_directory import MailboxDirectory, UnacceptableFileError
from ironcurtain_proxy.review.mailbox_grants import (
    GrantsAction,
    is_carried_out,
    put_command,
    read_grants,
)
from ironcurtain_proxy.session.display import visible
from ironcurtain_proxy.session.requests import session_mailboxes, sessions_directory

if TYPE_CHECKING:
    from ironcurtain_proxy.cli import Subparsers

EXAMPLES: Final = """\
Grants belong to a session and end with it. A grant is also void when its tool's definition changes.

examples:
  ironcurtain-proxy grants list
  ironcurtain-proxy grants revoke 3f2a
  ironcurtain-proxy grants clear
"""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "grants",
        help="list, revoke or clear remembered approvals",
        description="Show what reviewers chose to remember in running sessions, or take it back.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show them")
    listing.add_argument("--json", action="store_true", help="write JSON")
    revoking = actions.add_parser("revoke", help="take one back")
    revoking.add_argument("id", metavar="ID", help="its id, or the beginning of it")
    clearing = actions.add_parser("clear", help="take all back")
    for action in (listing, revoking, clearing):
        add_directories(action)


def run(options: argparse.Namespace) -> int:
    """Carry out one action. 1 if there was no such grant."""
    found = list(_grants(options))
    match options.action:
        case "list":
            _list(found, as_json=options.json)
            return 0
        case "revoke":
            return _revoke(found, options.id)
        case _:
            places = {grant.place.path: grant.place for grant in found}.values()
            cleared = [_command(place, "clear", None) for place in places]
            if not all(cleared):
                return 1
            say(f"cleared {len(found)} grant{'' if len(found) == 1 else 's'}")
            return 0


class _Shown:
    """One grant of one session, as the proxy shows it."""

    def __init__(self, place: MailboxDirectory, session: str, fields: dict[str, Json]) -> None:
        self.place = place
        self.session = session
        self.fields = fields
        self.id = str(fields.get("id"))


def _grants(options: argparse.Namespace) -> Iterator[_Shown]:
    for directory in _directories(options):
        try:
            place = MailboxDirectory.open(directory, create=False)
        except (OSError, ConfigurationError, UnacceptableFileError):
            continue
        shown = read_grants(place)
        grants = None if shown is None else shown.get("grants")
        for fields in grants if isinstance(grants, list) else []:
            if shown is not None and isinstance(fields, dict):
                yield _Shown(place, str(shown.get("session")), fields)


def _directories(options: argparse.Namespace) -> list[Path]:
    named: list[Path] = [path.expanduser().absolute() for path in options.directories]
    if named:
        return named
    said = os.environ.get("ESCALATION_DIR", "")
    first = [Path(said).expanduser()] if said else []
    return [*first, *session_mailboxes(sessions_directory(Path.home()))]


def _list(found: list[_Shown], *, as_json: bool) -> None:
    if as_json:
        listed = [{**grant.fields, "session": grant.session} for grant in found]
        sys.stdout.write(orjson.dumps(listed, option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    if not found:
        say("nothing is remembered")
    for grant in found:
        used = f"used {grant.fields.get('uses')} times, last {grant.fields.get('lastUsed')}"
        say(
            f"{visible(grant.id)[:8]}  {visible(str(grant.fields.get('description')))}  "
            f"({used if grant.fields.get('uses') else 'never used'}; "
            f"session {visible(grant.session)[:8]})"
        )


def _revoke(found: list[_Shown], reference: str) -> int:
    meant = [grant for grant in found if grant.id.startswith(reference)]
    if len(meant) != 1:
        complain(f"{reference!r} is {'no grant' if not meant else 'more than one grant'}")
        return 1
    if not _command(meant[0].place, "revoke", meant[0].id):
        return 1
    say(f"revoked {visible(meant[0].id)[:8]}")
    return 0


def _command(place: MailboxDirectory, action: GrantsAction, identifier: str | None) -> bool:
    """Have the proxy do it: it is said to be done only once it is."""
    if is_carried_out(place, put_command(place, action, identifier)):
        return True
    complain(f"no proxy answered in {place.path}: its session has ended, and its grants with it")
    return False
