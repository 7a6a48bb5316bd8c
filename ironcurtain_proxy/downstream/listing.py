"""Lists of one server's tools, resources and prompts, page by page.

The server is untrusted: it may send endless pages, or invalid entries.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NoReturn, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.downstream.eras import METHOD_NOT_FOUND, refusal
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.jsonrpc.codec import encode
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.operation import is_like_a_label
from ironcurtain_proxy.model.server import ToolDefinition, ToolResult
from ironcurtain_proxy.model.values import Json

MAX_PAGES: Final = 1000
MAX_TOOLS: Final = 10_000
MAX_ENTRIES: Final = 20_000
"""The most entries of all pages, invalid ones included."""

MAX_BYTES: Final = 16 << 20
"""Bytes of all tools together, as JSON: they stay in memory while the server lives."""

MAX_NAME: Final = 128
"""Characters of a tool's name: the limit of the specification."""

_LONGEST_CURSOR: Final = 8192
"""Characters: all cursors of a list are kept, to see that it ends."""

AskForPage: TypeAlias = Callable[[dict[str, Json]], Awaitable[ToolResult]]
"""Sends `tools/list` with these params."""


class _Found(Struct, eq=False):
    """The tools of one server so far, and the bytes that it has sent."""

    server: str
    drop: Callable[[str], None]
    hide: Callable[[str], None]
    _tools: dict[str, ToolDefinition] = field(default_factory=dict)
    _entries: int = 0
    _bytes: int = 0

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        return tuple(self._tools.values())

    def add_page(self, entries: list[Json]) -> None:
        self._entries += len(entries)
        if self._entries > MAX_ENTRIES:
            self._refuse(f"lists more than {MAX_ENTRIES} entries")
        for entry in entries:
            self._add(entry)
        if len(self._tools) > MAX_TOOLS:
            self._refuse(f"has more than {MAX_TOOLS} tools")
        if self._bytes > MAX_BYTES:
            self._refuse(f"lists tools of more than {MAX_BYTES} bytes")

    def _add(self, entry: Json) -> None:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str) or not name:
            self.drop("an entry of tools/list that is no tool")
        elif (fault := fault_of_name(name)) is not None:
            self.hide(f'tool "{visible(name[:MAX_NAME])}" is hidden: its name {fault}')
        elif name in self._tools:
            self.drop(f"a second tool called {name!r}")
        elif (length := _length(entry)) is None:
            self.drop("a tool that cannot be written as JSON again")
        else:
            self._bytes += length
            self._tools[name] = ToolDefinition(self.server, name, entry)

    def _refuse(self, what: str) -> NoReturn:
        raise DownstreamError(f'server "{self.server}" {what}')


async def list_tools(
    server: str,
    ask: AskForPage,
    drop: Callable[[str], None],
    hide: Callable[[str], None] = lambda _: None,
) -> tuple[ToolDefinition, ...]:
    """Follow `nextCursor` to the end. A server that knows no `tools/list` has no tools.

    Args:
        server: Its name.
        ask: Gets one page.
        drop: Called for invalid entries, for a second tool of one name, and for a page that was
            there before, which ends the list.
        hide: Called for tools that are hidden for their names.

    Raises:
        DownstreamError: the server refuses, sends no list, or does not come to an end.
    """
    found = _Found(server, drop, hide)
    async for entries in _pages(server, ask, "tools", drop, must_end=True):
        found.add_page(entries)
    return found.tools


async def list_entries(
    server: str, ask: AskForPage, keys: tuple[str, str], drop: Callable[[str], None]
) -> tuple[Mapping[str, Json], ...]:
    """Return the entries of another list than the tools, without repeated names.

    Entries beyond the limits are dropped, so that an endless list still gives its first entries.

    Args:
        server: Its name.
        ask: Gets one page.
        keys: where the list stands in a page, and where an entry has its name.
        drop: Called for dropped entries.

    Raises:
        DownstreamError: the server refuses, or sends no list.
    """
    found: dict[str, Mapping[str, Json]] = {}
    size = 0
    async for entries in _pages(server, ask, keys[0], drop, must_end=False):
        for entry in entries:
            name = entry.get(keys[1]) if isinstance(entry, dict) else None
            length = _length(entry) if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not isinstance(name, str) or length is None:
                drop(f"an entry of {keys[0]} that cannot be used")
            elif keys[1] == "name" and (fault := fault_of_name(name)) is not None:
                # Of a URI, what cannot be seen is refused where it is judged.
                drop(f'an entry of {keys[0]}, "{visible(name[:MAX_NAME])}": its name {fault}')
            elif len(found) >= MAX_TOOLS or size + length > MAX_BYTES:
                drop(f"{keys[0]} beyond the first {len(found)}")
                return tuple(found.values())
            else:
                size += length
                found.setdefault(name, entry)
    return tuple(found.values())


async def _pages(
    server: str, ask: AskForPage, key: str, drop: Callable[[str], None], *, must_end: bool
) -> AsyncIterator[list[Json]]:
    """Yield the entries of each page, until one names no other, or one that came before.

    Raises:
        DownstreamError: the server refuses, or sends no list, or one without end that must end.
    """
    cursors: set[str] = set()
    params: dict[str, Json] = {}
    for _ in range(MAX_PAGES):
        entries, cursor = _page(server, await ask(params), key, drop)
        yield entries
        if not cursor:
            return
        if cursor in cursors:
            drop(f"a page of {key} names one that came before")
            return
        cursors.add(cursor)
        params = {"cursor": cursor}
    if must_end:
        raise DownstreamError(f'server "{server}" sends more than {MAX_PAGES} pages of {key}')


def fault_of_name(name: str) -> str | None:
    """Return why a tool or prompt of this name is hidden, or None if it is shown.

    A terminal obeys control characters, and bidirectional ones make a name look like another.
    """
    if is_like_a_label(name):
        return "begins with a method of the protocol"
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    hidden = next((one for one in name if visible(one) != one), None)
    return None if hidden is None else f"holds {visible(hidden)}"


def _length(entry: dict[str, Json]) -> int | None:
    """Return bytes of a tool as JSON in its answer.

    It is None if it is nested too deeply to be written.
    """
    try:
        return len(encode({"result": {"tools": [entry]}}))
    except ValueError:
        return None


def _page(
    server: str, answer: ToolResult, key: str, drop: Callable[[str], None]
) -> tuple[list[Json], str]:
    """Return the entries of one page, and where the next begins; empty after the last.

    Servers in Go write an empty list as `null`, and some number their pages.
    """
    if answer.error is not None and answer.error.get("code") == METHOD_NOT_FOUND:
        return [], ""
    entries = None if answer.result is None else answer.result.get(key, answer.result)
    if answer.result is None or not isinstance(entries, list | None):
        raise refusal(f'server "{server}" does not list its {key}', answer.error)
    cursor = answer.result.get("nextCursor") or ""
    if not isinstance(cursor, str) or len(cursor) > _LONGEST_CURSOR:
        drop(f"a page of {key} names the next one by no short text; what came before is kept")
        cursor = ""
    return entries or [], cursor
