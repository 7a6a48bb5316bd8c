"""Secrets are out of a stream however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.downstream.environment import MARK, Masker
from tests.tables import named

# Secrets of few letters, that begin, end and contain each other.
_SECRET = st.text("ab", min_size=1, max_size=6)
_TEXT = st.text("abc", max_size=60)


def masked(secrets: list[str], *pieces: bytes) -> bytes:
    masker = Masker(secrets)
    return b"".join([*map(masker.feed, pieces), masker.finish()])


@given(secrets=st.lists(_SECRET, max_size=3), text=_TEXT, cuts=st.lists(st.integers(0, 9)))
def test_how_a_stream_is_cut_makes_no_difference(
    secrets: list[str], text: str, cuts: list[int]
) -> None:
    data = text.encode()
    pieces = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    assert masked(secrets, *pieces, data) == masked(secrets, text.encode())


@given(secrets=st.lists(_SECRET, min_size=1, max_size=3), text=_TEXT)
def test_no_secret_is_left_and_all_else_is(secrets: list[str], text: str) -> None:
    rest = masked(secrets, text.encode()).split(MARK)
    assert not any(secret.encode() in part for secret in secrets for part in rest)
    assert masked(secrets, text.encode()).replace(MARK, b"").count(b"c") == text.count("c")


@given(secrets=st.lists(_SECRET, min_size=1), data=_TEXT)
def test_no_more_is_held_back_than_could_become_a_secret(secrets: list[str], data: str) -> None:
    masker = Masker(secrets)
    masker.feed(data.encode())
    held = masker._held
    assert len(held) < max(map(len, secrets))
    assert not held or any(secret.encode().startswith(held) for secret in secrets)


@pytest.mark.parametrize(
    ("secrets", "text", "expected"),
    named("downstream/masking.what_counts_as_the_secret", tuple[list[str], str, str]),
)
def test_what_counts_as_the_secret(secrets: list[str], text: str, expected: str) -> None:
    assert masked(secrets, text.encode()) == expected.encode()
