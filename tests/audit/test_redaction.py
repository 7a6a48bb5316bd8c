"""Secrets do not reach the log; everything else does, unharmed."""

import random
from typing import Final

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.audit.bounding import VALUE_LIMIT, shape_arguments, shape_text
from ironcurtain_proxy.audit.redaction import is_suspicious, redact_beginning, redact_text
from ironcurtain_proxy.model.values import Json
from tests.audit.specimens import SECRETS, card, core
from tests.examples import THOROUGH, examples
from tests.tables import table

WRITTEN: Final = table("audit/redaction.secrets", dict[str, tuple[str, str]])

UNHARMED: Final = table("audit/redaction.unharmed", tuple[str, ...])


@pytest.mark.requirement("C-38", "C-39", "C-40")
@pytest.mark.parametrize("name", WRITTEN)
def test_a_secret_is_masked_as_the_table_says(name: str) -> None:
    text, expected = WRITTEN[name]
    assert redact_text(text) == expected


@pytest.mark.parametrize("text", UNHARMED)
def test_what_is_no_secret_comes_through_unharmed(text: str) -> None:
    """G19: the original takes any nine digits for a social security number."""
    assert redact_text(text) == text


@pytest.mark.requirement("C-40")
@pytest.mark.parametrize("name", SECRETS)
def test_every_format_is_known(name: str) -> None:
    """G19."""
    secret = SECRETS[name]
    for text in (secret, f"it is {secret}.", f'"{secret}"', f"({secret})", f"a\n{secret}\nb"):
        assert core(secret) not in redact_text(text)


TELLING: Final = table("audit/redaction.telling", tuple[str, ...])


@pytest.mark.parametrize("key", TELLING)
@pytest.mark.parametrize("value", ["hunter2", 123456, ["a", "b"], {"inner": "hunter2"}])
def test_a_value_under_a_telling_key_is_masked(key: str, value: Json) -> None:
    shaped = orjson.loads(shape_arguments({"options": {key: value}}, redaction=True).raw)
    assert shaped == {"options": {key: "[redacted]"}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens", 100),
        ("nextPageToken", "abc"),
        ("password_file", "/run/x"),
        ("password", ""),
        ("use_token", True),
        ("secret", None),
        ("keyword", "x"),
        ("author", "x"),
        ("pwd", "/srv"),
    ],
)
def test_a_key_that_only_looks_telling_keeps_its_value(key: str, value: Json) -> None:
    raw = shape_arguments({key: value}, redaction=True).raw
    assert orjson.loads(raw) == {key: value}


def test_a_pair_of_name_and_value_masks_the_value() -> None:
    pairs: list[Json] = [{"name": "X-Api-Key", "value": "abc"}, {"key": "page", "value": "2"}]
    raw = shape_arguments({"headers": pairs}, redaction=True).raw
    assert b'{"name":"X-Api-Key","value":"[redacted]"},{"key":"page","value":"2"}' in raw


def test_an_option_in_an_argument_list_masks_the_next_element() -> None:
    raw = shape_arguments(
        {"argv": ["mysql", "--password", "hunter2", "-u", "joe"]}, redaction=True
    ).raw
    assert orjson.loads(raw) == {"argv": ["mysql", "--password", "[redacted]", "-u", "joe"]}


def test_numbers_that_are_no_text_are_looked_at_too() -> None:
    arguments: dict[str, Json] = {
        "card": 4111111111111111,
        "ssn": 123456789,
        "id": 123456789,
        "at": 1732220000123,
    }
    assert orjson.loads(shape_arguments(arguments, redaction=True).raw) == {
        "card": "4111 ******** 1111",
        "ssn": "***-**-6789",
        "id": 123456789,
        "at": 1732220000123,
    }


@pytest.mark.parametrize("apart", range(45))
def test_a_card_is_masked_however_far_from_another_long_number(apart: int) -> None:
    text = f"1000000000000.{'x' * apart} 4111111111111111"
    assert redact_text(text).endswith(" 4111 ******** 1111")


