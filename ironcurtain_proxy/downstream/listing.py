"""Lists of one server's tools, resources and prompts, page by page.

The server is untrusted: it may send endless pages, or invalid entries.

The entries of all servers stand in one list, and most clients reject a whole list for one entry of
another shape: a description that is `null` would take the tools of every server from the agent. So
a part that has not the type that the protocol says is left out, and what must be there is put
there. All else crosses as it came.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import (
    Annotated,
    Final,
    Literal,
    Required,
    TypeAlias,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from msgspec import Meta, MsgspecError, convert

from ironcurtain_proxy.downstream.eras import METHOD_NOT_FOUND, refusal
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.jsonrpc.codec import encode
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.operation import is_like_a_label
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, list_of, object_of

# --- shapes


class _Icon(TypedDict, total=False):
    src: Required[str]
    mimeType: str
    sizes: list[str]
    theme: Literal["light", "dark"]


class _Words(TypedDict, total=False):
    name: Required[str]
    title: str
    description: str
    icons: list[_Icon]
    _meta: dict[str, object]


class _Schema(TypedDict, total=False):
    properties: dict[str, dict[str, object]]
    required: list[str]


class _Arguments(_Schema, total=False):
    type: Required[Literal["object"]]


class _Hints(TypedDict, total=False):
    title: str
    readOnlyHint: bool
    destructiveHint: bool
    idempotentHint: bool
    openWorldHint: bool


class _Execution(TypedDict, total=False):
    taskSupport: Literal["required", "optional", "forbidden"]


class _Tool(_Words, total=False):
    inputSchema: Required[_Arguments]
    outputSchema: _Schema
    annotations: _Hints
    execution: _Execution


class _Marks(TypedDict, total=False):
    audience: list[Literal["user", "assistant"]]
    priority: Annotated[float, Meta(ge=0, le=1)]
    lastModified: Annotated[datetime, Meta(tz=True)]


class _Resource(_Words, total=False):
    mimeType: str
    size: Annotated[int, Meta(ge=0)]
    annotations: _Marks


class _Argument(TypedDict, total=False):
    name: Required[str]
    title: str
    description: str
    required: bool


class _Prompt(_Words, total=False):
    arguments: list[_Argument]


_SHAPES: Final[Mapping[str, tuple[object, str]]] = {
    "tools": (_Tool, "name"),
    "prompts": (_Prompt, "name"),
    "resources": (_Resource, "uri"),
    "resourceTemplates": (_Resource, "uriTemplate"),
}
"""What an entry of each list is, and the key that tells it from the others."""

_NOTHING: Final[Json] = {}
"""Stands for a part that is left out. It is known by its identity."""


def fitting(kind: str, entries: list[Json], drop: Callable[[str], None]) -> list[Json]:
    """Return the entries of one page as clients can read them.

    Args:
        kind: of the list.
        entries: as they came; what is no object stays.
        drop: called for each entry of which a part is left out.
    """
    shape, key = _SHAPES[kind]
    if _has(entries, list[shape]):  # type: ignore[valid-type]
        return entries
    found: list[Json] = []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get(key), str) and not _has(entry, shape):
            drop(f"parts of {kind[:-1]} {str(entry[key])[:100]!r}, which are not as MCP has them")
            whole: dict[str, Json] = {**entry}
            if kind == "tools":
                whole["inputSchema"] = {**object_of(entry.get("inputSchema")), "type": "object"}
            elif not isinstance(entry.get("name"), str):
                whole["name"] = entry[key]
            entry = _mended(whole, shape)  # noqa: PLW2901
        found.append(entry)
    return found


def _has(value: object, shape: object) -> bool:
    with suppress(MsgspecError, ValueError, OverflowError, RecursionError):
        convert(value, shape)
        return True
    return False


def _mended(value: Json, shape: object) -> Json:
    """Return as much of a value as has a shape, or `_NOTHING`."""
    kind = get_origin(shape)
    if _has(value, shape):
        return value
    if kind is list and isinstance(value, list):
        found = [_mended(one, get_args(shape)[0]) for one in value]
        return [one for one in found if one is not _NOTHING]
    if kind is dict and isinstance(value, dict):
        # `false` is the schema of an argument that nobody may give.
        odd: Json = {"not": {}}
        return {
            k: v if isinstance(v, dict) else odd if v is False else {} for k, v in value.items()
        }
    if is_typeddict(shape) and isinstance(value, dict):
        hints = get_type_hints(shape, include_extras=True)
        parts = {
            key: _mended(one, _inner(hints[key])) if key in hints else one
            for key, one in value.items()
        }
        kept = {key: one for key, one in parts.items() if one is not _NOTHING}
        needed = shape.__required_keys__  # type: ignore[attr-defined]
        return kept if needed <= kept.keys() else _NOTHING
    return _NOTHING


def _inner(hint: object) -> object:
    return get_args(hint)[0] if get_origin(hint) is Required else hint


# --- lists

MAX_PAGES: Final = 1000
MAX_TOOLS: Final = 10_000
MAX_ENTRIES: Final = 20_000
"""The most entries of all pages, invalid ones included: each takes a moment of the event loop."""

MAX_BYTES: Final = 16 << 20
"""Bytes of a list, as JSON: tools stay in memory while the server lives."""

MAX_NAME: Final = 128
"""Characters of a tool's name: the limit of the specification."""

