"""The running server of the page, on a loopback socket."""

import socket
from collections.abc import Sequence

import uvicorn

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.web.app import ReviewPage
from ironcurtain_proxy.web.guard import Access, PageGuard

LOOPBACK = "127.0.0.1"


def loopback_socket(port: int) -> socket.socket:
    """A listening socket that only this machine reaches.

    Args:
        port: 0 for any free one.

    Raises:
        ConfigurationError: another program has the port.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"--port {port}: {error.strerror}") from error
    listening.listen()
    return listening


def origins_of(listening: socket.socket, public_names: Sequence[str]) -> list[str]:
    """The origins under which a browser may reach the page, the first for the link."""
    port = listening.getsockname()[1]
    named = [f"{scheme}://{name}" for name in public_names for scheme in ("https", "http")]
    return [f"http://{LOOPBACK}:{port}", f"http://localhost:{port}", *named]


def serve_page(
    page: ReviewPage, access: Access, origins: Sequence[str], listening: socket.socket
) -> None:
    """Serve until the person stops the command."""
    config = uvicorn.Config(
        PageGuard(page.app(), access, origins),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])
