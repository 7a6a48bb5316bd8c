"""Which tools there are, and under which names."""

from ironcurtain_proxy.facts.live_catalogue import build_catalogue
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition


def spec(name: str, annotations: str | None = None) -> ServerSpec:
    return ServerSpec(name=name, annotations=annotations or name, command="x")


def tool(server: str, name: str, note: str = "") -> ToolDefinition:
    return ToolDefinition(server, name, {"name": name, "note": note})


NOTE = ToolAnnotation(server="filesystem", tool="read", arguments={})


def test_one_server_shows_its_bare_names() -> None:
    catalogue = build_catalogue([spec("files")], {"files": [tool("files", "read")]}, {})
    found = catalogue.by_name.get("read")
    assert found is not None
    assert found.server == "files"
    assert catalogue.by_name.get("files__read") is None


def test_of_several_servers_the_tools_carry_the_servers_name() -> None:
    catalogue = build_catalogue([spec("a"), spec("b")], {"a": [tool("a", "x__y")]}, {})
    found = catalogue.by_name.get("a__x__y")
    assert found is not None
    assert (found.server, found.definition.name) == ("a", "x__y")
    assert catalogue.by_name.get("x__y") is None
    assert catalogue.by_tool["a", "x__y"] is found


def test_a_tool_has_the_annotation_of_the_server_it_is_known_as() -> None:
    servers = [spec("mine", "filesystem")]
    definitions = {"mine": [tool("mine", "read"), tool("mine", "write")]}
    catalogue = build_catalogue(servers, definitions, {("filesystem", "read"): NOTE})
    assert [found.annotation for found in catalogue.tools] == [NOTE, None]
    assert {found.policy_server for found in catalogue.tools} == {"filesystem"}


def test_a_tool_listed_twice_is_the_first_and_is_said() -> None:
    definitions = {"a": [tool("a", "x", "first"), tool("a", "x", "second")]}
    catalogue = build_catalogue([spec("a")], definitions, {})
    assert [found.definition.raw["note"] for found in catalogue.tools] == ["first"]
    assert len(catalogue.notices) == 1
