"""The effects of SQL are ordered, and the gravest text of a call counts."""

from ironcurtain_proxy.model.annotation import ToolEffect
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    SqlValue,
    effect_word,
    sql_of,
)
from ironcurtain_proxy.model.values import gravest, is_at_most


def test_a_graver_effect_covers_the_ones_before_it() -> None:
    assert is_at_most("reads", "writes")
    assert not is_at_most("destroys", "writes")
    assert gravest("writes", "reads", "destroys") == "destroys"
    assert gravest() == "reads"


def test_the_gravest_text_of_a_call_counts() -> None:
    values = (SqlValue("a", "reads"), SqlValue("b", "runs"), SqlValue("c", "writes"))
    facts = (ArgumentFact("x", ("none",), ()), ArgumentFact("sql", ("sql",), values))
    request = AccessRequest(
        server="db", tool="query", annotated=True, has_arguments=True, arguments=facts
    )
    assert sql_of(request) == values[1]
    assert effect_word(request) == "destroys"


def test_a_call_is_known_by_its_sql_else_by_its_tool() -> None:
    def word(*values: SqlValue, effect: ToolEffect | None = None) -> str:
        return effect_word(
            AccessRequest(
                server="db",
                tool="query",
                annotated=True,
                has_arguments=True,
                arguments=(ArgumentFact("sql", ("sql",), values),),
                effect=effect,
            )
        )

    assert word(SqlValue("a", "writes"), effect="destroys") == "writes"
    assert word(effect="sends") == "sends"
    assert word() == ""
