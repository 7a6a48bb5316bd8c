"""One target in many spellings, and words that only look like it."""

import pytest

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.request import PathValue, TextValue, UrlValue, Value
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.origins.keys import (
    Spelling,
    TargetKind,
    TargetPiece,
    coarse_keys,
    exact_keys,
    folded,
    key_of,
    pieces_of,
    says,
)
from tests.tables import table

SPELLING = Spelling(home="/home/u", workspace=RealPath.from_text("/home/u/proj"))


def in_result(text: str, kind: TargetKind, target: str) -> bool:
    return key_of(kind, folded(target)) in set(coarse_keys(text, SPELLING))


def test_a_result_names_a_target_in_any_spelling() -> None:
    cases = table("origins/keys.spellings", list[tuple[TargetKind, str, str]])
    assert [
        (kind, target, text) for kind, target, text in cases if not in_result(text, kind, target)
    ] == []


@pytest.mark.parametrize(
    ("kind", "target", "text"),
    table("origins/keys.parts_of_words", list[tuple[str, str, str]]),
)
def test_a_part_of_a_word_names_nothing(kind: TargetKind, target: str, text: str) -> None:
    assert key_of(kind, target) not in set(exact_keys(text, SPELLING))
    assert not in_result(text, kind, target)


MESSAGE = (
    "Invite Kim Lee to the 'general' channel, and book the Riverside View Hotel. "
    "Ask Alice's team about acme/web, file #12, from May 13 at 10:30. Pay UK12345678901234567890."
)


@pytest.mark.parametrize(
    "name", ["Kim Lee", "general", "Riverside View Hotel", "Alice", "12", "UK12345678901234567890"]
)
def test_a_name_that_the_user_wrote_whole_is_named(name: str) -> None:
    assert says(MESSAGE, TargetPiece("name", name))


def test_a_part_of_a_name_or_a_word_by_chance_is_not_named() -> None:
    cases = [
        *("Kim", "Lee", "Riverside View", "View Hotel", "Ali", "channel", "team", "13", "10", "30"),
        *("alice", "GENERAL", "UK123", "acme", "", " "),
    ]
    assert [name for name in cases if says(MESSAGE, TargetPiece("name", name))] == []


@pytest.mark.parametrize(("name", "named"), [("acme", True), ("web", True), ("team", False)])
def test_an_owner_is_named_where_it_stands_beside_a_repository(name: str, named: bool) -> None:
    assert says(MESSAGE, TargetPiece("name", name, beside_slash=True)) is named
    assert says(
        "see https://github.com/Acme/Web/pull/3", TargetPiece("name", "acme", beside_slash=True)
    )


VALUES: dict[str, tuple[Value, ArgumentRole, list[TargetPiece]]] = {
    "a list of addresses is two targets": (
        TextValue("Kim <kim@example.org>; bob@example.org"),
        "email-address",
        [TargetPiece("address", "kim@example.org"), TargetPiece("address", "bob@example.org")],
    ),
    "an address hidden in a name is a name": (
        TextValue("kim@example.org evil@evil.example"),
        "email-address",
        [TargetPiece("name", "kim@example.org evil@evil.example")],
    ),
    "a link in a text that people read": (
        TextValue("look at www.evil.example/x."),
        "message",
        [TargetPiece("url", "www.evil.example/x")],
    ),
    "what a browser takes for a link, each once": (
        TextValue(
            '<img src="//evil.example/a"> ![](//evil.example/b) HTTPS:\\\\evil.example //x y'
            " https:/e.example <a href='&#104;ttps://evil.example/c'> https:/e.example"
        ),
        "email-body",
        [
            TargetPiece("url", text)
            for text in (
                *("//evil.example/a", "//evil.example/b", "HTTPS://evil.example"),
                *("https://e.example", "https://evil.example/c"),
            )
        ],
    ),
    "the name of a remote is the user's own": (
        UrlValue("origin", ("github.com/acme/web",)),
        "git-remote-url",
        [TargetPiece("url", "origin", own=True)],
    ),
    "a remote by its address is not": (
        UrlValue("git@evil.example:x", ("evil.example/x",)),
        "git-remote-url",
        [TargetPiece("url", "git@evil.example:x")],
    ),
    "a path in the workspace is the user's own": (
        PathValue("/home/u/proj/a", RealPath.from_text("/home/u/proj/a")),
        "write-path",
        [TargetPiece("path", "/home/u/proj/a", own=True)],
    ),
    "a path elsewhere is not": (
        PathValue("/home/u/a", RealPath.from_text("/home/u/a")),
        "write-path",
        [TargetPiece("path", "/home/u/a")],
    ),
    "a host": (TextValue("evil.example"), "proxy-domain", [TargetPiece("url", "evil.example")]),
    "an identifier with an address": (
        TextValue("https://evil.example"),
        "identifier",
        [TargetPiece("url", "https://evil.example")],
    ),
    "a word of no service": (TextValue("main"), "branch-name", []),
}


@pytest.mark.parametrize("case", VALUES)
def test_a_value_is_made_of_the_targets_that_it_names(case: str) -> None:
    value, role, pieces = VALUES[case]
    assert pieces_of(value, (role,), SPELLING) == pieces


def test_what_cannot_be_read_is_its_own_key() -> None:
    assert key_of("url", "\ud800") == "url:\ud800"
    assert key_of("url", "file:///etc/passwd") == "url:file:///etc/passwd"
    assert {*coarse_keys("\ud800%ff\n\n- \n", SPELLING)}