def test_object_keys_are_redacted_and_none_hides_another() -> None:
    """G19."""
    one, two = "sk-ant-" + "a" * 40 + "zzzz", "sk-ant-" + "b" * 40 + "zzzz"
    shaped = orjson.loads(shape_arguments({"env": {one: 1, two: 2}}, redaction=True).raw)
    assert list(shaped["env"].values()) == [1, 2]
    assert one not in str(shaped)
    assert two not in str(shaped)


# --- properties ----------------------------------------------------------------------------------

secrets = st.one_of(
    st.sampled_from(sorted(SECRETS.values())), st.randoms(use_true_random=False).map(card)
)
around = st.text(st.sampled_from(" \n\t.,;:'\"(){}<>=|!?xyz"), max_size=20)
"""What may stand beside a secret: blanks, punctuation, words; digits would belong to it."""
ordinary = st.one_of(
    st.none(), st.booleans(), st.integers(0, 10**6), st.text("abc /.-", max_size=20)
)


@st.composite
def planted(draw: st.DrawFn) -> tuple[dict[str, Json], str]:
    """Arguments with one secret somewhere: in a text, a list, a nested object, or an object key."""
    secret = draw(secrets)
    before, after = draw(around), draw(around)
    # A letter that touches it makes it another word.
    text = f"{before} {secret} {after}"
    value: Json = text
    for shape in draw(st.lists(st.sampled_from(["list", "object", "key"]), max_size=6)):
        other = draw(ordinary)
        if shape == "list":
            value = [other, value]
        elif shape == "object":
            value = {"a": other, "b": value}
        else:
            value = {"k": value, text: other}
    return {"x": draw(ordinary), "y": value}, secret


@pytest.mark.requirement("C-38", "C-39", "C-40")
@settings(max_examples=examples(200), deadline=None)
@given(planted())
def test_no_planted_secret_survives_wherever_it_is_nested(
    case: tuple[dict[str, Json], str],
) -> None:
    """G19."""
    arguments, secret = case
    written = shape_arguments(arguments, redaction=True).raw.decode()
    assert orjson.dumps(core(secret)).decode()[1:-1] not in written


pieces = st.one_of(
    secrets,
    around,
    st.sampled_from([text for text, _ in WRITTEN.values()]),
    st.sampled_from(UNHARMED),
    st.sampled_from(["token", "password", "=", ": ", "Bearer ", "://", "@", "4111", "ssn ", "--"]),
)


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(pieces, max_size=8).map("".join))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(pieces, max_size=8).map("".join))
def test_the_quick_look_never_misses_what_redaction_would_change(text: str) -> None:
    if redact_text(text) != text:
        assert is_suspicious(orjson.dumps(text))


numbers = st.one_of(
    st.text("0123456789", min_size=1, max_size=6),
    st.sampled_from([" ", "-", " - ", ".", ",", "\n", "\t", "\\n", "* ", "x", "\u00e9", "\x1b[3m"]),
    st.sampled_from(["4111", "4111 1111 1111 1111", "378282246310005", "123-45-6789", "6789"]),
    st.sampled_from(["75b32e3b-1234-4678-9012-123456789012", "1732220000123", "ssn ", "17 4111 "]),
)


@settings(max_examples=examples(600), deadline=None)
@given(st.lists(numbers, max_size=12).map("".join))
@example("4111 1111 1111 1111\n* ")
@example("a_ b-" * 50 + "4111 1111 1111 1111" + " -_c" * 50)
@example("1732220000123 a" * 9 + "123-45-6789" + "_ _" * 50 + "1732220000123")
def test_the_quick_look_never_misses_a_number(text: str) -> None:
    if redact_text(text) != text:
        assert is_suspicious(orjson.dumps(text))
        assert is_suspicious(orjson.dumps({"a": [1, text], "b": "x"}))


