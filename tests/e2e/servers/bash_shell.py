#!/usr/bin/env python3
"""A small shell server that nobody has heard of: one tool, which runs a command with bash.

Speaks MCP over stdio with the standard library alone.
"""

import json  # noqa: TID251  the standard library alone
import os
import subprocess
import sys
from typing import Final, TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Message: TypeAlias = dict[str, Json]

TOOL: Final[Message] = {
    "name": "run_command",
    "description": "Run a command in a shell and return its output.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line to run."},
            "cwd": {"type": "string", "description": "Directory to run it in."},
            "timeout": {"type": "integer", "description": "Seconds it may take."},
        },
        "required": ["command"],
    },
}


def run_command(command: str, cwd: str | None = None, timeout: int = 60) -> Message:
    """What the command printed, and its exit status."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    told = f"{done.stdout}exit {done.returncode}"
    return {"content": [{"type": "text", "text": told}], "isError": done.returncode != 0}


def answer(message: Message) -> Message:
    """The result of one request."""
    params = cast("Message", message.get("params") or {})
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bash", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            try:
                return run_command(**cast("dict[str, str]", params["arguments"]))  # type: ignore[arg-type]
            except (OSError, subprocess.TimeoutExpired) as error:
                return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        case _:
            return {}


def main() -> None:
    """Answer one request after the other."""
    for line in sys.stdin:
        message: Message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}
        os.write(1, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
