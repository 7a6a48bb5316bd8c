"""`ironcurtain-proxy logout`: forget the login to a server that is reached over HTTP."""

import argparse
from typing import TYPE_CHECKING, Final

import anyio

from ironcurtain_proxy.cli.login import RemoteServer, add_arguments_of_server, remote_server
from ironcurtain_proxy.cli.output import complain, say
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.mailbox.display import visible

if TYPE_CHECKING:
    from ironcurtain_proxy.downstream.remote.logins import Login

DESCRIPTION: Final = """\
Forget the login to a server, and revoke its token where the authorization server supports that.
Running sessions stop using the token.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy logout tracker

exit status: 0; 1 if there was no login; 2 if there is no such server
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_arguments_of_server(parser)


def run(options: argparse.Namespace) -> int:
    """Log out.

    Raises:
        ConfigurationError: there is no such server.
    """
    require("http", "logout")
    found = remote_server(options.server, options.config)
    login = found.file.current()
    if not found.file.remove():
        complain(f"there is no login to {visible(found.name)}")
        return 1
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

    if login.revocation_endpoint is None:
        return False
    async with open_client(GuardedTransport(found.name, found.endpoint)) as client:
        try:
            return await revoke(
                client,
                login.revocation_endpoint,
                login.refresh_token or login.access_token,
                client_id=login.client_id,
                secret=login.client_secret,
                method=login.auth_method,
            )
        except DownstreamError:
            return False
