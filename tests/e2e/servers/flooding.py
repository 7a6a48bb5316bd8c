#!/usr/bin/env python3
"""A server that floods: tools, notifications, requests of its own, or standard error.

`FLOOD` says which, `TIMES` how often. With `tools` it lists so many; the others come while its tool
`go` is called, whose answer follows the flood.
"""

import json  # noqa: TID251  the standard library alone
import os
import sys
from typing import Final, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

FLOOD: Final = os.environ.get("FLOOD", "")
TIMES: Final = int(os.environ.get("TIMES", "0"))
MEGABYTE: Final = b"flood of words " * (1 << 16)
SCHEMA: Final[Json] = {"type": "object", "properties": {}}


def send(message: dict[str, Json]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def flood() -> None:
    if FLOOD == "stderr":
        for _ in range(TIMES):
            sys.stderr.buffer.write(MEGABYTE[: 1 << 20])
        return
    for number in range(TIMES):
        match FLOOD:
            case "notices":
                send({"method": "notifications/resources/list_changed"})
            case "messages":
                params: Json = {"level": "info", "data": "x"}
                send({"method": "notifications/message", "params": params})
            case "requests":
                send({"id": f"r{number}", "method": "vendor/ask", "params": {}})
            case _:
                return


def result_of(method: Json) -> dict[str, Json]:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "flooding", "version": "1"},
            }
        case "tools/list":
            names = [f"t{number}" for number in range(TIMES)] if FLOOD == "tools" else ["go"]
            return {"tools": [{"name": name, "inputSchema": SCHEMA} for name in names]}
        case "tools/call":
            flood()
            return {"content": [{"type": "text", "text": "done"}]}
        case _:
            return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            send({"id": message["id"], "result": result_of(message["method"])})
            sys.stdout.flush()


if __name__ == "__main__":
    main()
