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

WRITTEN: Final = {
    "a card, in the original's format": ("4111 1111 1111 1111", "4111 ******** 1111"),
    "a card of 15 digits": ("378282246310005", "3782 ******* 0005"),
    "a card after a count": ("2 4111 1111 1111 1111", "2 4111 ******** 1111"),
    "two cards": ("4111111111111111 5500000000000004", "4111 ******** 1111 5500 ******** 0004"),
    "an SSN, in the original's format": ("123-45-6789", "***-**-6789"),
    "bare digits after a word": ("SSN: 123456789", "SSN: ***-**-6789"),
    "bare digits before a word": (
        "123456789 is his social security number",
        "***-**-6789 is his social security number",
    ),
    "a key, in the original's format": ("AKIAIOSFODNN7EXAMPLE", "AKIA...MPLE"),
    "a Bearer header": ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
    "a bare Bearer token": ("use Bearer a1b2c3d4e5", "use Bearer [redacted]"),
    "a Basic header": ("Basic dXNlcjpwYXNz", "Basic [redacted]"),
    "a password in a URL": (
        "https://joe:s3cret@host/path?q=1",
        "https://joe:[redacted]@host/path?q=1",
    ),
    "a password with @ in a URL": ("ftp://joe:a@b@host/", "ftp://joe:[redacted]@host/"),
    "a password without a user": (
        "redis://:hunter2@cache:6379/0",
        "redis://:[redacted]@cache:6379/0",
    ),
    "a token as user": ("https://0123456789abcdef0123@host/x.git", "https://[redacted]@host/x.git"),
    "an assignment": ("DB_PASSWORD=hunter2", "DB_PASSWORD=[redacted]"),
    "an abbreviated assignment": ("DB_PWD=hunter2", "DB_PWD=[redacted]"),
    "JSON in a text": ('{"api_key": "abc", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
    "JSON in JSON in a text": (r"{\"token\": \"abc\"}", r"{\"token\": \"[redacted]\"}"),
    "an option": ("mysql --password hunter2 -u joe", "mysql --password [redacted] -u joe"),
    "two signs of Go": ('password := "hunter2"', 'password := "[redacted]"'),
    "two signs of Ruby": ("PASSWORD => 'hunter2'", "PASSWORD => '[redacted]'"),
    "a comparison": ('if password == "hunter2":', 'if password == "[redacted]":'),
    "a default of make": ("DB_PASSWORD ?= hunter2", "DB_PASSWORD ?= [redacted]"),
    "a field of a form": ("user[password]=hunter2&a=1", "user[password]=[redacted]&a=1"),
    "a numbered name": ("password2=hunter2", "password2=[redacted]"),
    "a name with more": ("password_confirmation: 'hunter2'", "password_confirmation: '[redacted]'"),
    "a pair for curl": ("curl -u joe:hunter2 https://x/", "curl -u joe:[redacted] https://x/"),
    "a quoted pair for curl": ("curl --user='joe:hunter2' x", "curl --user='joe:[redacted]' x"),
    "an argument of sshpass": ("sshpass -p hunter2 ssh h", "sshpass -p [redacted] ssh h"),
    "a query": ("/x?token=abc&page=2", "/x?token=[redacted]&page=2"),
    "a private key without an end": (
        "x -----BEGIN PRIVATE KEY-----\nMIIE",
        "x [redacted private key]",
    ),
}

UNHARMED: Final = (
    "123456789",
    "order 123456789 of 987654321",
    "2026-11-21",
    "2026-11-21T20:30:50.799Z",
    "2026-11-21 20:30:50 1700000000",
    "1732220000123",
    "1732220000123456",
    "1732220000123456789",
    "4111111111111112",
    "0.4111111111111111",
    "4111111111111111.25",
    "00000000-0000-0000-0000-000000000000",
    "75b32e3b-1234-4678-9012-123456789012",
    "41111111-1111-1111-4111-111111111111",
    "d41d8cd98f00b204e9800998ecf8427e",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "192.168.100.100:8080",
    "+1 (555) 123-4567",
    "555-1234-5678",
    "978-3-16-148410-0",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
    "100 200 300 400 500 600",
    "v1.23.456789012",
    "/srv/task-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/risk-bbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "sk-learn",
    "feature/sk-some-kebab-case-branch-name",
    "bearer of bad news",
    "Bearer authentication is used",
    "Basic authentication is used",
    "http://host:8080/a?mail=joe@example.com",
    "ssh://git@github.com/owner/repo.git",
    "mailto:joe@example.com",
    "token: str",
    "def f(password: str) -> None:",
    "the secret of success",
    "nextPageToken=abc",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "xoxo",
    "PWD=/srv/a",
    "eyJ is how a JWT begins",
    "ghp_short",
    "",
    "naïve 日本語 🙂",
)


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


TELLING: Final = (
    "password",
    "api_key",
    "X-Api-Key",
    "githubToken",
    "client_secret",
    "Authorization",
    "user[password]",
    "password2",
    "password?",
    "new_password_confirmation",
    "password\u200b",
    "token_value",
    "private_key_pem",
)


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
