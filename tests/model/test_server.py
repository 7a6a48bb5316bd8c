"""A server's answer, and the JSON that it was written as."""

import pytest

from ironcurtain_proxy.model.server import RemoteEndpoint, ServerSpec, ShownTools, ToolResult


def test_a_copy_with_another_result_does_not_keep_what_the_first_was_written_as() -> None:
    answer = ToolResult(result={"a": 1}, written=b'{"a":1}')
    assert answer.with_result({"a": 2}, "") == ToolResult(result={"a": 2})


def test_a_result_that_says_so_and_an_error_are_failures() -> None:
    assert ToolResult(result={"isError": True}).has_failed
    assert ToolResult(error={"code": -32603}).has_failed
    assert not ToolResult(result={"isError": "true"}).has_failed


def test_the_place_of_a_server_is_its_program_or_the_host_that_is_reached() -> None:
    started = ServerSpec(name="files", annotations="files", command="npx", args=("-y", "x"))
    reached = ServerSpec(
        name="far",
        annotations="far",
        command="",
        remote=RemoteEndpoint(url="https://user@mcp.example:8443/mcp"),
    )
    ours = ServerSpec(name="sh", annotations="sh", command="", builtin="shell")
    assert (started.place, reached.place, ours.place) == ("npx", "mcp.example", "our own")


def test_a_header_of_any_spelling_says_who_we_are() -> None:
    url = "https://mcp.example/mcp"
    assert RemoteEndpoint(url=url, headers={"AUTHORIZATION": "x"}).has_authorization
    assert not RemoteEndpoint(url=url, headers={"x-authorization": "x"}).has_authorization


@pytest.mark.parametrize(
    ("tool", "shown"),
    [("read_file", True), ("read_media", False), ("write_file", False), ("xread_file", False)],
)
def test_a_tool_is_shown_if_a_pattern_allows_it_and_none_leaves_it_out(
    tool: str, *, shown: bool
) -> None:
    assert ShownTools(allow=("read_*",), deny=("*_m?dia",)).has(tool) is shown
