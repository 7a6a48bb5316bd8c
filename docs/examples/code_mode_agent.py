"""A code-mode agent: it turns the listed tools into functions and runs code that calls them.

python code_mode_agent.py "WORDS OF THE USER" < CODE

The code is the body of an async function. `tools.SERVER.TOOL(name=value)` calls a tool, and raises
`Denied` where the call was refused. The kernel confines tool calls, not code: code of a model
belongs into a sandbox of its own, with the functions as its only way out.
"""

import keyword
import sys
import textwrap
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import anyio

from ironcurtain_proxy import Settings, TrustedProcess


class Denied(Exception):
    """The call was not carried out."""


def stub(kernel: TrustedProcess, server: str, tool: str) -> Callable[..., Awaitable[object]]:
    """A function for one tool."""

    async def call(**arguments: object) -> object:
        answer = await kernel.call_tool(server, tool, arguments)
        if answer.status == "denied":
            raise Denied(f"{server}/{tool}: {answer.rule}")
        return answer.result.get("content") or answer.error

    return call


async def main(words: str, code: str) -> None:
    """List the tools, make the functions, run the code."""
    async with TrustedProcess(Settings.from_environment()) as kernel:
        kernel.set_last_user_message(words)
        servers: dict[str, SimpleNamespace] = {}
        for one in await kernel.list_tools():
            if not one.tool.isidentifier() or keyword.iskeyword(one.tool):
                continue  # a server's word is a name here, and nothing else
            arguments = ", ".join(one.input_schema.get("properties") or {})
            print(f"tools.{one.server}.{one.tool}({arguments})")
            functions = servers.setdefault(one.server, SimpleNamespace())
            setattr(functions, one.tool, stub(kernel, one.server, one.tool))
        names: dict[str, object] = {"tools": SimpleNamespace(**servers), "Denied": Denied}
        exec("async def run():\n" + textwrap.indent(code, "    "), names)
        await names["run"]()


if not sys.argv[1:]:
    sys.exit('usage: code_mode_agent.py "WORDS OF THE USER" < CODE')
anyio.run(main, sys.argv[1], sys.stdin.read())
