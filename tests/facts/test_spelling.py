"""One string becomes one absolute spelling, or a reason why it cannot."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.facts.arguments import LOOK_ALIKES, Refusal, Speller
from tests.tables import named

SPELLER = Speller(home="/home/me", workspace="/srv/work", cwd="/srv/cwd", alias="/workspace")
SERVED = Speller(home="/home/me", workspace=None, cwd=None, alias="/workspace")


@pytest.mark.parametrize(
    ("text", "spelled"),
    named("facts/spelling.a_path_is_spelled_absolutely", tuple[str, str]),
)
def test_a_path_is_spelled_absolutely(text: str, spelled: str) -> None:
    """G4."""
    assert SPELLER.spell(text) == spelled


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" /etc/passwd", id="a leading blank"),
        pytest.param("/etc/passwd ", id="a trailing blank"),
        pytest.param("\t~/.ssh/config", id="a leading tab"),
        pytest.param("/a\0b", id="a NUL"),
        pytest.param("/a\nb", id="a line end"),
        pytest.param("\u00a0/etc", id="a no-break space at the edge"),
        pytest.param("\ufeff/etc", id="a byte-order mark at the edge"),
        pytest.param("/etc\u200b", id="an invisible character at the edge"),
        pytest.param("a\u2215b", id="a division slash"),
        pytest.param("a\u2044b", id="a fraction slash"),
        pytest.param("a\uff0fb", id="a fullwidth slash"),
        pytest.param("\u2024\u2024/b", id="one-dot leaders"),
        pytest.param("\uff0e\uff0e/b", id="fullwidth dots"),
        pytest.param("a\ud800", id="half a character"),
        pytest.param("file://host/x", id="a file URL elsewhere"),
        pytest.param("file:x", id="a relative file URL"),
        pytest.param("file:///a%2fb", id="an escaped slash"),
        pytest.param("file:///a%00", id="an escaped NUL"),
        pytest.param("file:///a%zz", id="an escape that is none"),
        pytest.param("file:///a%ff", id="an escape that is no UTF-8"),
        pytest.param("file:///a?b", id="a file URL with a query"),
        pytest.param("file:///a#b", id="a file URL with a fragment"),
        pytest.param("file:///a\\..\\b", id="a file URL with backslashes"),
        pytest.param("file:///%20", id="a file URL that ends in a blank"),
    ],
)
def test_what_two_readers_could_take_for_two_paths_is_refused(text: str) -> None:
    """G4."""
    assert isinstance(SPELLER.spell(text), Refusal)


@pytest.mark.parametrize("text", ["x", "", ".", "~bob/x"])
def test_a_relative_path_is_refused_where_the_server_decides_what_it_means(text: str) -> None:
    """G4."""
    assert isinstance(SERVED.spell(text), Refusal)


def test_without_a_workspace_the_alias_is_just_a_path() -> None:
    assert SERVED.spell("/workspace/x") == "/workspace/x"


def test_a_tilde_without_a_home_is_refused() -> None:
    assert isinstance(Speller(home="", workspace="/w", cwd=None).spell("~/x"), Refusal)


def test_every_character_that_normalises_to_a_slash_or_dots_is_a_look_alike() -> None:
    found = set()
    for code in range(0x80, sys.maxunicode + 1):
        plain = unicodedata.normalize("NFKC", chr(code))
        if "/" in plain or plain in {".", ".."}:
            found.add(chr(code))
    assert found <= LOOK_ALIKES


@given(st.text(max_size=30) | st.text(alphabet="/.~ \t\0%file:aé\u2215\ud800", max_size=20))
def test_no_string_makes_the_speller_raise(text: str) -> None:
    spelled = SPELLER.spell(text)
    if isinstance(spelled, str):
        assert spelled.startswith("/")
        assert not {"", ".", ".."} & set(spelled[1:].split("/")) or spelled == "/"
