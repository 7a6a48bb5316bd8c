"""Two sessions of the client of fastmcp: prints what each saw as JSON.

fastmcp_client.py URL COMMAND [ARGUMENT ...]

The first is with the command, the second with the URL and the token in MCP_TOKEN.
"""

import asyncio
import json
import os
import sys

from fastmcp import Client  # type: ignore[import-not-found, unused-ignore]
from fastmcp.client.transports import (  # type: ignore[import-not-found, unused-ignore]
    StdioTransport,
    StreamableHttpTransport,
)


async def seen_of(command: str, *args: str) -> dict[str, object]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    moves: list[float] = []

    async def moved(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        moves.append(progress)

    transport = (
        StreamableHttpTransport(
            command, headers={"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"}
        )
        if command.startswith("http:")
        else StdioTransport(command, args, env=environment)
    )
    async with Client(transport, progress_handler=moved) as client:
        tools = await client.list_tools()
        answer = await client.call_tool("answer", {"text": "hello"})
        denied = await client.call_tool("forbidden", {"text": "x"}, raise_on_error=False)
        return {
            "tools": [tool.name for tool in tools],
            "answer": answer.content[0].text,
            "denied": denied.is_error,
            "resources": len(await client.list_resources()),
            "prompts": len(await client.list_prompts()),
        }


async def main() -> None:
    url, *command = sys.argv[1:]
    sys.stdout.write(json.dumps([await seen_of(*command), await seen_of(url)]))


if __name__ == "__main__":
    asyncio.run(main())
