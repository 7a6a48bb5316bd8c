"""`ironcurtain-proxy relay`: send this machine's questions to a database, and bring answers."""

import argparse
import os
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.output import complain, say
from ironcurtain_proxy.cli.reviewing import (
    add_database,
    add_directories,
    database_of,
    mailboxes_of,
)
from ironcurtain_proxy.mailbox.mailboxes import sessions_directory

DESCRIPTION: Final = """\
Send this machine's questions that need signatures to PostgreSQL, and bring signed answers back.
While it runs, sessions ask, as with `review`. A proxy believes the signature, not the database.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy relay --database postgresql://fleet@db.example.com/fleet
  PGPASSFILE=~/.pgpass ironcurtain-proxy relay      with the address in IRONCURTAIN_DATABASE

exit status: 0 when it is ended; 2 if the address cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_database(parser, "where they go (default: IRONCURTAIN_DATABASE)")
    add_directories(parser)


def run(options: argparse.Namespace) -> int:
    """Carry questions and answers until the person stops the command."""
    url = database_of(options)
    # An extra, for this command alone.
    from ironcurtain_proxy.fleet.database import FleetDatabase  # noqa: PLC0415
    from ironcurtain_proxy.fleet.relay import Relay, home_of  # noqa: PLC0415
    from ironcurtain_proxy.own_process.clocks import machine_id  # noqa: PLC0415

    database, mailboxes = FleetDatabase(url), mailboxes_of(options)
    named = [path.expanduser().absolute() for path in options.directories]
    own = named or [Path(os.environ.get("ESCALATION_DIR", "")), sessions_directory(Path.home())]
    relay = Relay(mailboxes, database, home_of(machine_id(), own), complain)
    say(f"relaying to {database.where}; Ctrl-C ends it")
    try:
        relay.run()
    finally:
        mailboxes.stop_listening()
        database.close()
    return 0