MAX_DEPTH: Final = 100
"""The most levels of an entry: some clients read no line with more than 128, of all servers."""

_LONGEST_CURSOR: Final = 8192
"""Characters: all cursors of a list are kept, to see that it ends."""

AskForPage: TypeAlias = Callable[[dict[str, Json]], Awaitable[ToolResult]]
"""Sends `tools/list` or another list's method with these params."""


TOOLS: Final = ("tools", "name")
"""Where the list of tools stands in a page, and where a tool has its name."""


async def list_entries(
    server: str,
    ask: AskForPage,
    keys: tuple[str, str],
    drop: Callable[[str], None],
    hide: Callable[[str], None] | None = None,
) -> dict[str, Mapping[str, Json]]:
    """Return the entries of a list by their names, in the server's order.

    A server that knows no such list has no entries. Beyond the limits other lists than the tools
    are cut, so that an endless list still gives its first entries.

    Args:
        server: its name.
        ask: gets one page.
        keys: where the list stands in a page, and where an entry has its name.
        drop: called for what is left out, such as a second entry of one name.
        hide: called instead for entries that are hidden for their names.

    Raises:
        DownstreamError: it refuses, sends no list, or one of tools that does not come to an end.
    """
    kind, key = keys
    found: dict[str, Mapping[str, Json]] = {}
    size = 0
    async for entries in _pages(server, ask, kind, drop, must_end=keys == TOOLS):
        for entry in entries:
            name = entry.get(key) if isinstance(entry, dict) else None
            length = _length(entry) if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not isinstance(name, str) or not (name and length):
                drop(f"an entry of {kind} that cannot be used")
            elif key == "name" and (fault := fault_of_name(name)) is not None:
                # Of a URI, what cannot be seen is refused where it is judged.
                words = f'{kind[:-1]} "{visible(name[:MAX_NAME])}" is hidden: its name {fault}'
                (hide or drop)(words)
            elif name in found:
                drop(f"a second entry of {kind} called {name!r}")
            elif len(found) < MAX_TOOLS and size + length <= MAX_BYTES:
                size += length
                found[name] = entry
            elif keys == TOOLS:
                most = f"more than {MAX_TOOLS} tools, or than {MAX_BYTES} bytes of them"
                raise DownstreamError(f'server "{server}" has {most}')
            else:
                drop(f"{kind} beyond the first {len(found)}")
                return found
    return found


async def _pages(
    server: str, ask: AskForPage, key: str, drop: Callable[[str], None], *, must_end: bool
) -> AsyncIterator[list[Json]]:
    """Yield the entries of each page, until one names no other, or one that came before.

    At most `MAX_ENTRIES` are yielded.

    Raises:
        DownstreamError: the server refuses, or sends no list, or one without end that must end.
    """
    cursors: set[str] = set()
    params: dict[str, Json] = {}
    left = MAX_ENTRIES
    for _ in range(MAX_PAGES):
        entries, cursor = _page(server, await ask(params), key, drop)
        yield entries[:left]
        left -= len(entries)
        if left < 0 and must_end:
            raise DownstreamError(f'server "{server}" lists more than {MAX_ENTRIES} entries')
        if left < 0:
            drop(f"{key} beyond the first {MAX_ENTRIES} entries")
            return
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

    It is None if it is nested so deeply that it cannot be written, or not be read by all clients.
    """
    try:
        line = encode({"result": {"tools": [entry]}})
    except ValueError:
        return None
    may_be_deep = line.count(b"{") + line.count(b"[") > MAX_DEPTH
    return None if may_be_deep and _is_deep(entry) else len(line)


def _is_deep(entry: Json) -> bool:
    level: list[Json] = [entry]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else list_of(one))
        ]
    return bool(level)


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
    return fitting(key, entries or [], drop), cursor
