"""Which answers of a server are questions."""

import pytest

from ironcurtain_proxy.model.reply import pages_in, question_in
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json

TEXT: Json = [{"type": "text", "text": "done"}]


@pytest.mark.parametrize("code", [-32042, -32042.0, "-32042", " -32042 "])
def test_an_error_that_sends_the_user_to_a_url_is_a_question(code: Json) -> None:
    assert question_in(ToolResult(error={"code": code, "message": "log in"})) is not None


def test_an_error_of_any_code_that_lists_elicitations_is_a_question() -> None:
    error: dict[str, Json] = {"code": -32000, "message": "m", "data": {"elicitations": []}}
    assert question_in(ToolResult(error=error)) is not None


@pytest.mark.parametrize("data", [None, [], {"url": "https://example.com"}])
def test_any_other_error_is_an_answer(data: Json) -> None:
    assert question_in(ToolResult(error={"code": -32099, "message": "m", "data": data})) is None


@pytest.mark.parametrize(
    "kind", ["input_required", "task", "", "Complete", "x" * 5000, None, 1, ["complete"], {}]
)
def test_a_result_of_any_type_but_complete_is_a_question(kind: Json) -> None:
    asked = question_in(ToolResult(result={"content": TEXT, "resultType": kind}))
    assert asked is not None
    assert len(asked) < 100


@pytest.mark.parametrize("key", ["inputRequests", "requestState", "task"])
def test_a_result_that_leaves_its_type_out_is_known_by_its_keys(key: str) -> None:
    assert question_in(ToolResult(result={"content": TEXT, key: {}})) is not None


@pytest.mark.parametrize("more", [{}, {"resultType": "complete"}, {"isError": True}, {"v": 1}])
def test_everything_else_is_an_answer(more: dict[str, Json]) -> None:
    assert question_in(ToolResult(result={"content": TEXT, **more})) is None


PAGE: Json = {"mode": "url", "elicitationId": "1", "url": "https://a.example", "message": "log in"}


def test_the_pages_of_an_error_are_those_that_it_names() -> None:
    error: dict[str, Json] = {"code": -32042, "message": "m", "data": {"elicitations": [PAGE] * 4}}
    assert pages_in(ToolResult(error=error)) == [PAGE] * 4


@pytest.mark.parametrize(
    ("code", "pages"),
    [
        ("-32042", [PAGE]),
        (-32041, [PAGE]),
        (-32042, [PAGE, "https://a.example"]),
        (-32042, [{"mode": "form", "elicitationId": "1"}]),
        (-32042, [{"mode": "url", "elicitationId": 1}]),
        (-32042, [PAGE] * 5),
        (-32042, PAGE),
    ],
)
def test_an_error_with_anything_else_beside_pages_names_none(code: Json, pages: Json) -> None:
    error: dict[str, Json] = {"code": code, "message": "m", "data": {"elicitations": pages}}
    assert pages_in(ToolResult(error=error)) == []
    assert pages_in(ToolResult(result={"content": []})) == []
