"""`login` and `logout`: the login to a server that is reached over HTTP."""

import argparse
import os
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Struct

from ironcurtain_proxy.cli.output import complain, say
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.downstream.starting import LOGINS
from ironcurtain_proxy.errors import ConfigurationError, DownstreamError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.server import RemoteEndpoint, ServerSpec
from ironcurtain_proxy.wiring.proxy import refuse_closed_hosts

if TYPE_CHECKING:
    from ironcurtain_proxy.downstream.remote.logins import Login, LoginFile

# --- the server that is meant ---------------------------------------------------------------------
# The server over HTTP that `login` or `logout` names, and the file of its login.


class RemoteServer(Struct, frozen=True):
    """A server that is reached over HTTP."""

    spec: ServerSpec
    endpoint: RemoteEndpoint
    file: "LoginFile"

    @property
    def name(self) -> str:
        """The operator's name of the server."""
        return self.spec.name


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


def run(options: argparse.Namespace) -> int:
    """Log in.

    Raises:
        ConfigurationError: the server needs no login, or offers none that works here.
        LoginFailedError: the login failed.
    """
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
    anyio.run(found.file.put, login)
    until = "the proxy renews the login" if login.refresh_token else "log in again when it ends"
    say(f"logged in to {visible(found.name)} by {visible(login.issuer)}; {until}")


def run_logout(options: argparse.Namespace) -> int:
    """Log out.

    Raises:
        ConfigurationError: there is no such server.
    """
    found = remote_server(options.server, options.config)
    if not found.file.path.exists():
        complain(f"there is no login to {visible(found.name)}")
        return 1
    login = anyio.run(found.file.put, None)
    is_told = login is not None and anyio.run(_revoke, found, login)
    word = (
        ""
        if is_told
        else "; its authorization server was not told, and may accept the token until it expires"
    )
    say(f"logged out of {visible(found.name)}{word}")
    return 0


async def _revoke(found: RemoteServer, login: "Login") -> bool:
    """Revoke the login at the authorization server. Return False if that was impossible."""
    # Slow to import, and needed only where there was a login.
    from ironcurtain_proxy.downstream.remote.network import (  # noqa: PLC0415
        GuardedTransport,
        open_client,
    )
    from ironcurtain_proxy.downstream.remote.token_requests import revoke  # noqa: PLC0415

    async with open_client(GuardedTransport(found.name, found.endpoint)) as client:
        try:
            return await revoke(client, login)
        except DownstreamError:
            return False
