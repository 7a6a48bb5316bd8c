"""What the agent is told of the servers when it connects."""

from ironcurtain_proxy.agent.asking import introduction_of
from ironcurtain_proxy.downstream.greeting import ServerDescription
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
    assert introduction_of("", servers).extensions == {UI: {"a": 1}, "com.example/big": {}}


def test_a_server_with_thousands_of_extensions_tells_a_few() -> None:
    many = declaring({f"a/{number}": {} for number in range(5000)})
    assert len(introduction_of("", {"one": many}).extensions) == 32
