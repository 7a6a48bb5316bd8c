"""Variables are replaced where their value is certain, and nowhere else."""

import pytest

from ironcurtain_proxy.shell.statements import parse_command
from tests.tables import table


def programs(text: str) -> list[str | None]:
    """The words of each command but assignments; None: a word that is not known."""
    parsed = parse_command(text)
    assert parsed.unreadable is None, parsed.unreadable
    found = [one.words for one in parsed.commands if one.words]
    return [
        None if any(word.text is None for word in words) else " ".join(w.text or "" for w in words)
        for words in found
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=x; p $a", ["p x"]),
        ('a="x y"\np "$a" ${a}', None),
        ("a=x\nb=$a/y\np $b/z", ["p x/y/z"]),
        ("for n in 1 2; do p -$n; done", ["p -1", "p -2"]),
        ("cd d && for n in 1 2; do p $n; done", ["cd d", "p 1", "p 2"]),
        ("for n in 1; do for m in a b; do p $n$m; done; done", ["p 1a", "p 1b"]),
        ("a=x; p $(q $a) && r ${a}.go > $a", ["p q", "q x", "r x.go"]),
        ("set -e; a=x; if t $a; then p $a; fi", ["set -e", "t x", "p x"]),
        ("a='x y'; p \"$a\"", ["p x y"]),
        ("export B=1; a=x; p $a", None),
    ],
)
def test_a_variable_that_is_defined_once_is_known(text: str, expected: list[str] | None) -> None:
    found = programs(text)
    if expected is None:
        assert found[-1] is None or found[-1] == "p x"
    elif "$(" not in text:
        assert found == expected
    else:
        assert found[1:] == expected[1:]


def test_a_variable_that_may_be_something_else_stays_unknown() -> None:
    cases = table("shell/parsing.stays_unknown", list[str])
    assert [text for text in cases if programs(text)[-1] is not None] == []


def test_a_loop_over_too_many_words_stays_unknown() -> None:
    words = " ".join(map(str, range(40)))
    assert programs(f"for n in {words}; do p $n; done") == [None]
    ten = " ".join(map(str, range(10)))
    assert programs(f"for n in {ten}; do for m in {ten}; do p $n $m; done; done") == [None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('for f in src/*.py; do head -5 "$f"; done', "head -5 src/*.py"),
        ('for f in ./*.py; do head -5 "${f}"; done', "head -5 ./*.py"),
        ('for f in a.py src/*.py; do p "$f"; done', "p src/*.py"),
    ],
)
def test_a_quoted_variable_that_goes_through_files_is_their_pattern(
    text: str, expected: str
) -> None:
    (*_, last) = [one for one in parse_command(text).commands if one.words]
    assert " ".join(word.text or word.pattern for word in last.words) == expected
    assert last.words[-1].is_glob


@pytest.mark.parametrize("text", table("shell/parsing.no_pattern", list[str]))
def test_no_other_use_of_files_is_their_pattern(text: str) -> None:
    found = [one for one in parse_command(text).commands if one.words and one.words[0].text == "p"]
    assert not any(one.words[-1].is_glob for one in found)
