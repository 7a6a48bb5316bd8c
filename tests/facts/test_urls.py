"""URLs and remotes in canonical spelling, and the hosts they lead to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.facts.arguments import (
    canonical_git_url,
    canonical_url,
    git_domain,
    is_explicit_remote,
    is_ordinary_remote,
    is_unambiguous,
)
from tests.tables import table


def test_urls_are_read_as_the_url_standard_says() -> None:
    cases = table("facts/urls.as_the_standard_says", list[tuple[str, str, str]])
    assert [
        (text, spelled, host)
        for text, spelled, host in cases
        if canonical_url(text) != (spelled, host)
    ] == []


@pytest.mark.parametrize(
    ("text", "domain"),
    table("facts/urls.remotes", list[tuple[str, str]]),
)
def test_a_remote_leads_to_a_host_and_a_path(text: str, domain: str) -> None:
    assert git_domain(canonical_git_url(text)) == domain


@pytest.mark.parametrize(
    ("text", "explicit", "ordinary"),
    [
        ("https://github.com/a", True, True),
        ("git@github.com:a", True, True),
        ("origin", False, False),
        ("ext::sh -c id", False, False),
        ("git+ssh://github.com/a", True, False),
        ("file:///a", True, False),
    ],
)
def test_remotes_are_told_from_names(text: str, *, explicit: bool, ordinary: bool) -> None:
    assert is_explicit_remote(text) is explicit
    assert is_ordinary_remote(text) is ordinary


@pytest.mark.parametrize("text", table("facts/urls.what_every_reader_understands_alike", list[str]))
def test_what_every_reader_understands_alike_is_unambiguous(text: str) -> None:
    assert is_unambiguous(text)


@pytest.mark.parametrize(
    "text",
    table("facts/urls.two_readings", list[str]),
)
def test_a_url_with_two_readings_is_told(text: str) -> None:
    """G24: it is sent as it came, so the server's own parser must agree on the host."""
    assert not is_unambiguous(text)


@given(st.text(max_size=30) | st.text(alphabet="https:/@\\.[]%\u00df\ud800\t ", max_size=25))
def test_no_string_makes_the_readers_raise(text: str) -> None:
    canonical_url(text)
    git_domain(canonical_git_url(text))
    is_unambiguous(text)


@pytest.mark.parametrize("url", ["https://xn--", "http://xn--%2e#x", "https://x%2exn--/"])
def test_a_host_of_broken_punycode_is_no_url_as_it_is_none_to_node(url: str) -> None:
    assert canonical_url(url) == (url, url)


def test_a_lone_surrogate_is_no_url() -> None:
    assert canonical_url("https://a\udc80.example/") == ("https://a\udc80.example/",) * 2
