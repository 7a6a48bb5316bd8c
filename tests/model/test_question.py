"""What a person is shown cannot be dressed up by what is asked about."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.model.escalation import as_json, fold, folded, is_hidden, question, visible
from ironcurtain_proxy.model.values import Json
from tests.questions import a_question


def test_a_question_says_what_is_asked_why_and_what_would_be_remembered() -> None:
    assert question(a_question({"path": "/etc/hosts", "head": 5})) == (
        "May the agent use files/read_file?",
        "Why you are asked: it lies outside the workspace (rule outside)",
        "Working directory: /srv/repo",
        "Arguments, written by the agent:",
        '  path = "/etc/hosts"',
        "  head = 5",
        '"Remember" means: Allow files/read_file read-path within /etc',
    )
    assert "Arguments: none" in question(a_question({}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain ~!", "plain ~!", id="plain"),
        pytest.param("Zürich 北京", "Zürich 北京", id="letters of any script"),
        pytest.param("a\nb\r\t\x1b[2J\x7f", "a\\nb\\r\\t\\x1b[2J\\x7f", id="control characters"),
        pytest.param("a\u202eb\u2066", "a\\u202eb\\u2066", id="bidirectional"),
        pytest.param("a\u200b\u200d\ufeffb", "a\\u200b\\u200d\\ufeffb", id="zero-width"),
        pytest.param("a\u00a0b\u3000", "a\\u00a0b\\u3000", id="spaces that are none"),
        pytest.param("a\u2028b", "a\\u2028b", id="line separator"),
        pytest.param("a\U000e0041b", "a\\U000e0041b", id="tags"),
        pytest.param("a\U000e0100\ufe0f", "a\\U000e0100\\ufe0f", id="variation selectors"),
        pytest.param("\u3164\u115f\u2800", "\\u3164\\u115f\\u2800", id="fillers"),
        pytest.param("\u180b\U0001d159", "\\u180b\\U0001d159", id="what has no shape"),
        pytest.param("\ud800", "\\ud800", id="half a character"),
    ],
)
def test_what_cannot_be_seen_is_escaped(text: str, expected: str) -> None:
    assert visible(text) == expected.replace("\\x1b", "\\u001b").replace("\\x7f", "\\u007f")


@given(st.text(st.characters(codec=None), max_size=50))
def test_nothing_invisible_is_left(text: str) -> None:
    for character in visible(text):
        assert character == " " or unicodedata.category(character)[0] not in "CZ"


json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None), max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=6,
)


def test_a_text_of_several_lines_may_hold_breaks_and_emoji_and_nothing_else_unseen() -> None:
    plain = "a\n\t\r\N{NO-BREAK SPACE}\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}"
    assert not any(is_hidden(one) for one in plain)
    hidden = "\x1b\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH SPACE}\N{HANGUL FILLER}\U000e0100"
    assert all(is_hidden(one) for one in hidden)


@given(json_values, json_values)
def test_different_values_are_shown_differently_on_one_line(one: Json, other: Json) -> None:
    assert "\n" not in as_json(one)
    same = repr(one) == repr(other)
    assert (as_json(one) == as_json(other)) is same


def test_an_argument_cannot_pass_for_a_line_of_ours() -> None:
    lines = question(a_question({"x\nWhy you are asked: a": "y\nArguments: none"}))
    assert not any(line.startswith(("Why you are asked: a", "Arguments: none")) for line in lines)


def test_what_is_too_long_is_cut_in_its_middle_and_said_so() -> None:
    lines = question(a_question({"a": "x" * 500 + "END", "b": "short"}), limit=100)
    cut = next(line for line in lines if line.startswith("  a"))
    assert "CHARACTERS ARE NOT SHOWN" in cut
    assert cut.endswith('END"')
    assert len(cut) < 120
    assert '  b = "short"' in lines
    many = question(a_question({f"n{i}": "y" for i in range(1000)}), limit=100)
    assert len(many) < 110
    assert "900 ARGUMENTS ARE NOT SHOWN" in "\n".join(many)


def test_values_nested_without_end_are_shown_as_far_as_can_be() -> None:
    deep: Json = "x"
    for _ in range(5000):
        deep = [deep]
    assert "NESTED TOO DEEPLY" in as_json(deep)


def test_more_values_than_anyone_can_look_at_are_not_shown() -> None:
    wide: list[Json] = [[1] * 10_000, {str(number): 1 for number in range(20_000)}]
    lines = question(a_question({"a": wide, "b": [1, 2]}))
    assert "  a = [MORE THAN 20000 VALUES, NOT SHOWN]" in lines
    assert "  b = [1, 2]" in lines


def test_values_are_shown_as_json() -> None:
    value: Json = {"a": [None, True, 1.5], "b\n": {"c": "d"}}
    assert as_json(value) == '{"a": [null, true, 1.5], "b\\n": {"c": "d"}}'


@given(st.text(), st.integers(20, 60))
def test_folding_loses_nothing(text: str, width: int) -> None:
    assert "".join(fold(text, width)) == text
    parts = fold(text, width, at_blanks=True)
    assert "".join(parts) == text
    assert max(len(part) for part in parts) <= width


def test_a_sentence_breaks_between_words_and_a_long_word_where_the_row_ends() -> None:
    said = "Changing anything needs an approval"
    assert fold(said, 20) == ["Changing anything ne", "eds an approval"]
    assert fold(said, 20, at_blanks=True) == ["Changing anything ", "needs an approval"]
    assert fold("x " + "y" * 25, 20, at_blanks=True) == ["x " + "y" * 18, "y" * 7]
    wide = "北 " * 15
    assert fold(wide, 20, at_blanks=True) == ["北 " * 6, "北 " * 6, "北 " * 3]


def test_a_wide_character_takes_two_columns() -> None:
    assert fold("北" * 25, 20) == ["北" * 10, "北" * 10, "北" * 5]
    assert fold("x" * 25, None) == ["x" * 25]


@given(st.text(st.characters(exclude_characters="\n")), st.integers(30, 60))
def test_a_line_that_goes_on_says_so(text: str, width: int) -> None:
    first, *rest = folded(text, width)
    assert all(part.startswith("      : ") for part in rest)
    assert first + "".join(part[8:] for part in rest) == text
    assert folded(text, None) == [text]
