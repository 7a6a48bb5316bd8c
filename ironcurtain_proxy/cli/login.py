"""`ironcurtain-proxy login`: log in to a server that is reached over HTTP."""

import argparse
import webbrowser
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from ironcurtain_proxy.cli.output import say
from ironcurtain_proxy.cli.remote_server import RemoteServer, add_arguments_of_server, remote_server
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible

DESCRIPTION: Final = """\
Log in to a server that is reached over HTTP and asks for OAuth. A browser opens the page of its
authorization server, which then sends the browser back to this machine. The token is kept in
~/.ironcurtain/logins, readable by this user alone; running sessions use it at once.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy login tracker
  ironcurtain-proxy login tracker --no-browser      prints the address of the page
  ironcurtain-proxy login tracker --no-browser --port 8123      for a tunnel: ssh -L 8123:...

exit status: 0; 1 if the login failed; 2 if the server takes no login
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_arguments_of_server(parser)
    parser.add_argument("--no-browser", action="store_true", help="print the address of the page")
    parser.add_argument(
        "--port",
        type=int,
        choices=range(65536),
        metavar="N",
        help="the port of this machine to which the browser comes back (default: any free one)",
    )


def run(options: argparse.Namespace) -> int:
    """Log in.

    Raises:
        ConfigurationError: the server needs no login, or offers none that works here.
        LoginFailedError: the login failed.
    """
    require("http", "login")
    found = remote_server(options.server, options.config)
    logged_in(found, opens_browser=not options.no_browser, port=options.port)
    return 0


def logged_in(found: RemoteServer, *, opens_browser: bool, port: int | None = None) -> None:
    """Log in to a server, and keep the login.

    Args:
        found: the server.
        opens_browser: open the page, or print its address.
        port: to which the browser comes back; None: as the entry says, or any.

    Raises:
        ConfigurationError: the server needs no login, or offers none that works here.
        LoginFailedError: the login failed.
    """
    endpoint = found.endpoint
    if endpoint.has_authorization:
        raise ConfigurationError(
            f'server "{found.name}" has a header Authorization in its entry: remove it first'
        )
    own = endpoint.oauth
    if own is not None and own.grant == "client-credentials":
        raise ConfigurationError(
            f'server "{found.name}" logs in with client-credentials, without a person'
        )
    # The SDK takes half a second to import.
    from ironcurtain_proxy.downstream.remote.browser_login import log_in  # noqa: PLC0415
    from ironcurtain_proxy.downstream.remote.secrets import secret_of  # noqa: PLC0415

    secret = None if own is None else secret_of(own, found.spec.credentials, found.name)
    named = own.callback_port if own is not None else None
    back = port if port is not None else named or 0

    async def show(url: str) -> None:
        if not opens_browser or not await anyio.to_thread.run_sync(webbrowser.open, url):
            say(f"open this page, and log in:\n{visible(url)}")
        else:
            say("a page was opened in your browser: log in there")

    before = found.file.current()
    scope = None if before is None else before.wanted_scope
    if scope is not None:
        say(f"the server wants these rights: {visible(scope)}")
    login = anyio.run(partial(log_in, found.name, endpoint, secret, show, back, scope=scope))
    found.file.write(login)
    until = "the proxy renews the login" if login.refresh_token else "log in again when it ends"
    say(f"logged in to {visible(found.name)} by {visible(login.issuer)}; {until}")
