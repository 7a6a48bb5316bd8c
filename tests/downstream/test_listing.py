"""What counts as a tool, and when a list is at its end."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream.listing import (
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_PAGES,
    MAX_TOOLS,
    TOOLS,
    AskForPage,
    list_entries,
)
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.server import ShownTools, ToolResult
from ironcurtain_proxy.model.values import Json
from tests.downstream.scripted_servers import running, scripted

pytestmark = pytest.mark.anyio


class Pages:
    """A server that sends these results, one after the other, the last again and again."""

    def __init__(self, *results: dict[str, Json]) -> None:
        self.results = results
        self.asked: list[dict[str, Json]] = []

    async def __call__(self, params: dict[str, Json]) -> ToolResult:
        self.asked.append(params)
        return ToolResult(result=self.results[min(len(self.asked), len(self.results)) - 1])


async def list_tools(
    ask: AskForPage, drop: Callable[[str], None], hide: Callable[[str], None] | None = None
) -> list[str]:
    """The names of all tools of a server."""
    return [*await list_entries("s", ask, TOOLS, drop, hide)]


def forget(_: str) -> None:
    """Nobody wants to know."""


async def test_what_is_no_tool_is_left_out_and_said_and_so_is_a_second_one_of_a_name() -> None:
    dropped: list[str] = []
    whole: dict[str, Json] = {"name": "a", "inputSchema": {"type": "object"}}
    entries: list[Json] = [whole, 5, {}, {**whole, "name": ""}, {**whole, "v": 2}]
    found = await list_entries("s", Pages({"tools": entries}), TOOLS, dropped.append)
    assert found == {"a": whole}
    assert len(dropped) == 4


def nested(levels: int, *, in_lists: bool) -> Json:
    """A value of so many levels."""
    value: Json = 1
    for _ in range(levels):
        value = [value] if in_lists else {"x": value}
    return value


LISTS = [TOOLS, ("prompts", "name"), ("resources", "uri"), ("resourceTemplates", "uriTemplate")]


@pytest.mark.parametrize("keys", LISTS, ids=lambda keys: keys[0])
@pytest.mark.parametrize("in_lists", [True, False])
async def test_an_entry_that_is_nested_too_deeply_for_clients_is_left_out(
    keys: tuple[str, str], in_lists: bool
) -> None:
    kind, key = keys
    entries: list[Json] = [
        {
            key: f"x:{levels}",
            "name": f"x:{levels}",
            "_meta": {"m": nested(levels - 2, in_lists=in_lists)},
        }
        for levels in (MAX_DEPTH - 1, MAX_DEPTH + 1, 20_000)
    ]
    dropped: list[str] = []
    found = await list_entries("s", Pages({kind: entries}), keys, dropped.append)
    assert [*found] == [f"x:{MAX_DEPTH - 1}"]
    assert len([one for one in dropped if "cannot be used" in one]) == 2


@pytest.mark.parametrize(
    "name",
    ["a\x1b[2J", "read\u202efile", "zero\u200bwidth", "x" * 129, "line\nbreak", "blank\u3164"],
    ids=["escape", "bidirectional", "zero width", "too long", "newline", "filler"],
)
async def test_a_tool_whose_name_misleads_the_eye_is_hidden_and_said(name: str) -> None:
    hidden: list[str] = []
    entries: list[Json] = [{"name": name}, {"name": "plain"}, {"name": "x" * 128}]
    found = await list_tools(Pages({"tools": entries}), forget, hidden.append)
    assert found == ["plain", "x" * 128]
    (said,) = hidden
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < 250


async def test_a_prompt_whose_name_misleads_the_eye_is_hidden_too() -> None:
    dropped: list[str] = []
    entries: list[Json] = [{"name": "a\x1b[2J"}, {"name": "p\u202ey"}, {"name": "x" * 129}]
    pages = Pages({"prompts": [*entries, {"name": "plain"}]})
    found = await list_entries("s", pages, ("prompts", "name"), dropped.append)
    assert found == {"plain": {"name": "plain"}}
    assert len(dropped) == 3
    assert all(said.isascii() and said.isprintable() for said in dropped)


async def test_entries_that_are_none_count_for_the_limit_and_end_the_list() -> None:
    """Each takes a moment of the event loop, and a page of 10 MiB has millions of them."""
    endless: list[Json] = [5] * (MAX_ENTRIES // 2 + 1)
    dropped: list[str] = []
    pages = Pages(
        {"prompts": [{"name": "p0"}, *endless], "nextCursor": "0"},
        {"prompts": [{"name": "p1"}, *endless], "nextCursor": "1"},
    )
    found = await list_entries("s", pages, ("prompts", "name"), dropped.append)
    assert list(found) == ["p0", "p1"]
    assert len(dropped) == MAX_ENTRIES - 2 + 1
    with pytest.raises(DownstreamError, match="lists more than 20000 entries"):
        await list_tools(Pages({"tools": endless, "nextCursor": "a"}, {"tools": endless}), forget)


async def test_cursors_are_followed_as_they_came() -> None:
    pages = Pages(
        {"tools": [{"name": "a"}], "nextCursor": "x y"}, {"tools": [], "nextCursor": None}
    )
    assert await list_tools(pages, forget) == ["a"]
    assert pages.asked == [{}, {"cursor": "x y"}]


@pytest.mark.parametrize("page", [{}, {"tools": {}}, {"tools": "none"}])
async def test_what_is_no_list_is_an_error(page: dict[str, Json]) -> None:
    with pytest.raises(DownstreamError, match='server "s" does not list its tools'):
        await list_tools(Pages(page), forget)


async def test_an_empty_list_may_be_null_and_a_number_of_a_page_ends_the_list() -> None:
    assert await list_tools(Pages({"tools": None}), forget) == []
    said: list[str] = []
    tool: dict[str, Json] = {"name": "a", "inputSchema": {"type": "object"}}
    long = Pages({"tools": [tool], "nextCursor": "x" * 8193})
    assert len(await list_tools(long, said.append)) == 1
    assert len(said) == 1
    assert said.pop().isascii()
    numbered = Pages({"tools": [tool], "nextCursor": 2})
    assert await list_tools(numbered, said.append) == ["a"]
    assert len(said) == 1


async def test_what_a_server_answers_instead_of_its_list_is_for_the_operator() -> None:
    async def ask(_: dict[str, Json]) -> ToolResult:
        return ToolResult(error={"code": -32603, "message": "run foo\x1b[2J login"})

    with pytest.raises(DownstreamError) as raised:
        await list_tools(ask, forget)
    assert str(raised.value) == 'server "s" does not list its tools'
    assert raised.value.__notes__ == ['; it answered "run foo\\u001b[2J login"']


async def test_a_server_without_tools_may_not_know_the_method() -> None:
    async def ask(_: dict[str, Json]) -> ToolResult:
        return ToolResult(error={"code": -32601, "message": "Method not found"})

    assert await list_tools(ask, forget) == []


async def test_a_list_without_end_is_an_error() -> None:
    endless: list[dict[str, Json]] = [
        {"tools": [], "nextCursor": str(n)} for n in range(MAX_PAGES + 1)
    ]
    with pytest.raises(DownstreamError, match="more than 1000 pages"):
        await list_tools(Pages(*endless), forget)
    many: list[Json] = [{"name": str(n)} for n in range(MAX_TOOLS + 1)]
    with pytest.raises(DownstreamError, match="more than 10000 tools"):
        await list_tools(Pages({"tools": many}), forget)


async def test_a_tool_that_the_entry_does_not_show_does_not_exist() -> None:
    shown = ShownTools(deny=("add*",))
    async with running(replace(scripted(), tools=shown)) as servers:
        assert [tool.name for tool in servers.tools_now()["one"]] == ["echo"]
