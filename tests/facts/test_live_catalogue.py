"""The catalogue while servers start and change."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
import pytest

from ironcurtain_proxy.facts.live_catalogue import LiveCatalogue
from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition
from ironcurtain_proxy.model.values import Json

pytestmark = pytest.mark.anyio


@dataclass
class Starting:
    """Servers that start when told to."""

    listed: dict[str, tuple[ToolDefinition, ...]] = field(default_factory=dict)
    begun: dict[str, anyio.Event] = field(default_factory=dict)
    waited_for: list[str] = field(default_factory=list)
    new: dict[str, tuple[ToolDefinition, ...]] = field(default_factory=dict)
    """What servers list when they are asked again."""

    def start(self, server: str, *tools: str) -> None:
        self.listed[server] = tuple(ToolDefinition(server, name, {"name": name}) for name in tools)
        self.begun.setdefault(server, anyio.Event()).set()

    def tools_now(self) -> Mapping[str, tuple[ToolDefinition, ...]]:
        return self.listed

    async def until_settled(self, server: str) -> None:
        self.waited_for.append(server)
        await self.begun.setdefault(server, anyio.Event()).wait()

    async def until_started(self, server: str) -> str:
        await self.until_settled(server)
        return "" if self.listed.get(server) else f"{server} did not start."

    async def list_again(self, server: str) -> None:
        self.listed.update(self.new)


def catalogue_of(source: Starting, *names: str) -> LiveCatalogue:
    specs = [ServerSpec(name=name, annotations=name, command="x") for name in names]
    return LiveCatalogue(specs, {}, source)


async def test_a_call_waits_for_its_own_server_and_for_no_other() -> None:
    source = Starting()
    catalogue = catalogue_of(source, "slow", "quick")
    source.start("quick", "read")
    await catalogue.ready("quick__read")
    assert catalogue.find("quick__read") == ("quick", "read")
    assert source.waited_for == ["quick"]


async def test_a_second_server_renames_nothing_where_names_always_carry_their_server() -> None:
    source = Starting()
    source.start("first", "read")
    bare = catalogue_of(source, "first")
    bare.refresh()
    assert [tool.exposed_name for tool in bare.tools] == ["read"]
    for names in (("first",), ("first", "second")):
        specs = [ServerSpec(name=name, annotations=name, command="x") for name in names]
        catalogue = LiveCatalogue(specs, {}, source, has_prefix=True)
        catalogue.refresh()
        assert [tool.exposed_name for tool in catalogue.tools] == ["first__read"]
        assert catalogue.find("first__read") == ("first", "read")
        assert catalogue.find("read") is None
        assert catalogue.exposed("first", "new") == "first__new"
        assert catalogue.naming.prompt_meant("first__ask") == ("first", "ask")


async def test_a_call_that_comes_before_its_server_finds_it_later() -> None:
    source = Starting()
    catalogue = catalogue_of(source, "only")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(catalogue.ready, "read")
        await anyio.wait_all_tasks_blocked()
        assert catalogue.find("read") is None
        source.start("only", "read")
    assert catalogue.find("read") == ("only", "read")


async def test_who_calls_a_tool_of_a_server_that_did_not_start_is_told_so() -> None:
    source = Starting()
    catalogue = catalogue_of(source, "one", "two")
    source.start("one")
    source.start("two", "read")
    assert await catalogue.ready("one__read") == "one did not start."
    assert await catalogue.ready("two__write") == ""


async def test_a_name_of_no_server_waits_for_none() -> None:
    source = Starting()
    catalogue = catalogue_of(source, "one", "two")
    await catalogue.ready("three__read")
    assert catalogue.find("three__read") is None
    assert source.waited_for == []


async def test_a_known_tool_waits_for_nobody_a_second_time() -> None:
    source = Starting()
    catalogue = catalogue_of(source, "one", "two")
    source.start("one", "read")
    await catalogue.ready("one__read")
    await catalogue.ready("one__read")
    assert source.waited_for == ["one"]


async def test_the_list_waits_for_every_server() -> None:
    source = Starting()
    catalogue = catalogue_of(source, "one", "two")
    source.start("one", "a")
    shown: list[object] = []

    async def listing() -> None:
        shown.extend(await catalogue.listing())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listing)
        await anyio.wait_all_tasks_blocked()
        assert shown == []
        source.start("two", "b")
    assert shown == [{"name": "one__a"}, {"name": "two__b"}]


async def test_a_bare_name_stands_for_a_tool_once_every_server_has_listed_its_own() -> None:
    source = Starting()
    catalogue = catalogue_of(source, "a", "b")
    source.start("a", "write")
    catalogue.refresh()
    assert catalogue.names("a", "write") == {"a/write"}
    source.start("b", "read")
    catalogue.refresh()
    assert catalogue.names("a", "write") == {"a/write", "write"}
    source.start("b", "write")
    catalogue.refresh()
    assert catalogue.names("a", "write") == {"a/write"}


async def test_a_tool_that_its_server_added_in_silence_is_found_by_its_first_call() -> None:
    source = Starting()
    source.start("one", "read")
    catalogue = catalogue_of(source, "one")
    await catalogue.listing()
    source.new = {"one": tuple(ToolDefinition("one", name, {"name": name}) for name in ("a", "b"))}
    assert await catalogue.ready("b") == ""
    assert catalogue.find("b") == ("one", "b")


async def test_a_tool_that_is_held_or_of_another_server_is_like_none() -> None:
    source = Starting()
    reads = {"path": RoleSpec(default=("read-path",))}
    annotations = {
        (server, name): ToolAnnotation(server=server, tool=name, arguments=reads)
        for server in ("files", "others")
        for name in ("read", "list", "find")
    }
    specs = [ServerSpec(name=name, annotations=name, command="x") for name in ("files", "others")]
    pins = {"files": {"find": "changed"}}
    catalogue = LiveCatalogue(specs, annotations, source, lambda name, _: pins.get(name, {}))
    source.start("files", "read", "list", "find", "unknown")
    source.start("others", "read")
    await catalogue.ready("files__read")
    assert catalogue.alike("files", "read") == {
        "list": (catalogue.definition("files", "list"), frozenset({"read-path"}))
    }
    assert catalogue.alike("files", "unknown") == {}
    assert catalogue.alike("files", "absent") == {}


@pytest.mark.parametrize(("server", "is_shared"), [("fetch", True), ("shell", False)])
async def test_both_doors_have_one_tool_of_the_same_arguments_and_never_one_shell(
    server: str, *, is_shared: bool
) -> None:
    """Else what was approved for the client's shell would run wherever a server runs it."""
    schema: Mapping[str, Json] = {"type": "object", "properties": {"what": {"type": "string"}}}
    own, others = Starting(), Starting()
    catalogues = []
    for door, said in ((own, "here"), (others, "on another machine")):
        raw: dict[str, Json] = {"name": "go", "description": said, "inputSchema": {**schema}}
        door.listed[server] = (ToolDefinition(server, "go", raw),)
        catalogue = catalogue_of(door, server)
        catalogue.refresh()
        catalogues.append(catalogue)
    hook, served = catalogues
    hook.beside = served
    assert (hook.definition(server, "go") == served.definition(server, "go")) is is_shared
