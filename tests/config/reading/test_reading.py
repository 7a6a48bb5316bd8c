"""Files that are what they should be, and files that are not."""

import os
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.reading.reading import MAX_BYTES, parse, read_document
from ironcurtain_proxy.model.values import Json
from tests.config.files import said
from tests.tables import table

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
)


def parsed(text: str | bytes, *, yaml: bool = False) -> tuple[Json, list[str]]:
    report = Report()
    data = text.encode() if isinstance(text, str) else text
    return parse(data, "f", report, yaml=yaml), said(report)


@given(DOCUMENTS)
def test_a_document_is_read_as_it_was_written(document: Json) -> None:
    assert parsed(orjson.dumps(document)) == (document, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,}', "is not JSON: trailing comma is not allowed at line 1, column 9"),
        ("[1,\n 2", "is not JSON: unexpected end of data at line 2, column 3"),
        ("NaN", "is not JSON: unexpected character at line 1, column 1"),
        ('["\\ud800"]', "is not JSON: lone leading surrogate in hex escape at line 1, column 9"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("[" * 5000 + "]" * 5000, "is not JSON: recursion limit reached at line 1, column 1026"),
    ],
    ids=lambda text: text[:20],
)
def test_a_slip_is_found_with_line_and_column(text: str, message: str) -> None:
    problems = parsed(text)[1]
    assert len(problems) == 1
    assert problems[0].startswith(": " + message.split(":", maxsplit=1)[0])
    if "line" in message:
        assert "line" in problems[0]
        assert "column" in problems[0]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"then": "deny", "then": "allow"}', "$.then"),
        ('{"rules": [{"if": {}, "x": {"a": 1, "b": 2, "a": 3}}]}', "$.rules[0].x.a"),
        ('[[{"a": 1}], {"a\\u0062": 1, "ab": 2}]', "$[1].ab"),
    ],
)
def test_two_equal_keys_are_refused(text: str, place: str) -> None:
    """G1: what a reader sees first is not what a parser keeps."""
    assert parsed(text)[1] == [f"{place}: the key occurs twice: remove one"]


def test_a_byte_order_mark_does_no_harm() -> None:
    assert parsed(b"\xef\xbb\xbf{}") == ({}, [])


def test_a_number_of_ten_thousand_digits_does_no_harm() -> None:
    parsed("[" + "9" * 10_000 + "]")


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("a: 1\nb: [x, 'y']\n", {"a": 1, "b": ["x", "y"]}),
        ("a: true\nb: null\nc: 1.5", {"a": True, "b": None, "c": 1.5}),
    ],
)
def test_yaml_says_what_json_could(text: str, document: Json) -> None:
    assert parsed(text, yaml=True) == (document, [])


@pytest.mark.parametrize(
    ("text", "message"), table("config/reading.refused_yaml", list[tuple[str, str]])
)
def test_yaml_that_says_more_than_json_is_refused(text: str, message: str) -> None:
    problems = parsed(text, yaml=True)[1]
    assert [p[: len(message)] for p in problems] == [message]


def test_an_alias_is_refused_where_it_stands_and_at_its_anchor() -> None:
    problems = parsed("a: &x [1]\nb: *x", yaml=True)[1]
    assert problems == [f"$.{key}: anchors and aliases are not supported" for key in "ab"]


def test_yaml_without_end_is_refused() -> None:
    assert parsed("[" * 100_000, yaml=True)[1] != []


def test_yaml_is_told_by_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1")
    report = Report()
    read = read_document(path, report)
    assert read is not None
    assert read[1].value == {"a": 1}


def test_what_is_not_a_readable_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "utf-16").write_text('{"a": 1}', "utf-16")
    (tmp_path / "utf-16-le").write_text('{"a": 1}', "utf-16-le")
    (tmp_path / "nothing").write_bytes(b"\0" * 50)
    (tmp_path / "large").write_bytes(b" " * (MAX_BYTES + 1))
    for name, message in (
        ("missing", "cannot be read: it does not exist"),
        (".", "cannot be read: it is a directory"),
        ("pipe", "cannot be read: it is not a regular file"),
        ("loop", "cannot be read: too many levels of symbolic links"),
        ("a\0b", "cannot be read: its path is not a path"),
        ("large", "is larger than 16 MiB"),
        ("nothing", "is not JSON: unexpected character, expected a JSON value at line 1, column 1"),
        ("utf-16", "is UTF-16, as some editors of Windows write; save it as UTF-8"),
        ("utf-16-le", "is UTF-16, as some editors of Windows write; save it as UTF-8"),
    ):
        report = Report()
        assert read_document(tmp_path / name, report) is None
        assert said(report) == [f": {message}"]
