"""`ironcurtain-proxy serve`: MCP on standard input and output."""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.reading.environment import ISOLATION_VARIABLE
from ironcurtain_proxy.wiring.serving import serve

DESCRIPTION: Final = """\
Serve MCP on standard input and output, in front of the configured servers. Every tool call is
decided by the policy and recorded. This is what an MCP client starts; it is the default command.
"""

EXAMPLES: Final = """\
examples, in a client's configuration:
  {"mcpServers": {"guarded": {"command": "ironcurtain-proxy",
                              "args": ["--config", "/home/me/.ironcurtain/config.json"]}}}

The environment wins over the file: MCP_SERVERS_CONFIG, GENERATED_DIR, ALLOWED_DIRECTORY,
PROTECTED_PATHS, AUDIT_LOG_PATH, SESSION_LOG_PATH, SERVER_FILTER, SERVER_CREDENTIALS, and others.

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


def run(options: argparse.Namespace) -> int:
    """Serve until the client closes its end or a signal ends us."""
    if options.isolation is not None:
        os.environ[ISOLATION_VARIABLE] = options.isolation
    code = serve(os.environ, options.config)
    # A thread that hangs in a file system (NFS, FUSE) must not keep the process: all that had to
    # be written or ended is.
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
