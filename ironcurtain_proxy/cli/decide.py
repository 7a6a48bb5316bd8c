"""`ironcurtain-proxy decide`: calls as JSON lines in, decisions out. No server is started."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from ironcurtain_proxy.cli.kernel import Kernel
from ironcurtain_proxy.config.policy.engine_file import load_engine
from ironcurtain_proxy.model.decision import Decision, Escalate, effect_of
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import TOOL_CALL

_MAX_LINE: Final = 64 << 20
"""The most bytes of one call, as in `serve`."""

DESCRIPTION: Final = """\
Decide calls from standard input, one JSON object per line, and write one decision per line:

  {"id"?, "serverName", "toolName", "arguments"}
  {"id"?, "serverName", "method", "params"}
  {"id", "decision": "allow"|"escalate"|"deny", "rule", "reason", "escalatedRoles"}

The second form is for other operations of MCP: reads and subscriptions of resources, prompts,
completions, servers' own questions (elicitation/create, sampling/createMessage) and roots/list.

DIR holds compiled-policy.json, tool-annotations.json, optionally dynamic-lists.json, and
engine.json (allowedDirectory, protectedPaths, domainAllowlists, trustedServers, unknownTools, ask,
home, containerWorkspaceDir).
Only the kernel runs: your configuration is not read, and nothing is started or forwarded.
"""

EXAMPLES: Final = """\
examples:
  echo '{"serverName":"filesystem","toolName":"read_file","arguments":{"path":"/etc/hosts"}}' \\
    | ironcurtain-proxy decide --dir ./policy
  echo '{"serverName":"sqlite","method":"resources/read","params":{"uri":"memo://insights"}}' \\
    | ironcurtain-proxy decide --dir ./policy

exit status: 0; 1 if a line could not be read (it is answered with a denial); 2 if DIR cannot be
used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="the files to use")
    parser.add_argument(
        "--no-schema",
        action="store_true",
        help="do not check arguments against the tool's input schema",
    )


def run(options: argparse.Namespace) -> int:
    """Decide until the input ends. 1 if a line could not be read; such a line gets a denial."""
    home = Path(os.environ.get("HOME", "/"))
    kernel = Kernel.of(load_engine(options.dir, home), check_schemas=not options.no_schema)
    failed = False
    write = sys.stdout.buffer.write
    for line in _lines(sys.stdin.buffer):
        if line is not None and line.isspace():
            continue
        answer, understood = _written(kernel, line)
        failed |= not understood
        write(answer)
        sys.stdout.buffer.flush()
    return int(failed)


def _lines(source: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None for a line that is too long, which is skipped without being stored."""
    while line := source.readline(_MAX_LINE):
        whole = line
        while len(whole) == _MAX_LINE and not whole.endswith(b"\n"):
            whole = source.readline(_MAX_LINE)
        is_short = whole is line and (len(line) < _MAX_LINE or line.endswith(b"\n"))
        yield line if is_short else None


def _written(kernel: Kernel, line: bytes | None) -> tuple[bytes, bool]:
    """The answer as a line. Every line is answered, whatever it holds."""
    if line is None:
        return _line_of(_not_understood(None, f"the line is longer than {_MAX_LINE} bytes")), False
    try:
        answer, understood = _answer(kernel, line)
        return _line_of(answer), understood
    except Exception as error:  # noqa: BLE001  a denial, whatever it is
        reason = f"the call could not be decided ({type(error).__name__})"
        return _line_of(_not_understood(_identifier(line), reason)), False


def _line_of(answer: dict[str, Json]) -> bytes:
    return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)


def _identifier(line: bytes) -> Json:
    """The id of a line that could not be decided; None: it has no readable id."""
    try:
        call = orjson.loads(line)
        found: Json = call.get("id") if isinstance(call, dict) else None
        orjson.dumps(found)
    except (ValueError, TypeError, RecursionError):
        return None
    return found


def _answer(kernel: Kernel, line: bytes) -> tuple[dict[str, Json], bool]:
    try:
        call = orjson.loads(line)
    except ValueError:
        return _not_understood(None, "the line is not JSON"), False
    if not isinstance(call, dict):
        return _not_understood(None, "the line is not a JSON object"), False
    if isinstance(call.get("id"), dict | list):
        return _not_understood(None, "id must be a text, a number, true, false or null"), False
    server, tool, method = (call.get(name) for name in ("serverName", "toolName", "method"))
    arguments = call.get("arguments", {})
    if isinstance(server, str) and isinstance(method, str):
        return _operation(kernel, call, server, method)
    if not isinstance(server, str) or not isinstance(tool, str) or not isinstance(arguments, dict):
        return _not_understood(
            call.get("id"), "serverName and toolName must be strings and arguments an object"
        ), False
    return _as_json(call.get("id"), kernel.decide(server, tool, arguments)), True


def _operation(
    kernel: Kernel, call: dict[str, Json], server: str, method: str
) -> tuple[dict[str, Json], bool]:
    params = call.get("params", {})
    if not isinstance(params, dict):
        return _not_understood(call.get("id"), "params must be an object"), False
    tool, arguments = params.get("name"), params.get("arguments", {})
    if method == TOOL_CALL and isinstance(tool, str) and isinstance(arguments, dict):
        return _as_json(call.get("id"), kernel.decide(server, tool, arguments)), True
    return _as_json(call.get("id"), kernel.decide_request(server, method, params)), True


def _as_json(identifier: Json, decision: Decision) -> dict[str, Json]:
    return {
        "id": identifier,
        "decision": effect_of(decision),
        "rule": decision.ground.rule,
        "reason": decision.ground.reason,
        "escalatedRoles": list(decision.roles) if isinstance(decision, Escalate) else [],
    }


def _not_understood(identifier: Json, reason: str) -> dict[str, Json]:
    return {
        "id": identifier,
        "decision": "deny",
        "rule": "invalid-request",
        "reason": reason,
        "escalatedRoles": [],
    }
