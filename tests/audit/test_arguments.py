"""Secrets in arguments: found where a record would mask them, named, and never shown."""

import orjson
import pytest

from ironcurtain_proxy.audit.redaction import redact_text, secrets_in
from ironcurtain_proxy.model.values import Json
from tests.audit.specimens import SECRETS

KEY = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize("name", SECRETS)
def test_every_secret_that_a_record_masks_is_found_and_not_shown(name: str) -> None:
    secret = SECRETS[name]
    (found, *_) = secrets_in({"text": f"see {secret} there"})
    assert found.argument == "text"
    assert secret not in found.kind


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ({"a": 1, "b": ["plain"], "c": {"d": None}}, []),
        ({"password": ""}, []),
        ({"auth": True}, []),
        ({"nextPageToken": "abc"}, []),
        ({"password": "x"}, [("password", "value that is named like a secret")]),
        ({"token": ["x"]}, [("token", "value that is named like a secret")]),
        ({"a": {"b": [{"c": KEY}]}}, [("a", "key of a provider")]),
        ({"a": {KEY: 1}}, [("a", "key of a provider")]),
        ({"n": 4111111111111111}, [("n", "number of a card or an identity")]),
        ({"_meta": {"baggage": f"k={KEY}"}}, [("_meta", "key of a provider")]),
        (
            {"a": "-----BEGIN PRIVATE KEY-----\nabc", "b": KEY},
            [("a", "private key"), ("b", "key of a provider")],
        ),
    ],
)
def test_a_secret_is_named_by_its_argument_and_kind(
    sent: dict[str, Json], found: list[tuple[str, str]]
) -> None:
    assert [(one.argument, one.kind) for one in secrets_in(sent)] == found


def test_a_name_that_is_a_secret_or_obeyed_by_a_terminal_is_not_shown() -> None:
    (found,) = secrets_in({f"\x1b[2J {KEY}": 1})
    assert KEY not in found.argument
    assert "\x1b" not in found.argument


def test_many_secrets_are_cut() -> None:
    assert len(secrets_in({f"a{n}": KEY for n in range(1000)})) == 8


def test_what_is_nested_without_end_counts_as_a_secret() -> None:
    deep: Json = "x"
    for _ in range(300):
        deep = [deep]
    found = secrets_in({"password": "x", "deep": deep})
    assert "nested too deeply" in found[1].kind
    deeper: Json = deep
    for _ in range(20_000):
        deeper = [deeper]
    assert [one.argument for one in secrets_in({"deeper": deeper})] == ["deeper"]


def test_megabytes_of_text_take_no_time_to_speak_of() -> None:
    text = "lorem ipsum " * 200_000
    assert secrets_in({"text": text}) == ()
    assert redact_text(text[:100]) == text[:100]
    assert secrets_in({"text": text + KEY})[0].kind == "key of a provider"
    assert len(orjson.dumps(text)) > 2_000_000
