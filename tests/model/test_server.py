"""A server's answer, and the JSON that it was written as."""

from dataclasses import replace

from ironcurtain_proxy.model.server import ToolResult


def test_a_copy_with_another_result_does_not_keep_what_the_first_was_written_as() -> None:
    answer = ToolResult(result={"a": 1}).with_written(b'{"a":1}')
    assert answer.written == b'{"a":1}'
    assert answer == ToolResult(result={"a": 1})
    assert replace(answer, result={"a": 2}).written is None
