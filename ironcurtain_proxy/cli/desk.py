"""`ironcurtain-proxy desk`: the questions of all machines on one page."""

import argparse
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ironcurtain_proxy.cli.arguments import whole
from ironcurtain_proxy.cli.output import complain, say
from ironcurtain_proxy.cli.reviewing import add_database, database_of
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import read_private

DESCRIPTION: Final = """\
Show the questions that machines have sent to a database, on the page that `web` shows, to whom an
OpenID Connect provider lets in. It has no key: a person signs with `approve ID --key --database`.
Any number of copies may run.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy desk --database postgresql://fleet@db/fleet --port 8790 \\
      --url https://questions.example.com --issuer https://login.example.com \\
      --client ironcurtain --secret-file /run/secrets/oidc

exit status: 0; 2 if the port is taken, or what was given cannot be used
"""
_MOST_SECRET: Final = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_database(parser, "where the questions are (default: IRONCURTAIN_DATABASE)")
    parser.add_argument("--port", type=whole(1, 65535), default=8790, metavar="N")
    parser.add_argument(
        "--url", required=True, metavar="URL", help="the address in browsers, by your TLS proxy"
    )
    parser.add_argument(
        "--issuer", required=True, metavar="URL", help="the OpenID Connect provider"
    )
    parser.add_argument("--client", required=True, metavar="ID", help="the id of this client there")
    parser.add_argument(
        "--secret-file", type=Path, required=True, metavar="FILE", help="the client's secret"
    )


def run(options: argparse.Namespace) -> int:
    """Serve the page until the person stops the command.

    Raises:
        ConfigurationError: an address or the secret cannot be used.
    """
    require("desk", "desk")
    url = database_of(options)
    # Extras, for this command alone.
    from ironcurtain_proxy.fleet.database import FleetDatabase  # noqa: PLC0415
    from ironcurtain_proxy.fleet.desk import Desk, serve_desk  # noqa: PLC0415
    from ironcurtain_proxy.fleet.login import LoginProvider, Logins, Words  # noqa: PLC0415
    from ironcurtain_proxy.web.app import loopback_socket  # noqa: PLC0415

    origin = urlsplit(options.url)
    if origin.scheme not in {"https", "http"} or not origin.netloc or origin.path not in {"", "/"}:
        raise ConfigurationError("--url must be such as https://questions.example.com")
    own = f"{origin.scheme}://{origin.netloc}"
    secret = read_private(options.secret_file, _MOST_SECRET, "secret file").decode().strip()
    provider = LoginProvider(
        issuer=options.issuer, client=options.client, secret=secret, callback=f"{own}/callback"
    )
    database = FleetDatabase(url)
    desk = Desk(database, Logins(Words(database), provider), own, complain)
    with loopback_socket(options.port) as listening:
        database.prepare()
        say(f"{own}/ shows the questions in {database.where}; Ctrl-C ends it")
        serve_desk(desk, listening)
    database.close()
    return 0
