"""One string becomes one absolute spelling, or a reason why it cannot."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.facts.arguments import LOOK_ALIKES, Refusal, Speller

SPELLER = Speller(home="/home/me", workspace="/srv/work", cwd="/srv/cwd", alias="/workspace")
SERVED = Speller(home="/home/me", workspace=None, cwd=None, alias="/workspace")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        pytest.param("/etc/passwd", "/etc/passwd", id="an absolute path is itself"),
        pytest.param("/a/./b//c/", "/a/b/c", id="dots, doubled and trailing slashes go"),
        pytest.param("//etc/x", "/etc/x", id="two leading slashes are one"),
        pytest.param("/a/link/../b", "/a/b", id="dots go before links are looked at"),
        pytest.param("/../..", "/", id="nothing lies above the root"),
        pytest.param("", "/srv/work", id="nothing is the workspace"),
        pytest.param("x/../../y", "/srv/y", id="a relative path is meant in the workspace"),
        pytest.param("~", "/home/me", id="a lone tilde is home"),
        pytest.param("~/x", "/home/me/x", id="a tilde is home"),
        pytest.param("~//etc", "/home/me/etc", id="a tilde does not give way to the root"),
        pytest.param("~bob/x", "/srv/cwd/~bob/x", id="a named tilde is a name"),
        pytest.param("/workspace", "/srv/work", id="the alias is the workspace"),
        pytest.param("/workspace/", "/srv/work", id="the alias with a slash"),
        pytest.param("/workspace/x", "/srv/work/x", id="the alias with a path"),
        pytest.param("/workspacefoo", "/workspacefoo", id="another name is not the alias"),
        pytest.param("/workspace/../x", "/srv/x", id="the alias goes before the dots"),
        pytest.param("%2e%2e/x", "/srv/work/%2e%2e/x", id="a percent sign is a percent sign"),
        pytest.param("...", "/srv/work/...", id="three dots are a name"),
        pytest.param("file:///etc/passwd", "/etc/passwd", id="a file URL is its path"),
        pytest.param("FILE:/etc/x", "/etc/x", id="a file URL in other letters"),
        pytest.param("file://LocalHost/etc/x", "/etc/x", id="a file URL on this host"),
        pytest.param("file:///a%20b/%C3%BC", "/a b/ü", id="escapes are decoded"),
        pytest.param("file:///a/%2e%2e/b", "/b", id="escaped dots are dots"),
        pytest.param("file:///workspace/x", "/srv/work/x", id="the alias in a file URL"),
    ],
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
