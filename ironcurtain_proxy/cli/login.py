"""`ironcurtain-proxy login`: log in to a server over HTTP. `logout` shares parts of it."""

import argparse
import os
import webbrowser
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ironcurtain_proxy.cli.arguments import add_config
from ironcurtain_proxy.cli.output import say
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.downstream.options import LOGINS
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.server import RemoteEndpoint, ServerSpec
from ironcurtain_proxy.wiring.remote import refuse_closed_hosts

if TYPE_CHECKING:
    from ironcurtain_proxy.downstream.remote.logins import LoginFile

# --- the server that is meant ---------------------------------------------------------------------
# The server over HTTP that `login` or `logout` names, and the file of its login.


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server that is reached over HTTP."""

    spec: ServerSpec
    endpoint: RemoteEndpoint
    file: "LoginFile"

    @property
    def name(self) -> str:
        """The operator's name of the server."""
        return self.spec.name


def add_arguments_of_server(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the server."""
    parser.add_argument("server", metavar="SERVER", help="the server, by its name in mcpServers")
    add_config(parser)


def remote_server(name: str, config: Path | None) -> RemoteServer:
    """Return the server of this name.

    Raises:
        ConfigurationError: there is no such server, it is not reached over HTTP, or the policy
            closes it.
    """
    return server_of(load_settings(os.environ, config), name)


def server_of(settings: Settings, name: str) -> RemoteServer:
    """Return the server of this name among those of the settings.

    Raises:
        ConfigurationError: as above.
    """
    from ironcurtain_proxy.downstream.remote.logins import LoginFile  # noqa: PLC0415  an extra's

    spec = next((one for one in settings.servers if one.name == name), None)
    if spec is None:
        names = ", ".join([one.name for one in settings.servers if one.remote is not None])
        raise ConfigurationError(
            f'there is no server "{name}"; the servers over HTTP are: {names or "none"}'
        )
    if spec.remote is None:
        raise ConfigurationError(f'server "{name}" runs on this machine: it needs no login')
    refuse_closed_hosts(settings, load_policy(settings).policy)
    file = LoginFile(settings.state_dir / LOGINS, name, spec.remote.url)
    return RemoteServer(spec, spec.remote, file)


DESCRIPTION: Final = """\
Log in to a server that is reached over HTTP and asks for OAuth. A browser opens the page of its
authorization server, which then sends the browser back to this machine. The token is kept in
~/.ironcurtain/logins, readable only by this user; running sessions use it at once.
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
        port: to which the browser comes back, or None for the entry's, or any.

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
    from ironcurtain_proxy.downstream.remote.logins import secret_of  # noqa: PLC0415

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