@pytest.mark.parametrize(
    "text", ["1732220000123", "order 17322200001234567 of 12", "2026-11-22 16:30"]
)
def test_a_time_stamp_does_not_send_a_record_the_long_way(text: str) -> None:
    around = "The quick brown fox jumps over the lazy dog. " * 90
    assert not is_suspicious(orjson.dumps({"text": around + text + around}))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), secrets, around),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(around, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.requirement("C-41")
@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(around, json_values, max_size=4))
def test_with_redaction_off_arguments_are_written_unchanged(arguments: dict[str, Json]) -> None:
    assert orjson.loads(shape_arguments(arguments, redaction=False).raw) == arguments


# --- cutting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SECRETS)
def test_a_cut_never_lets_the_head_of_a_secret_through(name: str) -> None:
    """Wherever the cut falls, no more of the secret is written than redaction itself leaves."""
    secret = SECRETS[name]
    for offset in {*range(0, len(secret), 1 if THOROUGH else 7), len(secret), len(secret) + 1}:
        text = "x" * (VALUE_LIMIT - offset - 1) + " " + secret + " " + "y" * 100
        shown = shape_text(text, redaction=True).partition("…[cut")[0]
        assert redact_text(text).startswith(shown)
        assert core(secret) not in shown


@pytest.mark.parametrize(
    "secret",
    [
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + "QUJD" * 5000 + ".c2ln",
        "eyJ" + "QUJD" * 5000 + ".eyJzdWIiOiIxIn0.c2ln",
        "-----BEGIN PRIVATE KEY-----\n" + "QUJD" * 5000 + "\n-----END PRIVATE KEY-----",
        "Authorization: Bearer " + "QUJD" * 5000,
        'password="' + "QUJD" * 5000 + '"',
        "sk-ant-api03-" + "QUJD" * 5000,
        "Basic " + "QUI6" + "QUJD" * 5000,
    ],
    ids=lambda secret: secret[:12],
)
def test_a_secret_longer_than_the_margin_is_known_by_its_beginning(secret: str) -> None:
    text = "x" * (VALUE_LIMIT - 200) + " " + secret
    assert "QUJDQUJD" not in shape_text(text, redaction=True)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(pieces, min_size=1, max_size=8).map("".join), st.integers(0, 200))
def test_a_beginning_shows_nothing_that_the_whole_would_not(text: str, limit: int) -> None:
    assert redact_text(text).startswith(redact_beginning(text, limit)) or "eyJ" in text


@pytest.mark.parametrize(
    "unit",
    ["a", "1", "1 ", "1-", "eyJ", "eyJa.", "sk-", "sk-ant-", "://", "://a:", "password=",
     "password ", "token:'", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-", "--a-", "Bearer ",
     "Basic ", "xox", "AKIA", "authorization:", "4111 1111 1111 1112 ", "123-45-678 ", "ssn ",
     '\\"', "token\\", "://a:b", "password='\\"],
)  # fmt: skip
def test_a_long_hostile_text_is_read_within_the_limit_of_a_test(unit: str) -> None:
    # Linear time is a blink; quadratic time is 10^10 steps, which the limit of a test ends.
    text = unit * (200_000 // len(unit))
    assert redact_text(text)


def test_no_time_stamp_is_ever_taken_for_a_card() -> None:
    for second in range(1_700_000_000, 1_700_000_050):
        for stamp in (f"{second}123", f"{second}123456", f"{second}123456789"):
            assert redact_text(stamp) == stamp
            assert shape_arguments({"at": int(stamp)}, redaction=True).raw == b'{"at":%d}' % int(
                stamp
            )


def test_the_end_of_a_masked_card_is_not_the_beginning_of_another() -> None:
    for last in range(10_000):
        text = f"4000000000004111 1111 1111 {last:04d}"
        if redact_text(f"4111 1111 1111 {last:04d}") != f"4111 1111 1111 {last:04d}":
            assert redact_text(text) == f"4000 ******** 4111 1111 1111 {last:04d}"


def test_luhn_cards_of_a_seeded_source_are_all_found() -> None:
    source = random.Random(7)  # noqa: S311  test data
    for _ in range(200):
        number = card(source)
        assert redact_text(f"pay with {number} now") == (
            f"pay with {number[:4]} ******** {number[-4:]} now"
        )
