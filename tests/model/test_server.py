"""A server's answer, and the JSON that it was written as."""

from ironcurtain_proxy.model.server import ToolResult


def test_a_copy_with_another_result_does_not_keep_what_the_first_was_written_as() -> None:
    answer = ToolResult(result={"a": 1}, written=b'{"a":1}')
    assert answer.with_result({"a": 2}, "") == ToolResult(result={"a": 2})
