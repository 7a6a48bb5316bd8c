"""The server over HTTP that `login` or `logout` names, and the file of its login."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ironcurtain_proxy.cli.arguments import add_config
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.downstream.options import LOGINS
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.remote import RemoteEndpoint
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.wiring.remote import refuse_closed_hosts

if TYPE_CHECKING:
    from ironcurtain_proxy.downstream.remote.logins import LoginFile


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
    """The server of this name.

    Raises:
        ConfigurationError: there is no such server, it is not reached over HTTP, or the policy
            closes it.
    """
    return server_of(load_settings(os.environ, config), name)


def server_of(settings: Settings, name: str) -> RemoteServer:
    """The server of this name among those of the settings.

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
