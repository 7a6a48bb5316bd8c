"""`ironcurtain-proxy serve`: MCP on standard input and output, or over HTTP."""

import argparse
import os
import sys
from contextlib import suppress

from ironcurtain_proxy.config.policy.managed import KEEP_NAME, MANAGED
from ironcurtain_proxy.config.reading.layers import ISOLATION_VARIABLE, STATE_DIRECTORY
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.wiring.serving import serve


def run(options: argparse.Namespace) -> int:
    """Serve until the client closes its end or a signal ends the process."""
    if options.isolation is not None:
        os.environ[ISOLATION_VARIABLE] = options.isolation
    code = _serve_http(options) if options.http else _serve(options)
    # A thread that hangs in a file system (NFS, FUSE) must not keep the process: all that had to
    # be written or ended is.
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def _serve(options: argparse.Namespace) -> int:
    state = home_directory(os.environ) / STATE_DIRECTORY
    unhooked = beside = None
    if any((state / "clients").glob("hooks-*.json")) or (MANAGED / KEEP_NAME).exists():
        # Most clients have no hooks, and their proxies start without this.
        from ironcurtain_proxy.hooks.health import hook_watch  # noqa: PLC0415

        unhooked = hook_watch(state)
        beside = None if unhooked is None else unhooked.beside()
    return serve(os.environ, options.config, unhooked, beside)


def _serve_http(options: argparse.Namespace) -> int:
    # Only this needs a web server.
    from ironcurtain_proxy.front.serving import serve_http  # noqa: PLC0415

    return serve_http(os.environ, options.config, options.public_name)
