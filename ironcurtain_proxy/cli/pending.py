"""`ironcurtain-proxy pending`: the calls that wait for a person."""

import argparse
from datetime import datetime
from typing import Final

from ironcurtain_proxy.cli.arguments import add_json
from ironcurtain_proxy.cli.output import say, say_json, terminal_width
from ironcurtain_proxy.cli.reviewing import (
    add_database,
    add_directories,
    database_of,
    existing_mailboxes_of,
    state_directory,
)
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import changes_of
from ironcurtain_proxy.mailbox.display import banner
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, keep_numbers, utc_now
from ironcurtain_proxy.mailbox.messages import timestamp

DESCRIPTION: Final = "List the calls that wait for an approval, in full."

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy pending
  ironcurtain-proxy pending --database postgresql://fleet@db/fleet
  ironcurtain-proxy pending --json | jq '.[].id'

exit status: 0, also if no call waits
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_directories(parser)
    add_database(parser, "list the questions of all machines")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """List the calls that wait."""
    now = utc_now()
    waiting = _there(options, now) if options.database else _here(options, now)
    keep_numbers(waiting, state_directory())
    if options.json:
        listed = [_fields(one, number) for number, one in enumerate(waiting, 1)]
        say_json(listed)
        return 0
    width = terminal_width()
    lines: list[str] = [] if waiting else ["nothing is pending"]
    for number, one in enumerate(waiting, 1):
        # The files of another machine are not those of this one.
        diff = [] if options.database else changes_of(one.request.tool, one.request.arguments)
        lines += banner(one, number, now, diff, width)
    # Written at once: a thousand calls have ten thousand lines.
    say("\n".join(lines))
    return 0


def _here(options: argparse.Namespace, now: datetime) -> list[PendingRequest]:
    return existing_mailboxes_of(options).pending(now)


def _there(options: argparse.Namespace, now: datetime) -> list[PendingRequest]:
    """Return the questions that machines have sent to a database."""
    url = database_of(options)
    from ironcurtain_proxy.fleet.board import Board  # noqa: PLC0415  an extra
    from ironcurtain_proxy.fleet.database import DatabaseError, FleetDatabase  # noqa: PLC0415

    database = FleetDatabase(url)
    try:
        return Board(database).pending(now)
    except DatabaseError as error:
        raise ConfigurationError(str(error)) from None
    finally:
        database.close()


def _fields(one: PendingRequest, number: int) -> dict[str, object]:
    request = one.request
    return {
        "number": number,
        "id": one.id,
        "session": one.session,
        "directory": str(one.directory),
        "server": request.server,
        "tool": request.tool,
        "arguments": request.arguments,
        "reason": request.reason,
        "told": request.told,
        "rule": request.rule,
        "origins": request.origins,
        "reviewer": request.reviewer or None,
        "context": dict(request.context),
        "candidates": request.candidates,
        "expiresAt": None if request.expires is None else timestamp(request.expires),
        "requestDigest": request.digest,
    }
