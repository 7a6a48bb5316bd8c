"""A manager written with the MCP library. Gives the answer named by its first argument.

The second says how a result holds it. A question about the tool `patience` it never answers, but
makes the file that its third argument names; which of these were cancelled stands in the note of
every further answer.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import orjson
from mcp.server.mcpserver import MCPServer

from tests.auto_confirm.reviewers.managers.conversation import read_token

DECISION: Final = sys.argv[1]
TOKEN: Final = read_token()
CANCELLED: Final[list[str]] = []


async def as_object(id: str, argumentsHash: str, tool: str) -> dict[str, str]:  # noqa: A002, N803
    if tool == "patience":
        try:
            await anyio.Path(sys.argv[3]).touch()
            await anyio.sleep_forever()
        finally:
            CANCELLED.append(id)
    return {
        "id": id,
        "argumentsHash": argumentsHash,
        "decision": DECISION,
        "reviewer": "model-7",
        "token": TOKEN,
        "note": " ".join(["seen", *CANCELLED]),
    }


async def as_text(id: str, argumentsHash: str, tool: str) -> str:  # noqa: A002, N803
    return orjson.dumps(await as_object(id, argumentsHash, tool)).decode()


async def as_error(id: str) -> str:  # noqa: A002
    raise ValueError(f"secret words about {id}")


WAYS: Final[dict[str, Callable[..., Awaitable[object]]]] = {
    "object": as_object,
    "text": as_text,
    "unstructured": as_object,
    "error": as_error,
}


def main(way: str) -> None:
    server = MCPServer("manager")
    structured = False if way == "unstructured" else None
    for name in ("one", "two", "review"):
        server.add_tool(WAYS[way], name=name, structured_output=structured)
    server.run()


if __name__ == "__main__":
    main(sys.argv[2])
