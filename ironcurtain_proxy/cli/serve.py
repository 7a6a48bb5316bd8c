"""`ironcurtain-proxy serve`: MCP on standard input and output, or over HTTP."""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.config.policy.managed import KEEP_NAME, MANAGED
from ironcurtain_proxy.config.reading.layers import ISOLATION_VARIABLE, STATE_DIRECTORY
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.wiring.serving import serve

DESCRIPTION: Final = """\
Serve MCP on standard input and output, in front of the configured servers. Every tool call is
decided by the policy and recorded. This is what an MCP client starts; it is the default command.

With --http, agents connect over HTTP instead: only from this machine, each with a token. Each
session is a proxy process of its own.
"""

EXAMPLES: Final = """\
examples, in a client's configuration:
  {"mcpServers": {"guarded": {"command": "ironcurtain-proxy",
                              "args": ["--config", "/home/me/.ironcurtain/config.json"]}}}

over HTTP:
  ironcurtain-proxy serve --http        at a free port, with a token in ~/.ironcurtain/http-tokens
  PROXY_TCP_PORT=8808 ironcurtain-proxy serve --http
  PROXY_SOCKET_PATH=/run/user/1000/mcp.sock ironcurtain-proxy serve --http

The environment wins over the file: MCP_SERVERS_CONFIG, GENERATED_DIR, ALLOWED_DIRECTORY,
PROTECTED_PATHS, AUDIT_LOG_PATH, SESSION_LOG_PATH, SERVER_FILTER, SERVER_CREDENTIALS, and others. Of
HTTP: PROXY_TCP_PORT (0: any that is free), PROXY_SOCKET_PATH, PROXY_PORT_FILE, PROXY_TOKENS_FILE,
PROXY_TOKEN.

exit status: 0 after the agent has left; 128 + N after signal N; 2 if the configuration cannot be
used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="JSON, or YAML by its ending (default: $IRONCURTAIN_CONFIG, then "
        "~/.ironcurtain/config.json)",
    )
    parser.add_argument(
        "--isolation",
        choices=("isolated", "unisolated"),
        help="say whether all this runs in a place that can be thrown away, such as a container "
        "(default: as the configuration says, else isolated if every server is sandboxed)",
    )
    parser.add_argument("--http", action="store_true", help="serve streamable HTTP")
    parser.add_argument(
        "--public-name",
        action="append",
        default=[],
        metavar="HOST",
        help="with --http: the name under which a reverse proxy shows it; may be repeated",
    )


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
    unhooked = None
    if any((state / "clients").glob("hooks-*.json")) or (MANAGED / KEEP_NAME).exists():
        # Most clients have no hooks, and their proxies start without this.
        from ironcurtain_proxy.hooks.health import hook_watch  # noqa: PLC0415

        unhooked = hook_watch(state)
    return serve(os.environ, options.config, unhooked)


def _serve_http(options: argparse.Namespace) -> int:
    require("http", "serve --http")
    # Only this needs a web server.
    from ironcurtain_proxy.front.serving import serve_http  # noqa: PLC0415

    return serve_http(os.environ, options.config, options.public_name)
