"""Problems in words."""

import pytest

from ironcurtain_proxy.config.reading.document import (
    PathPart,
    Problem,
    ProblemsError,
    Report,
    json_path,
    nearest,
    shown,
)
from ironcurtain_proxy.errors import ConfigurationError


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), ""),
        (("rules", 0, "if"), "$.rules[0].if"),
        (("args", "read-path"), "$.args.read-path"),
        (("servers", "my server"), '$.servers["my server"]'),
        (("servers", ""), '$.servers[""]'),
    ],
)
def test_a_place_is_written_as_json_path(parts: tuple[PathPart, ...], expected: str) -> None:
    assert json_path(parts) == expected


def test_a_problem_is_one_line_with_file_place_and_the_nearest_word() -> None:
    problem = Problem("p.json", "$.rules[0].then", '"Deny" is not one of allow, deny', "deny")
    assert str(problem) == (
        'p.json: $.rules[0].then: "Deny" is not one of allow, deny (did you mean "deny"?)'
    )


@pytest.mark.parametrize(
    ("word", "expected"), [("Deny", "deny"), ("alow", "allow"), ("xyzzy", ""), ("", "")]
)
def test_the_nearest_word_ignores_case_and_admits_ignorance(word: str, expected: str) -> None:
    assert nearest(word, ["allow", "deny", "escalate"]) == expected


def test_a_word_from_a_file_cannot_write_to_the_terminal() -> None:
    assert shown("a\x1b[2Jb\nc") == '"a?[2Jb?c"'
    assert len(shown("x" * 10_000)) < 100


def test_an_error_says_the_first_error_and_how_many_more() -> None:
    report = Report()
    report.warning("w.json", (), "odd")
    report.error("a.json", ("x",), "wrong")
    report.error("a.json", ("y",), "wrong too")
    with pytest.raises(ConfigurationError) as caught:
        report.raise_errors()
    assert str(caught.value) == (
        "a.json: $.x: wrong (and 1 more: `ironcurtain-proxy check` shows all)"
    )
    assert isinstance(caught.value, ProblemsError)
    assert len(caught.value.problems) == 3


def test_warnings_alone_stop_nothing() -> None:
    report = Report()
    report.warning("w.json", (), "odd")
    report.raise_errors()
    assert not report.has_errors


def test_what_two_checks_find_is_shown_once() -> None:
    report, other = Report(), Report()
    for each in (report, report, other):
        each.error("config.json", ("a",), "cannot be made")
    report.extend(other.problems)
    report.warning("config.json", ("a",), "cannot be made")
    assert [one.severity for one in report.problems] == ["error", "warning"]
