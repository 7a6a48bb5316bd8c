"""What the agent is told of the servers when it connects."""

from ironcurtain_proxy.agent.asking import introduction_of
from ironcurtain_proxy.downstream.eras import ServerDescription
from ironcurtain_proxy.model.values import Json

UI = "io.modelcontextprotocol/ui"


def declaring(extensions: Json) -> ServerDescription:
    return ServerDescription({"extensions": extensions})


def test_the_extensions_of_servers_are_told_but_for_what_the_proxy_cannot_pass_on() -> None:
    servers = {
        "one": declaring({UI: {"a": 1}, "io.modelcontextprotocol/tasks": {}}),
        "two": declaring({UI: {"a": 2}, "com.example/big": {"text": "x" * 2000}}),
        "odd": ServerDescription({"extensions": ["a/b"]}),
        "wrong": declaring({"no slash": {}, "a/b\nc": {}, "a/c": True, "a/d": None}),
    }
    told = introduction_of("", servers).capabilities["extensions"]
    assert told == {UI: {"a": 1}, "com.example/big": {}}


def test_a_server_with_thousands_of_extensions_tells_a_few() -> None:
    many = declaring({f"a/{number}": {} for number in range(5000)})
    told = introduction_of("", {"one": many}).capabilities["extensions"]
    assert isinstance(told, dict)
    assert len(told) == 32


def test_no_extension_is_told_that_is_nested_deeper_than_clients_can_read() -> None:
    deep: Json = 1
    for _ in range(200):
        deep = [deep]
    told = introduction_of("", {"one": declaring({"a/b": {"c": deep}})}).capabilities
    assert told["extensions"] == {"a/b": {}}


def test_what_no_server_has_is_declared_only_while_one_is_not_known() -> None:
    servers = {"one": ServerDescription({"prompts": {}}), "two": ServerDescription({"tools": {}})}
    told = introduction_of("", servers, are_all=True).capabilities
    assert sorted(told) == ["logging", "prompts", "tools"]
    assert told["prompts"] == {"listChanged": True}
    told = introduction_of("", servers).capabilities
    assert sorted(told) == ["completions", "logging", "prompts", "resources", "tools"]
