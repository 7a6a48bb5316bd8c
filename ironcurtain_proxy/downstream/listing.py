"""All tools of one server, page by page.

Knows the shape of a `tools/list` result; does not know how it is asked for. The server's words are
untrusted: it may send pages for ever, or things that are no tools.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ToolDefinition, ToolResult

MAX_PAGES: Final = 1000
MAX_TOOLS: Final = 10_000

AskForPage: TypeAlias = Callable[[dict[str, Json]], Awaitable[ToolResult]]
"""Sends `tools/list` with these params."""

_METHOD_NOT_FOUND: Final = -32601


async def list_tools(
    server: str, ask: AskForPage, drop: Callable[[str], None]
) -> tuple[ToolDefinition, ...]:
    """Follow `nextCursor` to the end. A server that knows no `tools/list` has no tools.

    Args:
        server: Its name.
        ask: Gets one page.
        drop: Is told of entries that are no tools, and of a second tool of one name.

    Raises:
        DownstreamError: the server refuses, sends no list, or does not come to an end.
    """
    found: dict[str, ToolDefinition] = {}
    cursors: set[str] = set()
    params: dict[str, Json] = {}
    for _ in range(MAX_PAGES):
        entries, cursor = _page(server, await ask(params))
        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not isinstance(name, str) or not name:
                drop("an entry of tools/list that is no tool")
            elif name in found:
                drop(f"a second tool called {name!r}")
            else:
                found[name] = ToolDefinition(server, name, entry)
        if len(found) > MAX_TOOLS:
            raise DownstreamError(f'server "{server}" has more than {MAX_TOOLS} tools')
        if not cursor:
            return tuple(found.values())
        if cursor in cursors:
            raise DownstreamError(f'server "{server}" sends the same page of tools again and again')
        cursors.add(cursor)
        params = {"cursor": cursor}
    raise DownstreamError(f'server "{server}" sends more than {MAX_PAGES} pages of tools')


def _page(server: str, answer: ToolResult) -> tuple[list[Json], str]:
    """The entries of one page, and where the next begins; empty after the last."""
    if answer.error is not None and answer.error.get("code") == _METHOD_NOT_FOUND:
        return [], ""
    page = answer.result or {}
    entries = page.get("tools")
    cursor = page.get("nextCursor") or ""
    if not isinstance(entries, list) or not isinstance(cursor, str):
        raise DownstreamError(f'server "{server}" does not list its tools')
    return entries, cursor
