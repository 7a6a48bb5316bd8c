"""`ironcurtain-proxy web`: answer calls that wait, and read the audit log, in a browser."""

import argparse
import socket
import sys
from collections.abc import Callable
from typing import Final

from ironcurtain_proxy.audit.calls import CallHistory
from ironcurtain_proxy.cli.audit import logs_to_read
from ironcurtain_proxy.cli.audit_whole import local_time
from ironcurtain_proxy.cli.explain import explanation_of, rule_command
from ironcurtain_proxy.cli.output import complain
from ironcurtain_proxy.cli.reviewing import (
    credential_of,
    mailboxes_of,
)
from ironcurtain_proxy.errors import ConfigurationError


def listening_at(opened: Callable[[int], socket.socket], port: int) -> socket.socket:
    """Return a socket at the port; at 0, one that no approval of an agent's requests covers."""
    # Only this command reads the tables of shell commands.
    from ironcurtain_proxy.shell.kinds import may_be_a_service  # noqa: PLC0415

    if may_be_a_service(port):
        said = "an approval of requests to services of this machine would cover this port"
        raise ConfigurationError(f"--port: {said}: take 8790, 8808, or one from {_HIGH} on")
    for _ in range(_TRIES):
        found = opened(port)
        if not may_be_a_service(found.getsockname()[1]):
            return found
        found.close()
    raise ConfigurationError(f"the system gives out no port from {_HIGH} on: name one with --port")


_TRIES: Final = 64
_HIGH: Final = 32768


def run(options: argparse.Namespace) -> int:
    """Serve the page until the person stops the command."""
    # Only this command needs a web server.
    from ironcurtain_proxy.web.app import (  # noqa: PLC0415  # noqa: PLC0415
        PageSources,
        ReviewPage,
        loopback_socket,
        origins_of,
        serve_page,
    )
    from ironcurtain_proxy.web.guard import Access, PageGuard  # noqa: PLC0415

    credential = credential_of(options)
    mailboxes, logs = mailboxes_of(options), logs_to_read(None)
    access = Access()
    with listening_at(loopback_socket, options.port) as listening:
        origins = origins_of(listening, options.public_name)
        names = [origins[0], *[f"https://{name}" for name in options.public_name]]

        def show_link() -> None:
            for name in names:
                sys.stdout.write(f"{name}/#{access.ticket}\n")
            sys.stdout.flush()

        page = ReviewPage(
            mailboxes,
            CallHistory(logs.members, local_time),
            access,
            credential,
            PageSources(
                opened=show_link, complain=complain, rule=rule_command, explain=explanation_of
            ),
        )
        try:
            mailboxes.listen()
            show_link()
            complain("the link opens the page once; Ctrl-C ends it")
            serve_page(PageGuard(page.app(), access, origins), listening)
        finally:
            mailboxes.stop_listening()
    return 0
