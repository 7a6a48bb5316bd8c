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


def test_urls_are_read_as_the_url_standard_says() -> None:
    cases = [
        ("HTTPS://Docs.Example.COM:443/a/../b", "https://docs.example.com/b", "docs.example.com"),
        ("https://example.com/", "https://example.com", "example.com"),
        ("https://example.com/a/", "https://example.com/a", "example.com"),
        ("https://example.com/?q=a/", "https://example.com/?q=a", "example.com"),
        ("https://example.com//", "https://example.com/", "example.com"),
        ("http://0x7f.1/", "http://127.0.0.1", "127.0.0.1"),
        ("http://2130706433", "http://127.0.0.1", "127.0.0.1"),
        ("http://[::1]:80/", "http://[::1]", "[::1]"),
        ("http://b\u00fccher.example", "http://xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("https:\\\\example.com\\a", "https://example.com/a", "example.com"),
        (" https://exa\tmple.com ", "https://example.com", "example.com"),
        ("ssh://git@GitHub.com:22/", "ssh://git@GitHub.com:22", "GitHub.com"),
        ("file:///etc/passwd", "file:///etc/passwd", ""),
        ("not a url", "not a url", "not a url"),
        ("", "", ""),
    ]
    assert [
        (text, spelled, host)
        for text, spelled, host in cases
        if canonical_url(text) != (spelled, host)
    ] == []


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("git@github.com:acme/x.git", "github.com/acme/x"),
        ("github.com:acme/x/", "github.com/acme/x"),
        ("git@GitHub.com:acme/x", "GitHub.com/acme/x"),
        ("https://github.com/acme/x.git", "github.com/acme/x"),
        ("https://github.com", "github.com"),
        ("ssh://git@github.com:22/acme/x.git/", "github.com/acme/x"),
        ("file:///h/r.git", "/h/r"),
        ("ext::sh -c id", "ext/:sh -c id"),
        ("origin", "origin"),
        ("../other", "../other"),
    ],
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


@pytest.mark.parametrize(
    "text",
    [
        "https://good.example/a?b#c",
        "https://user:pw@good.example:8080/a@b\\c",
        "http://[::1]/x",
        "http://b\u00fccher.example/\u00fc",
        "ssh://git@github.com/a",
        "data",
        "",
    ],
)
def test_what_every_reader_understands_alike_is_unambiguous(text: str) -> None:
    assert is_unambiguous(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://good.example\\@evil.example/",
        "https://good.example@evil@good.example/",
        "https:good.example",
        "https:/good.example",
        "https:\\\\good.example",
        " https://good.example",
        "https://go\tod.example",
        "https://good%2eexample/",
        "https://fa\u00df.example",
        "https://good\u3002example",
        "https://good.example\uff0fevil.example",
        "https://good.example/a\nHost: evil",
        "javascript:alert(1)",
    ],
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
