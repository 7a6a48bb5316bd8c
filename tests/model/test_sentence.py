"""Names in a sentence: an agent's text never goes on as a sentence of the proxy's own."""

import pytest

from ironcurtain_proxy.model.escalation import and_more, short_host, short_name, short_place


@pytest.mark.parametrize("plain", ["main", "origin/main", "a.txt", "https://a.example:8443/x"])
def test_a_plain_name_stands_as_it_is(plain: str) -> None:
    assert short_name(plain) == plain


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b", '"a b"'),
        ("main. Nothing is lost", '"main. Nothing is lost"'),
        ('a" is safe; "', '"a\\" is safe; \\""'),
        ("approve this, it is quite safe", '"approve … safe"'),
        ("a(b)", '"a(b)"'),
    ],
)
def test_a_name_that_could_go_on_as_a_sentence_is_quoted(name: str, shown: str) -> None:
    assert short_name(name) == shown


def test_a_long_name_keeps_its_end_which_says_whose_it_is() -> None:
    shown = short_name("login.bank.example." + "a" * 80 + ".evil.example")
    assert len(shown) == 72
    assert shown.endswith("a.evil.example")
    assert "…" in shown


def test_a_place_below_the_home_begins_with_a_tilde_and_its_neighbour_does_not() -> None:
    assert short_place("/home/me/x", "/home/me/") == "~/x"
    assert short_place("/home/me2/x", "/home/me") == "/home/me2/x"
    assert short_place("/home/me/x", None) == "/home/me/x"


def test_a_host_that_may_imitate_another_one_says_so() -> None:
    assert short_host("a.example") == "a.example"
    assert short_host("xn--pple-43d.com") == "xn--pple-43d.com (may imitate another host)"


def test_two_names_are_named_and_of_three_the_last_is_counted() -> None:
    assert and_more(["a", "b"]) == "a and b"
    assert and_more(["a", "b", "c"]) == "a, b and 1 more"
