"""`ironcurtain-proxy decide`: calls as JSON lines in, decisions out. No server is started."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from ironcurtain_proxy.cli.kernel import Kernel
from ironcurtain_proxy.config.policy.engine_file import load_engine
from ironcurtain_proxy.model.decision import Escalate, effect_of
from ironcurtain_proxy.model.json import Json

if TYPE_CHECKING:
    from ironcurtain_proxy.cli import Subparsers
DESCRIPTION: Final = """\
Read one call per line and write one decision per line:

  {"id"?, "serverName", "toolName", "arguments"}
  {"id", "decision": "allow"|"escalate"|"deny", "rule", "reason", "escalatedRoles"}

DIR holds compiled-policy.json, tool-annotations.json, optionally dynamic-lists.json, and
engine.json (allowedDirectory, protectedPaths, domainAllowlists, trustedServers, home,
containerWorkspaceDir).
It is the kernel alone: no user configuration is read and nothing is started or forwarded.
"""

EXAMPLE: Final = """\
example:
  echo '{"serverName":"filesystem","toolName":"read_file","arguments":{"path":"/etc/hosts"}}' \\
    | ironcurtain-proxy decide --dir ./policy

exit status: 0; 1 if a line could not be read (it is answered with a denial); 2 if DIR cannot be
used
"""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "decide",
        help="decide calls from JSON lines, without any server",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="the files to use")
    parser.add_argument(
        "--no-schema",
        action="store_true",
        help="do not hold arguments to the tool's input schema first",
    )


def run(options: argparse.Namespace) -> int:
    """Decide until the input ends. 1 if a line could not be read (it is answered with a denial)."""
    home = Path(os.environ.get("HOME", "/"))
    kernel = Kernel.of(load_engine(options.dir, home), check_schemas=not options.no_schema)
    failed = False
    write = sys.stdout.buffer.write
    for line in sys.stdin.buffer:
        if line.isspace():
            continue
        answer, understood = _answer(kernel, line)
        failed |= not understood
        write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()
    return int(failed)


def _answer(kernel: Kernel, line: bytes) -> tuple[dict[str, Json], bool]:
    try:
        call = orjson.loads(line)
    except ValueError:
        return _not_understood(None, "the line is not JSON"), False
    if not isinstance(call, dict):
        return _not_understood(None, "the line is not a JSON object"), False
    server, tool = call.get("serverName"), call.get("toolName")
    arguments = call.get("arguments", {})
    if not isinstance(server, str) or not isinstance(tool, str) or not isinstance(arguments, dict):
        return _not_understood(
            call.get("id"), "serverName and toolName must be strings and arguments an object"
        ), False
    decision = kernel.decide(server, tool, arguments)
    return {
        "id": call.get("id"),
        "decision": effect_of(decision),
        "rule": decision.ground.rule,
        "reason": decision.ground.reason,
        "escalatedRoles": list(decision.roles) if isinstance(decision, Escalate) else [],
    }, True


def _not_understood(identifier: Json, reason: str) -> dict[str, Json]:
    return {
        "id": identifier,
        "decision": "deny",
        "rule": "invalid-request",
        "reason": reason,
        "escalatedRoles": [],
    }
