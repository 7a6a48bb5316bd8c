"""Patterns hold in all their conditions, and matching one is never slow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.interaction import MAX_SUBJECT, compile_path_regex
from ironcurtain_proxy.errors import ConfigurationError
from tests.auto_confirm.engine import calls

PATTERN = calls.pattern("edit", "/srv/app/[^/]+")
SCOPES = ("/srv/app/a",)


@pytest.mark.requirement("B-16")
def test_a_pattern_approves_when_every_condition_holds() -> None:
    assert PATTERN.approves("edit", SCOPES, "worker")
    assert replace(PATTERN, session_type="worker").approves("edit", SCOPES, "worker")
    assert replace(PATTERN, risk_level="MEDIUM").approves("edit", SCOPES, "worker")


@pytest.mark.requirement("B-16")
@pytest.mark.parametrize(
    "broken",
    [
        replace(PATTERN, operation="delete"),
        replace(PATTERN, session_type="manager"),
        replace(PATTERN, risk_level="HIGH"),
        replace(PATTERN, risk_level="CRITICAL"),
        replace(PATTERN, auto_approve=False),
        replace(PATTERN, scope=None),
        calls.pattern("edit", "/srv/app/"),
        calls.pattern("edit", "app/[^/]+"),
    ],
)
def test_one_condition_that_fails_is_enough(broken: object) -> None:
    assert isinstance(broken, type(PATTERN))
    assert not broken.approves("edit", SCOPES, "worker")


def test_every_scope_must_match_and_there_must_be_one() -> None:
    assert not PATTERN.approves("edit", (), "worker")
    assert not PATTERN.approves("edit", ("/srv/app/a", "/etc/a"), "worker")
    assert not PATTERN.approves("edit", ("/srv/app/a/../../etc",), "worker")


def test_what_is_unknown_is_known_to_no_pattern() -> None:
    assert not calls.pattern("unknown", ".*").knows("unknown", SCOPES, "worker")


def test_a_pattern_without_a_scope_knows_calls_without_one_and_approves_none() -> None:
    bare = calls.pattern("database", None)
    assert bare.knows("database", (), "worker")
    assert not bare.knows("database", SCOPES, "worker")
    assert not bare.approves("database", (), "worker")


@pytest.mark.parametrize(
    "text",
    [
        "(ab)*", "(ab)*c", "(ab)+", "(ab)?",
        "(a+)+", "(a|b)*", "(a){2}", "a**", "a*?", "a++", "(?=a)", "(?i)a", "(?P<n>a)", r"\1",
        r"\bfoo", r"\A/srv", "a{3,2}", "a{100}", "a{1", "[a", "(a", "a)", "*a", "^*", "a]", "",
        "[[a]", "[a--b]", "[a&&b]", "[z-a]", "a|*", "a$b", "a" * 513, "\\",
        r"[\pL]", r"a\Z", "[]", "[^]", ")a(", ")|.*(",
    ],
)  # fmt: skip
def test_what_could_be_slow_or_misread_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        compile_path_regex(text)


def test_a_pattern_matches_all_of_a_path_or_nothing() -> None:
    cases = [
        ("/srv/(src|tests)/.*", "/srv/tests/a/b", True),
        ("/srv/(src|tests)/.*", "/srv/docs/a", False),
        ("/srv/(?:a|)b", "/srv/b", True),
        ("^/srv/a$", "/srv/a", True),
        (r"/srv/\$", "/srv/$", True),
        (r"/a\.py", "/a.py", True),
        (r"/a\.py", "/axpy", False),
        ("/a{2,3}", "/aaaa", False),
        ("/a{2,}", "/aaaa", True),
        ("/a?b+", "/bb", True),
        ("/a|/b", "/b", True),
        ("/[]a]", "/]", True),
        ("/.*", "/a\nb", False),
        (r"/\d", "/٣", False),
        (r"/[^\d]", "/٣", True),
        (r"/\W", "/é", True),
        (r"/[\w-]+", "/a-b", True),
        (r"/\<a\>", "/<a>", True),
        (r"/\é", "/é", True),
        ("/a#&~ b", "/a#&~ b", True),
        ("/srv/a$", "/srv/a\n", False),
        ("/.", "/\udcff", False),
        ("/srv", "/srv/", False),
    ]
    assert [
        (text, subject, matches)
        for text, subject, matches in cases
        if compile_path_regex(text).fullmatch(subject) != matches
    ] == []


def test_the_limits_themselves_are_allowed() -> None:
    assert compile_path_regex("a" * 512).fullmatch("a" * 512)
    assert compile_path_regex("(a|b)" * 100).fullmatch("ab" * 50)
    assert compile_path_regex("a{64}" * 8).fullmatch("a" * 512)
    assert not compile_path_regex("a{3}").fullmatch("aaaa")
    assert compile_path_regex("a{0}b").fullmatch("b")


def test_a_path_beyond_all_measure_matches_nothing() -> None:
    anything = compile_path_regex(".*")
    assert anything.fullmatch("a" * MAX_SUBJECT)
    assert not anything.fullmatch("a" * (MAX_SUBJECT + 1))


def test_the_longest_path_takes_no_time_on_the_worst_pattern() -> None:
    # Python's own engine would go back 1024 to the power of 20 times: the test would not end.
    assert not compile_path_regex("a*" * 20 + "b").fullmatch("a" * MAX_SUBJECT)


ATOMS = st.sampled_from(["a", "b", "/", ".", "[^/]", "[ab]", r"\w", r"\.", r"\d"])
ITEMS = st.tuples(ATOMS, st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{2,}"])).map(
    "".join
)
FLAT = st.lists(ITEMS, max_size=4).map("".join)
GROUPS = st.lists(FLAT, min_size=1, max_size=3).map(lambda found: "(" + "|".join(found) + ")")
PATTERNS = st.lists(st.one_of(FLAT, GROUPS), min_size=1, max_size=3).map("".join).filter(bool)


@given(PATTERNS, st.text("ab/.1\n", max_size=8))
def test_it_matches_what_python_s_own_engine_matches(text: str, subject: str) -> None:
    expected = re.compile(text, re.ASCII).fullmatch(subject) is not None
    assert compile_path_regex(text).fullmatch(subject) == expected
