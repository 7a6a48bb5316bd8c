"""A manager written with the MCP library: it denies the operation `delete`, and approves all other.

The first argument says how a result holds the answer. Three tools are nothing but names here. A
question about `patience` is never answered, but makes the file that the second argument names; one
about `cancelled` gets a note of those that were cancelled; one about `failure` makes the tool fail.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import orjson
from mcp.server.mcpserver import MCPServer

from tests.auto_confirm.reviewers.managers.conversation import read_token

TOKEN: Final = read_token()
CANCELLED: Final[list[str]] = []


async def as_object(id: str, argumentsHash: str, tool: str, operation: str) -> dict[str, str]:  # noqa: A002, N803
    if tool == "failure":
        raise ValueError(f"secret words about {id}")
    if tool == "patience":
        try:
            await anyio.Path(sys.argv[2]).touch()
            await anyio.sleep_forever()
        finally:
            CANCELLED.append(id)
    return {
        "id": id,
        "argumentsHash": argumentsHash,
        "decision": "deny" if operation == "delete" else "approve",
        "reviewer": "model-7",
        "token": TOKEN,
        "note": " ".join(CANCELLED) if tool == "cancelled" else "seen",
    }


async def as_text(id: str, argumentsHash: str, tool: str, operation: str) -> str:  # noqa: A002, N803
    return orjson.dumps(await as_object(id, argumentsHash, tool, operation)).decode()


WAYS: Final[dict[str, Callable[..., Awaitable[object]]]] = {
    "object": as_object,
    "text": as_text,
    "unstructured": as_object,
}


def main(way: str) -> None:
    server = MCPServer("manager")
    structured = False if way == "unstructured" else None
    for name in ("one", "two", "review"):
        server.add_tool(WAYS[way], name=name, structured_output=structured)
    server.run()


if __name__ == "__main__":
    main(sys.argv[1])
